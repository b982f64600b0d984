"""Waits by the line that waited or was blamed: what profiles are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ticketlock.monitor.model import Blame, LockRow, Snapshot

# Waits of locks for which no line was sampled.
UNKNOWN = "(not sampled)"


class Charge(NamedTuple):
    """What is charged to one line of one lock: waits, and their time in ns."""

    lock: LockRow
    function: str
    # Both None where the line is not known.
    path: str | None
    line: int | None
    contentions: int
    delay_ns: int


def charges(snapshot: Snapshot, role: Literal["waiter", "holder"]) -> Iterator[Charge]:
    """Every lock's waits, shared out to its lines as they were sampled: sums are exact, the split is an estimate."""
    for lock in snapshot.locks:
        blames = lock.waiter_sites if role == "waiter" else lock.holder_sites
        if not lock.waits.count and not lock.waits.sum:
            continue
        if not sum(blame.share for blame in blames):
            yield Charge(lock, UNKNOWN, None, None, lock.waits.count, lock.waits.sum)
            continue
        counts = _split(lock.waits.count, blames)
        for blame, contentions, delay_ns in zip(blames, counts, _split(lock.waits.sum, blames), strict=True):
            if contentions or delay_ns:
                yield Charge(lock, blame.function, *place(blame.site), contentions, delay_ns)


def place(site: str) -> tuple[str, int]:
    """Path and line of a site."""
    path, _, line = site.rpartition(":")
    return path, int(line) if line.isascii() and line.isdigit() and len(line) < 10 else 0


def encodable(text: str) -> str:
    """A text that UTF-8 can carry: unpaired surrogates are written as `\\udc80`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _split(total: int, blames: tuple[Blame, ...]) -> list[int]:
    """A whole number shared out in whole numbers that add up to it."""
    whole = sum(blame.share for blame in blames)
    parts: list[int] = []
    reached = 0.0
    given = 0
    for blame in blames:
        reached += blame.share / whole
        upto = min(total, round(total * min(reached, 1.0)))
        parts.append(upto - given)
        given = upto
    parts[-1] += total - given
    return parts
