"""How the shares of waiting, and the delays, went over the last minute: pure, fed with one snapshot after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .model import LockRow, Snapshot

# Seconds that are remembered, and readings of a delay.
SECONDS = 60
DELAYS = 60
NS = 1_000_000_000

# A first reading counts from the creation of the process. Longer than this, it says nothing about the last minute.
LONGEST_FIRST_NS = 5 * NS

# A lock's share rises or falls if its last seconds differ so much from those before.
RECENT, BEFORE = 3, 15
TREND_FACTOR, TREND_LEAST = 1.25, 0.01

# Id of a lock, or the site of those that are gone.
Key = int | str

# Second of the monitor's clock, time waited in it, and how much of it was watched (both ns).
Bucket = tuple[int, float, float]
Track = tuple[Bucket, ...]


def key_of(lock: LockRow) -> Key:
    """What identifies a row from one snapshot to the next."""
    return lock.id if lock.id is not None else f"{lock.site}"


@dataclass(frozen=True, slots=True)
class History:
    """Tracks of shares by lock and of all locks, and the latest delays by thread and lock."""

    locks: Mapping[Key, Track] = field(default_factory=dict)
    overall: Track = ()
    delays: Mapping[tuple[int, int], tuple[float, ...]] = field(default_factory=dict)
    now: int = 0
    readings: int = 0


def observe(history: History, snapshot: Snapshot) -> History:
    """With one more snapshot. What was not waited for within the last minute is forgotten."""
    now = snapshot.at_ns // NS
    delays = {
        (thread.ident, cell.lock): (*history.delays.get((thread.ident, cell.lock), ()), cell.delay)[-DELAYS:]
        for thread in snapshot.threads
        for cell in thread.delays
    }
    too_long = not history.readings and snapshot.interval_ns > LONGEST_FIRST_NS
    pieces = [] if too_long else _pieces(snapshot.at_ns, snapshot.interval_ns)
    shares = {key_of(lock): lock.wait_share for lock in snapshot.locks if lock.wait_share > 0}
    locks = {}
    for key in history.locks.keys() | shares.keys():
        track = _extended(history.locks.get(key, ()), shares.get(key, 0.0), pieces, now)
        if any(waited for _, waited, _ in track):
            locks[key] = track
    overall = _extended(history.overall, snapshot.totals.wait_share, pieces, now)
    return History(locks, overall, delays, now, history.readings + 1)


def _pieces(at_ns: int, interval_ns: int) -> list[tuple[int, int]]:
    """The seconds that an interval touches, within the last minute, and how much of each."""
    start = max(at_ns - interval_ns, at_ns - SECONDS * NS)
    pieces = []
    while start < at_ns:
        end = min(at_ns, (start // NS + 1) * NS)
        pieces.append((start // NS, end - start))
        start = end
    return pieces


def _extended(track: Track, share: float, pieces: list[tuple[int, int]], now: int) -> Track:
    kept = [bucket for bucket in track if now - SECONDS < bucket[0] <= now]
    for second, length in pieces:
        if kept and kept[-1][0] == second:
            _, waited, watched = kept.pop()
            kept.append((second, waited + share * length, watched + length))
        else:
            kept.append((second, share * length, float(length)))
    return tuple(kept[-SECONDS - 1 :])


def levels(track: Track, now: int, cells: int) -> tuple[float | None, ...]:
    """The last minute in some cells, oldest first, each with its largest share; None where nobody watched."""
    if cells <= 0:
        return ()
    found: list[float | None] = [None] * cells
    for second, waited, watched in track:
        age = now - second
        if watched > 0 and 0 <= age < SECONDS:
            cell = cells - 1 - age * cells // SECONDS
            share, before = waited / watched, found[cell]
            found[cell] = share if before is None else max(before, share)
    if cells > SECONDS:
        # More cells than seconds: each second fills those up to the next.
        for cell in range(1, cells):
            if found[cell] is None:
                found[cell] = found[cell - 1]
    return tuple(found)


def trend(track: Track, now: int) -> int:
    """1 if the share rises, -1 if it falls, 0 if it does neither or is too young to tell."""
    recent = _mean(track, now - RECENT, now)
    before = _mean(track, now - BEFORE, now - RECENT)
    if recent is None or before is None or abs(recent - before) < TREND_LEAST:
        return 0
    if recent > before * TREND_FACTOR:
        return 1
    return -1 if recent * TREND_FACTOR < before else 0


def _mean(track: Track, after: int, until: int) -> float | None:
    chosen = [bucket for bucket in track if after < bucket[0] <= until]
    watched = sum(bucket[2] for bucket in chosen)
    return sum(bucket[1] for bucket in chosen) / watched if watched > 0 else None
