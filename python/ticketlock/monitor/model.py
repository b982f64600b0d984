"""What a reader of the monitor thinks in: a snapshot, made of one reading and an earlier one to count from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .raw import Kind, RawProcess, State


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits that ended, in ns. Quantiles are the upper bounds of power-of-two classes, cut at `max`; None without a wait.

    `max` is exact if the interval saw the longest wait of all so far; otherwise nobody knows the longest of the interval, and
    `max` is the least that it cannot exceed. Item i of `log2` counts waits of 2**i up to 2**(i+1) ns.
    """

    count: int
    sum: int
    max: int | None
    p50: int | None
    p90: int | None
    p99: int | None
    p999: int | None
    log2: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Blame:
    """A line that waits are charged to, with its share (0 to 1) of the waiting time that was sampled for its lock."""

    site: str
    function: str
    samples: int
    share: float


@dataclass(frozen=True, slots=True)
class LockRow:
    """One lock, or all locks of a site that are gone (`id` None, `retired` their number)."""

    id: int | None
    name: str | None
    kind: Kind
    # "path:line", or None if nobody looked.
    site: str | None
    internal: bool
    retired: int
    # In the interval; None for an embedded lock.
    acquisitions: int | None
    contended: int
    # Sum of waits in the interval over its length: 2.5 means that two and a half threads waited for it on average.
    wait_share: float
    waits: Waits
    parks: int
    timeouts: int
    hand_overs: int
    # Ident and name of the thread that holds it. `abandoned`: it holds the lock, and has ended.
    owner: int | None
    owner_name: str | None
    abandoned: bool
    waiters: int
    waiters_max: int
    holder_sites: tuple[Blame, ...]
    waiter_sites: tuple[Blame, ...]

    @property
    def contended_share(self) -> float | None:
        """Of its acquisitions, those that waited; None without any, or where they are not counted."""
        return self.contended / self.acquisitions if self.acquisitions else None


@dataclass(frozen=True, slots=True)
class DelayCell:
    """One tuned delay of a thread."""

    lock: int
    lock_name: str
    # Policy units (4 ns each).
    delay: float
    hits: int
    collisions: int
    spin_score: int


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """One thread that has waited, or that others waited for."""

    ident: int
    native_id: int
    name: str | None
    state: State
    # Id of a lock, how it is called, and for how long so far.
    waiting_on: int | None
    waiting_on_name: str | None
    waiting_ns: int | None
    waits: int
    wait_ns_sum: int
    parks: int
    polls: int
    delays: tuple[DelayCell, ...]
    recent_waits_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cycle:
    """Threads each of which waits for a lock that the next one holds, the last one's held by the first. Idents and lock ids."""

    threads: tuple[int, ...]
    locks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SiteRow:
    """All locks that one line created, those that are gone included."""

    site: str
    function: str
    internal: bool
    created: int
    live: int
    acquisitions: int
    contended: int
    wait_share: float
    waits: Waits


@dataclass(frozen=True, slots=True)
class Totals:
    """Over all locks."""

    locks: int
    acquisitions: int
    contended: int
    wait_share: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What went on between two readings, and how things stood at the later one."""

    process: RawProcess
    at_ns: int
    interval_ns: int
    # By wait_share, largest first.
    locks: tuple[LockRow, ...]
    sites: tuple[SiteRow, ...]
    threads: tuple[ThreadRow, ...]
    cycles: tuple[Cycle, ...]
    # What found no room, by what it was, without the zeros.
    dropped: dict[str, int]
    totals: Totals


def display_name(row: LockRow) -> str:
    """How a lock is called: its name, or else its kind with the file and line that created it, `<Lock> pool.py:31`.

    Locks that are gone have lost the names given to them: `<Lock> pool.py:31 (40 gone)`. The text is the program's own, not made
    safe for a terminal.
    """
    if row.name:
        return f"{row.name} ({row.retired} gone)" if row.id is None else row.name
    name = "<lock>" if row.kind == "unknown" else f"<{row.kind}>"
    if row.site is not None:
        name += " " + short_site(row.site)
    return f"{name} ({row.retired} gone)" if row.id is None else name


def lock_name_of_id(lock: int) -> str:
    """How a lock is called that a reading mentions without listing it."""
    return f"#{lock}"


def short_site(site: str) -> str:
    """A site without its folders."""
    return site.replace("\\", "/").rpartition("/")[2] or site
