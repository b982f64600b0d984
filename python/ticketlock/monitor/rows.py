"""What building and merging snapshots have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model import Blame, LockRow, SiteRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .raw import Kind, RawProcess
    from .tally import Tally


def same_process(one: RawProcess, other: RawProcess) -> bool:
    """Whether two readings are of one process; its child after a fork is another."""
    return all(one[key] == other[key] for key in ("pid", "start_ticks", "created_ns"))


def row_order(row: LockRow | SiteRow) -> tuple[float, int, int, int]:
    """Sorts the most waiting first; locks that did nothing in the interval keep their order."""
    return (-row.wait_share, -row.waits.sum, -row.contended, -(row.acquisitions or 0))


def retired_row(place: str | None, number: int, kind: Kind, internal: bool, tally: Tally, wait_share: float) -> LockRow:
    """The row of all locks of a line that are gone."""
    return LockRow(
        id=None,
        name=None,
        kind=kind,
        site=place,
        internal=internal,
        retired=number,
        acquisitions=tally.acquisitions,
        contended=tally.contended,
        wait_share=wait_share,
        waits=tally.waits(),
        parks=tally.parks,
        timeouts=tally.timeouts,
        hand_overs=tally.hand_overs,
        owner=None,
        owner_name=None,
        abandoned=False,
        waiters=0,
        waiters_max=0,
        holder_sites=(),
        waiter_sites=(),
    )


def shared(lines: Mapping[str, tuple[str, int, float]]) -> tuple[Blame, ...]:
    """Lines with their function, samples and weight as blames, the heaviest first."""
    weights = {place: weight for place, (_, _, weight) in lines.items()}
    if not sum(weights.values()):
        weights = {place: float(samples) for place, (_, samples, _) in lines.items()}
    total = sum(weights.values())
    return tuple(
        Blame(site=place, function=lines[place][0], samples=lines[place][1], share=weight / total if total else 0.0)
        for place, weight in sorted(weights.items(), key=lambda item: -item[1])
    )
