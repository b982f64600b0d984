"""One reading of a process's segment, as `ticketlock._lab.SegmentReader.sample()` gives it: plain dicts and lists.

Counters count from the process's start. Times are nanoseconds of the system's monotonic clock.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Kind = Literal["Lock", "RLock", "TicketLock", "Condition", "Semaphore", "Event", "Barrier", "Queue", "native", "unknown"]
State = Literal["running", "spinning", "parked"]


class Counters(TypedDict):
    """What a lock counted, or all locks that a site created and that are gone."""

    # None for an embedded lock, which counts contended acquisitions only.
    acquisitions: int | None
    contended: int
    # Waiting time in all, also of waits that were given up.
    wait_ns_sum: int
    wait_ns_max: int
    # Item i counts waits of 2**i up to 2**(i+1) ns; up to the last that is not 0.
    wait_ns_log2: list[int]
    parks: int
    timeouts: int
    hand_overs: int


class RawLock(TypedDict):
    """A live lock. `id` is never used again in its process."""

    id: int
    name: str | None
    kind: Kind
    # Index into `sites`, None if nobody looked where it was created.
    site: int | None
    # Ident of the thread that holds it, None if it is free (or its kind does not say).
    owner: int | None
    # Threads waiting now, and the most at one time.
    waiters: int
    waiters_max: int
    counters: Counters


class RawSite(TypedDict):
    """A line of code: where locks were created, or where a thread waited or released."""

    path: str
    line: int
    function: str
    # In the standard library or in ticketlock itself; or these made locks for themselves when this line called them.
    internal: bool
    # Locks created here so far, and those still in `locks` or dropped from it.
    created: int
    live: int
    # Those that are gone, and those that found no room: what they were ("unknown": several kinds), the most waiters of one.
    retired_kind: NotRequired[Kind]
    retired_waiters_max: NotRequired[int]
    retired: Counters


class RawDelay(TypedDict):
    """A slot of a thread's delay table."""

    lock: int
    # In policy units (4 ns each).
    delay: float
    hits: int
    collisions: int
    # Positive if spinning on this lock has paid, -128 to 127.
    spin_score: int


class RawThread(TypedDict):
    """A thread that has waited, or that others waited for."""

    # As `threading.get_ident()` has it; 0 if unknown.
    ident: int
    native_id: int
    name: str | None
    state: State
    # Id of a lock.
    waiting_on: int | None
    wait_started_ns: int | None
    waits: int
    wait_ns_sum: int
    parks: int
    polls: int
    delays: list[RawDelay]
    # Its latest waits in ns, oldest first, at most 32.
    recent_waits_ns: list[int]


class RawBlame(TypedDict):
    """Where threads waited for a lock, or where its holder released it while others waited. Sampled."""

    # Id of a lock.
    lock: int
    role: Literal["waiter", "holder"]
    # Index into `sites`.
    site: int
    samples: int
    # Waits that were charged to this line.
    weight_ns: int


class RawRetiredBlame(RawBlame):
    """Likewise, of the locks of a site that are gone; `lock` is 0."""

    # Index into `sites`: the one that made them.
    of_site: int


class RawEvent(TypedDict):
    """A wait that ended, from the ring of the latest ones."""

    # Number of the event in its process; a gap means that the ring was overrun.
    sequence: int
    lock: int
    ident: int
    started_ns: int
    duration_ns: int
    outcome: Literal["acquired", "handed_over", "timed_out", "interrupted"]


class RawProcess(TypedDict):
    """Who reports."""

    pid: int
    # The pid inside its own namespace.
    inner_pid: int
    # As /proc/PID/stat has it, 0 where there is none.
    start_ticks: int
    created_ns: int
    python: str
    free_threaded: bool
    version: str
    # Whether creation sites are recorded.
    sites: bool


class RawDropped(TypedDict):
    """What found no room."""

    locks: int
    sites: int
    threads: int
    strings: int
    blames: int


class RawTotals(TypedDict):
    """Over all locks, also those that `locks` leaves out."""

    locks: int
    acquisitions: int
    contended: int
    wait_ns_sum: int


class Raw(TypedDict):
    """One reading."""

    at_ns: int
    process: RawProcess
    # Those with most waiting since the reader's last reading first, at most `limit`.
    locks: list[RawLock]
    sites: list[RawSite]
    threads: list[RawThread]
    blames: list[RawBlame]
    retired_blames: NotRequired[list[RawRetiredBlame]]
    dropped: RawDropped
    totals: RawTotals
    # Number that the next event will have.
    next_event: int
