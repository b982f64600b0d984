"""Machine facts, live delays and native benchmarks, as plain dicts and lists. For the main interpreter."""

from collections.abc import Callable
from typing import Any, Literal, TypedDict, final, type_check_only

from ticketlock.monitor.raw import Raw, RawEvent, RawProcess

__all__ = [
    "SegmentReader",
    "bench_check",
    "bench_locks",
    "bench_order",
    "bench_parse_lock",
    "bench_round",
    "delays",
    "machine",
    "order_inversions",
    "own_segment",
    "set_delay_watch",
    "set_order",
    "set_sites",
    "telemetry",
]

@type_check_only
class _Hypervisor(TypedDict):
    present: bool
    vendor: str | None
    signature: str | None
    source: str

@type_check_only
class _Cpus(TypedDict):
    online: int
    affinity: int
    # The control group's limit, in CPUs.
    quota: float | None
    # At least 1.
    usable: int

@type_check_only
class _Build(TypedDict):
    version: str
    profile: str
    target: str
    rustc: str
    debug_assertions: bool
    features: list[str]
    pyo3: str

@type_check_only
class _Machine(TypedDict):
    hypervisor: _Hypervisor
    # Largest delay, in policy units.
    delay_cap: int
    # One spin hint, in nanoseconds.
    pause_ns: float
    # Spin hints that make one policy unit (4 ns), at least 1.
    spins_per_unit: int
    # A guest cannot see whether its host turned them on.
    pause_loop_exits: Literal["unknown"]
    membarrier: str
    cpus: _Cpus
    build: _Build

@type_check_only
class _DelayEvent(TypedDict):
    # Id of the lock.
    lock: int
    # Both in policy units.
    delay: float
    previous_max: float
    # The thread that waited.
    native_id: int
    # Filename, line and qualified name, outermost first; the last one waited. At most 64.
    traceback: list[tuple[str, int, str]]

@type_check_only
class _LockInfo(TypedDict):
    # The identifier, N standing for the parameter.
    pattern: str
    family: Literal["ticket", "tas", "queue", "mutex"]
    # Serves waiters in the order of their arrival.
    fair: bool
    # Waiters keep their CPU.
    spins: bool
    # What N may be, None where there is none.
    parameter: str | None
    # Whether this platform has it.
    available: bool
    try_lock: bool
    timed: bool
    # One line for humans.
    about: str

@type_check_only
class _NamedLock(_LockInfo):
    # The identifier in its one spelling.
    id: str

@type_check_only
class _Switches(TypedDict):
    voluntary: int
    involuntary: int

@type_check_only
class _Waits(TypedDict):
    # Lowest, highest and count of each bucket that is not empty, in nanoseconds.
    histogram: list[tuple[int, int, int]]
    max_ns: int
    sum_ns: int
    count: int

@type_check_only
class _RunLengths(TypedDict):
    # Length and number of runs; long ones are grouped under the lowest length of their bucket.
    histogram: list[tuple[int, int]]
    longest: int
    mean: float
    runs: int

@type_check_only
class _PairNs(TypedDict):
    net: float
    gross: float
    loop: float

@type_check_only
class _RoundResult(TypedDict):
    status: Literal["ok", "invalid", "partial"]
    # Why the figures may not be used.
    why: str | None
    # From the first thread's start to the last one's end.
    seconds: float
    # Per thread.
    acquisitions: list[int]
    # Per thread; these four are None where the system does not say.
    cpu_s: list[float] | None
    process_cpu_s: float | None
    steal_s: float | None
    context_switches: _Switches | None
    # Mode "waits".
    wait: _Waits | None
    run_length: _RunLengths | None
    overtakes: int | None
    # Acquisitions among which the overtakes were counted.
    overtakes_examined: int | None
    # The longest time that one thread kept re-acquiring while others waited.
    monopoly_ns: int | None
    # Acquisitions of each thread in each whole window of 100 ms.
    windows: list[list[int]] | None
    # Preset "uncontended".
    pair_ns: _PairNs | None
    # Preset "fairness".
    cycles: int | None
    cycles_unit: Literal["tsc", "ns"]
    # Figures of one preset only.
    extra: dict[str, float | list[float]]

@type_check_only
class _Telemetry(TypedDict):
    # How other processes find it.
    state: Literal["memfd", "file", "off"]
    # Why not at all.
    why: str | None
    # Of the file.
    path: str | None
    # Whether locks note where they are made.
    sites: bool

@type_check_only
class _Pair(TypedDict):
    # Ids of the lock held and of the one waited for; numbers of the sites that took them, None if unknown.
    first: int
    then: int
    first_site: int | None
    then_site: int | None
    ident: int

@type_check_only
class _Inversion(_Pair):
    # The first step of the way back.
    back: _Pair

@final
class SegmentReader:
    """Reads what a process's locks report, through a descriptor, which is duplicated. Threads may share one.

    Raises ValueError if the bytes behind it are none of ours, or of another major version; OSError if they cannot be read.
    """

    def __new__(cls, fd: int, /) -> SegmentReader: ...
    def process(self) -> RawProcess:
        """Who reports."""

    def sample(self, limit: int = 1000) -> Raw:
        """Everything, but of the locks at most `limit`: those that somebody waits for, then those with most waiting since the
        last call.
        """

    def events(self, since: int, limit: int = 65536) -> list[RawEvent]:
        """The waits of 5 us and more that ended, from number `since` on, oldest first, at most `limit`.

        Those that the ring has lost are missing.
        """

def own_segment() -> SegmentReader | None:
    """A reader of this process's own segment; None if there is none to read."""

def telemetry() -> _Telemetry:
    """How this process's locks report."""

def set_order(on: bool, /) -> None:
    """Whether locks made from now on note in which order threads take them."""

def order_inversions() -> list[_Inversion]:
    """Locks that were taken in both orders, at most 256, oldest first."""

def set_sites(on: bool, /) -> None:
    """Whether locks made from now on note where they are made, and report from the start."""

def machine() -> _Machine:
    """What decides how a lock behaves here, and how this library was built. The first call calibrates the pause (some us)."""

def delays() -> list[tuple[int, int, int, int, float, int, int]]:
    """The tuned delays of all live threads of this process, read while they run.

    One tuple each: (native_id, lock, generation, slot, delay, hits, collisions), the delay in policy units. A delay that a
    thread shares among its locks has slot -1 and lock 0.
    """

def set_delay_watch(callback: Callable[[_DelayEvent], object] | None, /) -> None:
    """Call `callback` for every delay that outgrew 4/3 of the largest that its thread had reported; None switches off.

    It runs in the thread that releases, right after the release of that lock; that thread may hold others. What it raises
    goes to `sys.unraisablehook`; what it waits for itself is not reported. Only waits of `TicketLock` objects are.

    Raises TypeError for what is no callable.
    """

def bench_locks() -> list[_LockInfo]:
    """Every lock that can be named, also those that this platform lacks."""

def bench_parse_lock(lock: str, /) -> _NamedLock:
    """What is known of a lock. Raises ValueError, naming what is accepted, for an unknown one."""

def bench_order(seed: int, cells: int, rounds: int, /) -> list[list[int]]:
    """A random permutation of the cells for every round; the same for the same seed (0 to 2**64 - 1)."""

def bench_round(spec: dict[str, Any], /) -> _RoundResult:
    """Run one round of one cell on native threads, detached from the interpreter.

    `spec`: preset, lock, threads, hold_ns, think_ns, seconds, iterations, lock_count, cpus, mode, seed, cap, emulated_cpus,
    line. The first two must be there.

    Signals are handled every 50 ms; one whose handler raises (KeyboardInterrupt) ends the round, and what it raised is
    raised here. Raises ValueError or TypeError for a round that cannot be run as asked, RuntimeError when it broke off.
    """

def bench_check(lock: str, threads: int, iterations: int, /) -> None:
    """Check that a lock excludes: `threads` threads take it `iterations` times together.

    Raises RuntimeError, saying what is wrong with the lock; ValueError for a lock or a number of threads that is not there.
    """
