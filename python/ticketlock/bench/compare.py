"""Locks against each other inside one run: medians of per-round ratios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .results import Cell, Results


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of the per-round ratios, with the lowest and the highest, over `rounds` rounds that both sides have."""

    median: float
    low: float
    high: float
    rounds: int


def ratio(values: Sequence[float | None], reference: Sequence[float | None]) -> Ratio | None:
    """Values over reference, round by round; None without a common round."""
    found = [value for value in statistics.ratios(values, reference) if value is not None]
    middle = statistics.spread(found)
    return None if middle is None else Ratio(*middle, rounds=len(found))


def throughput_ratio(cell: Cell, reference: Cell) -> Ratio | None:
    """Throughput of a cell over that of another of its group."""
    return ratio(cell.throughput_per_s.runs, reference.throughput_per_s.runs)


def cheaper(first: Sequence[float | None], second: Sequence[float | None]) -> list[float | None]:
    """Round by round the smaller of two costs; one of them alone counts."""
    return [min((value for value in pair if value is not None), default=None) for pair in zip(first, second, strict=True)]


def groups(cells: Iterable[Cell]) -> dict[tuple[int, str], list[Cell]]:
    """Cells by what they may be compared within, in the order of the run."""
    found: dict[tuple[int, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.group, []).append(cell)
    return found


def best(cells: Iterable[Cell]) -> Cell | None:
    """The valid cell with the highest median throughput."""
    known = [(cell.throughput_per_s.median, cell) for cell in cells if cell.status != "invalid"]
    return max(((median, cell) for median, cell in known if median is not None), key=lambda pair: pair[0], default=(None, None))[
        1
    ]


def ties(cell: Cell, leader: Cell) -> bool:
    """Whether some round had this cell at least as good as the leader: the difference is then within the noise."""
    against = throughput_ratio(cell, leader)
    return against is not None and against.high >= 1.0


def findings(results: Results) -> list[str]:
    """The sentences that a preset exists for, each with its figures."""
    report: dict[str, Callable[[Sequence[Cell]], list[str]]] = {
        "uncontended": _uncontended,
        "semaphore": _semaphore,
        "fairness": _fairness,
        "phantom": _phantom,
    }
    return [line for cells in groups(results.cells).values() for line in report[results.preset](cells)]


def _by_lock(cells: Iterable[Cell]) -> dict[str, Cell]:
    return {cell.label: cell for cell in cells if cell.status != "invalid"}


def _uncontended(cells: Sequence[Cell]) -> list[str]:
    locks = _by_lock(cells)
    if not {"ticket", "std", "parking_lot"} <= locks.keys():
        return []
    net = {name: locks[name].runs_of("pair_net_ns") for name in ("ticket", "std", "parking_lot")}
    found = ratio(net["ticket"], cheaper(net["std"], net["parking_lot"]))
    return [] if found is None else [f"net pair, ticket over the cheaper of std and parking_lot: {shown(found)}"]


def _semaphore(cells: Sequence[Cell]) -> list[str]:
    locks = _by_lock(cells)
    if not {"auto", "ticket"} <= locks.keys():
        return []
    found = throughput_ratio(locks["auto"], locks["ticket"])
    threads = cells[0].threads
    return [] if found is None else [f"throughput with {threads} thread{'s' * (threads > 1)}, auto over ticket: {shown(found)}"]


def _fairness(cells: Sequence[Cell]) -> list[str]:
    locks = _by_lock(cells)
    lines = []
    ticket, rival = locks.get("ticket"), locks.get("tas-retry")
    if ticket is None or rival is None:
        return []
    where = f"{cells[0].threads} threads, {cells[0].params['pin']}"
    if ticket.overtakes_per_million is not None and rival.overtakes_per_million is not None:
        lines.append(
            f"overtakes per million ({where}): ticket {ticket.overtakes_per_million:.4g}, "
            f"tas-retry {rival.overtakes_per_million:.4g}"
        )
    if ticket.run_length is not None and rival.run_length is not None:
        lines.append(
            f"longest and mean run ({where}): ticket {ticket.run_length.longest} and {ticket.run_length.mean:.3g}, "
            f"tas-retry {rival.run_length.longest} and {rival.run_length.mean:.3g}"
        )
    return lines


def _phantom(cells: Sequence[Cell]) -> list[str]:
    locks = _by_lock(cells)
    lines = []
    for label, cell in locks.items():
        if "ticket" in locks and label.startswith("auto"):
            for name, what in (("polls_per_wait", "polls per wait"), ("holder_section_ns", "holder's section")):
                found = ratio(cell.runs_of(name), locks["ticket"].runs_of(name))
                if found is not None:
                    lines.append(f"{what}, {label} over ticket: {shown(found)}")
    return lines


def shown(found: Ratio) -> str:
    """A ratio as text, with its range and the number of rounds behind it."""
    return f"{found.median:.3f} ({found.low:.3f} to {found.high:.3f}, {found.rounds} rounds)"
