"""Locks against each other inside one run: medians of per-round ratios."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .results import Cell, Results


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of the per-round ratios, with the lowest and the highest, over `rounds` rounds that both sides have.

    `interval` has the true median in it with a probability of 95 %; None below six rounds.
    """

    median: float
    low: float
    high: float
    rounds: int
    interval: tuple[float, float] | None = None

    @property
    def limits(self) -> tuple[float, float]:
        """The interval, or the whole range where there are too few rounds for one."""
        return self.interval or (self.low, self.high)


def ratio(values: Sequence[float | None], reference: Sequence[float | None]) -> Ratio | None:
    """Values over reference, round by round; None without a common round."""
    found = [value for value in statistics.ratios(values, reference) if value is not None]
    middle = statistics.spread(found)
    return None if middle is None else Ratio(*middle, rounds=len(found), interval=statistics.median_interval(found))


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
        "oversubscribed": _oversubscribed,
    }
    lines = [line for cells in groups(results.cells).values() for line in report[results.preset](cells)]
    return lines + [line for cells in groups(results.cells).values() for line in _against_themselves(cells)]


def _by_lock(cells: Iterable[Cell]) -> dict[str, Cell]:
    return {cell.label: cell for cell in cells if cell.status != "invalid"}


def _uncontended(cells: Sequence[Cell]) -> list[str]:
    locks = _by_lock(cells)
    lines = []
    if {"std", "parking_lot"} <= locks.keys():
        rival = cheaper(*(locks[name].runs_of("pair_net_ns") for name in ("std", "parking_lot")))
        for name in ("lock", "ticket"):
            found = ratio(locks[name].runs_of("pair_net_ns"), rival) if name in locks else None
            if found is not None:
                lines.append(f"net pair, {name} over the cheaper of std and parking_lot: {shown(found)}")
    for ours, theirs in (("lock", "threading.Lock"), ("rlock", "threading.RLock")):
        if {ours, theirs} <= locks.keys():
            for figure, what in (("pair_net_ns", "acquire(); release()"), ("with_net_ns", "with")):
                found = ratio(locks[ours].runs_of(figure), locks[theirs].runs_of(figure))
                if found is not None:
                    lines.append(f"net `{what}`, {ours} over {theirs}: {shown(found)}")
    return lines


# First words of the identifiers of our locks.
OURS = ("lock", "rlock", "ticket", "auto", "proportional")


def is_ours(cell: Cell) -> bool:
    """Whether a cell's lock is one of this project."""
    return re.split("[:-]", cell.lock, maxsplit=1)[0] in OURS


def peer_of(cell: Cell, cells: Sequence[Cell]) -> Cell | None:
    """What a lock of ours is compared with: the standard lock of its kind in Python, else the peer with the best median."""
    if not is_ours(cell):
        return None
    peers = {one.lock: one for one in cells if not is_ours(one) and not one.again and one.status != "invalid"}
    return peers.get("threading.RLock" if cell.lock == "rlock" else "threading.Lock") or best(peers.values())


# Figures whose ratio to the peer is stated, with their names.
STATED = (("throughput_per_s", "throughput"), ("cpu_s_per_million", "CPU per acquisition"), ("longest_wait_ns", "longest wait"))


def _oversubscribed(cells: Sequence[Cell]) -> list[str]:
    lines = []
    for cell in _by_lock(cells).values():
        peer = None if cell.again else peer_of(cell, cells)
        if peer is None:
            continue
        found = [(what, ratio(cell.runs_of(name), peer.runs_of(name))) for name, what in STATED]
        stated = ", ".join(f"{what} {shown(one)}" for what, one in found if one is not None)
        if stated:
            lines.append(f"{counted(cell.threads)}, {cell.label} over {peer.label}: {stated}")
    return lines


def _against_themselves(cells: Sequence[Cell]) -> list[str]:
    """How far apart two cells of the same lock came out: differences of that size mean nothing in this run."""
    locks = _by_lock(cells)
    lines = []
    for cell in locks.values():
        first = locks.get(cell.label.removesuffix(" A/A")) if cell.again else None
        if first is None:
            continue
        pairs = first.pair_ns is not None
        name, what = ("pair_net_ns", "net pair") if pairs else ("throughput_per_s", "throughput")
        found = ratio(cell.runs_of(name), first.runs_of(name))
        if found is not None:
            low, high = found.limits
            covers = ", covers 1" if low <= 1 <= high else ", does NOT cover 1: something but the locks differed"
            where = f"{counted(cell.threads)}, {cell.params['pin']}" if cell.params["pin"] != "none" else counted(cell.threads)
            lines.append(f"A/A, {where}, {first.label} over itself: {what} {shown(found)}{covers if found.interval else ''}")
    return lines


def counted(threads: int) -> str:
    """A number of threads in words."""
    return f"{threads} thread{'s' * (threads > 1)}"


def _semaphore(cells: Sequence[Cell]) -> list[str]:
    locks = _by_lock(cells)
    if not {"auto", "ticket"} <= locks.keys():
        return []
    found = throughput_ratio(locks["auto"], locks["ticket"])
    return [] if found is None else [f"throughput with {counted(cells[0].threads)}, auto over ticket: {shown(found)}"]


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
    """A ratio as text, with its interval (or its range, for few rounds) and the number of rounds behind it."""
    low, high = found.limits
    return f"{found.median:.3f} ({'' if found.interval is None else '95 %: '}{low:.3f} to {high:.3f}, {found.rounds} rounds)"
