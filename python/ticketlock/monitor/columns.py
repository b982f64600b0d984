"""Columns of the table of locks, the orders it can have, and which locks it shows: pure functions of a snapshot."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ticketlock.cli.text import clean, duration, number

if TYPE_CHECKING:
    from collections.abc import Callable

    from .model import LockRow, Snapshot
    from .options import ViewOptions


@dataclass(frozen=True, slots=True)
class LockColumn:
    """One column. `rank`: the highest goes first when space is short, 0 always stays. `about` is its line in the help."""

    name: str
    title: str
    rank: int
    align: str
    about: str
    # Text of the cell, made safe to show; the second argument is the length of the interval in ns.
    cell: Callable[[LockRow, int], str]


def percent(share: float | None) -> str:
    """A share of 0 to 1 (or more) as a percentage, without its sign."""
    return "-" if share is None else f"{share * 100:.1f}"


def per_second(count: int | None, interval_ns: int) -> str:
    """A count in an interval as a rate."""
    if count is None or interval_ns <= 0:
        return "-"
    rate = count * 1e9 / interval_ns
    for limit, unit, size in ((1e3, "", 1.0), (1e6, "k", 1e3), (1e9, "M", 1e6)):
        if rate < limit * 0.9995:
            return number(rate / size) + unit
    return number(rate / 1e9) + "G"


def lock_name(lock: LockRow) -> str:
    """What people call a lock: its name, else its kind; locks that are gone are counted."""
    if lock.id is None:
        return f"({lock.retired} gone)"
    return clean(lock.name) if lock.name else f"<{clean(lock.kind)}>"


def owner(lock: LockRow) -> str:
    """Who holds it. An abandoned one is held by a thread that has ended."""
    if lock.owner is None:
        return "-"
    name = clean(lock.owner_name) if lock.owner_name else str(lock.owner)
    return f"{name} (ended)" if lock.abandoned else name


def site(lock: LockRow) -> str:
    """Where it was created, without the folders."""
    return "-" if lock.site is None else clean(lock.site).replace("\\", "/").rsplit("/", 1)[-1]


_ALL = (
    LockColumn(
        "wait",
        "wait%",
        0,
        ">",
        "share of the time that threads waited for it, all threads together: 100 is one thread all the time",
        lambda lock, _: percent(lock.wait_share),
    ),
    LockColumn("lock", "lock", 0, "<", "its name, else its kind", lambda lock, _: lock_name(lock)),
    LockColumn("site", "created at", 2, "<", "line that created it, if sites are recorded", lambda lock, _: site(lock)),
    LockColumn("kind", "kind", 12, "<", "type of lock", lambda lock, _: clean(lock.kind)),
    LockColumn("owner", "owner", 3, "<", "thread that holds it now", lambda lock, _: owner(lock)),
    LockColumn("queue", "Q", 1, ">", "threads waiting for it now", lambda lock, _: str(lock.waiters)),
    LockColumn("qmax", "Qmax", 11, ">", "most threads that waited at one time", lambda lock, _: str(lock.waiters_max)),
    LockColumn(
        "cont",
        "cont%",
        4,
        ">",
        "share of its acquisitions that had to wait; - where uncontended ones are not counted",
        lambda lock, _: percent(lock.contended_share),
    ),
    LockColumn(
        "contended",
        "cont/s",
        10,
        ">",
        "acquisitions that had to wait, per second",
        lambda lock, ns: per_second(lock.contended, ns),
    ),
    LockColumn("acq", "acq/s", 6, ">", "acquisitions per second", lambda lock, ns: per_second(lock.acquisitions, ns)),
    LockColumn("p50", "p50", 7, ">", "half of the waits were shorter", lambda lock, _: duration(lock.waits.p50)),
    LockColumn("p90", "p90", 13, ">", "nine in ten waits were shorter", lambda lock, _: duration(lock.waits.p90)),
    LockColumn("p99", "p99", 5, ">", "99 of 100 waits were shorter", lambda lock, _: duration(lock.waits.p99)),
    LockColumn("p999", "p99.9", 14, ">", "999 of 1000 waits were shorter", lambda lock, _: duration(lock.waits.p999)),
    LockColumn("max", "max", 8, ">", "longest wait", lambda lock, _: duration(lock.waits.max)),
    LockColumn(
        "parks", "parks/s", 15, ">", "times that a waiter went to sleep, per second", lambda lock, ns: per_second(lock.parks, ns)
    ),
    LockColumn("timeouts", "t/o", 16, ">", "waits that were given up", lambda lock, _: str(lock.timeouts)),
    LockColumn(
        "handovers",
        "hand/s",
        17,
        ">",
        "times that the holder passed it to a waiter directly, per second",
        lambda lock, ns: per_second(lock.hand_overs, ns),
    ),
)

# All columns by name, in the order that they are shown in.
COLUMNS: dict[str, LockColumn] = {column.name: column for column in _ALL}

# Those shown unless others are asked for.
DEFAULT_COLUMNS = ("wait", "lock", "site", "owner", "queue", "cont", "contended", "acq", "p50", "p99", "max")

# What the table can be sorted by; largest first, except for names.
SORTS: dict[str, Callable[[LockRow], tuple[float, ...] | str]] = {
    "wait": lambda lock: (lock.wait_share, lock.waits.sum),
    "p99": lambda lock: (lock.waits.p99 or 0,),
    "max": lambda lock: (lock.waits.max or 0,),
    "cont": lambda lock: (lock.contended_share or 0.0, lock.contended),
    "contended": lambda lock: (lock.contended,),
    "queue": lambda lock: (lock.waiters, lock.waiters_max),
    "acq": lambda lock: (lock.acquisitions or 0,),
    "name": lambda lock: (lock.name or f"<{lock.kind}>").casefold(),
}


def matcher(text: str) -> Callable[[LockRow], bool]:
    """A test for locks: `text` is part of name, kind, site or owner (case does not matter), or `re:` and an expression.

    Raises ValueError, saying what is wrong, for an expression that is none.
    """
    if text.startswith("re:"):
        try:
            expression = re.compile(text[3:], re.IGNORECASE)
        except (re.error, RecursionError, OverflowError) as bad:
            raise ValueError(f"not a regular expression ({bad})") from None
        return lambda lock: any(expression.search(part) for part in _searched(lock))
    wanted = text.casefold()
    return lambda lock: any(wanted in part.casefold() for part in _searched(lock))


def _searched(lock: LockRow) -> tuple[str, ...]:
    return (lock.name or f"<{lock.kind}>", lock.kind, lock.site or "", lock.owner_name or "")


def select(snapshot: Snapshot, options: ViewOptions) -> list[LockRow]:
    """The locks that the options let through, in their order. Raises ValueError for a filter that is none."""
    passes = matcher(options.filter)
    shown = [lock for lock in snapshot.locks if (options.internal or not lock.internal) and passes(lock)]
    # Stable: ties stay as the snapshot has them, by waiting.
    shown.sort(key=SORTS[options.sort], reverse=options.sort != "name")
    return shown
