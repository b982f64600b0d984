"""What each preset measures, and its defaults, by driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Preset:
    """A named experiment.

    Threads run in the numbers `threads`, and in `multiples` of the usable CPUs; `threads_allowed` is None where any number
    makes sense. A round ends after `seconds`, and after `iterations` acquisitions if that comes first. Every `waits_every`-th
    throughput round, the first included, is followed by one that times every wait; 0 for none. `takes` names the load
    options that mean something here.
    """

    name: str
    summary: str
    locks: tuple[str, ...]
    reference: str
    seconds: float
    rounds: int
    takes: frozenset[str]
    threads: tuple[int, ...] = ()
    multiples: tuple[int, ...] = ()
    threads_allowed: tuple[int, int] | None = None
    hold_ns: int = 0
    think_ns: int = 0
    iterations: int | None = None
    waits_every: int = 0


# Hold and think of `semaphore` are those that the simulator's 24-CPU semaphore program was fitted with, so that a
# measured and a predicted figure speak of the same load. Six lengths of the line, 54 cells, 5 throughput and 3 waits
# rounds of 0.15 s each: a little over a minute.
SEMAPHORE = Preset(
    name="semaphore",
    summary="a semaphore's internal lock around a short section, 1 to 24 threads (the headline test)",
    locks=("lock", "ticket", "proportional:50", "auto", "mcs", "tas-retry", "std", "parking_lot", "pthread"),
    reference="ticket",
    threads=(1, 2, 4, 8, 16, 24),
    hold_ns=167,
    think_ns=209,
    seconds=0.15,
    rounds=5,
    waits_every=2,
    takes=frozenset({"threads", "hold", "think", "iterations", "lock_count", "cap"}),
)

UNCONTENDED = Preset(
    name="uncontended",
    summary="what one lock and unlock pair costs while nobody competes, the empty loop subtracted",
    locks=("lock", "ticket", "auto", "mcs", "tas-retry", "std", "parking_lot", "parking_lot-fair", "pthread", "pthread-spin"),
    reference="std",
    threads=(1,),
    threads_allowed=(1, 1),
    seconds=0.1,
    rounds=15,
    takes=frozenset({"lock_count"}),
)

# With an empty section the share of overtakes depends on where the host put the two CPUs more than on the lock (measured
# ratios between a fair and an unfair lock from 4 to 80; over 600 in every run with 100 ns).
FAIRNESS = Preset(
    name="fairness",
    summary="pinned threads on one counter: how long one keeps the lock before another gets it",
    locks=("ticket", "auto", "tas-retest", "tas-retry", "mcs", "std", "parking_lot"),
    reference="ticket",
    threads=(2,),
    threads_allowed=(2, 1024),
    hold_ns=100,
    seconds=60.0,
    iterations=1_000_000,
    rounds=5,
    waits_every=2,
    takes=frozenset({"threads", "hold", "think", "iterations", "cap"}),
)

PHANTOM = Preset(
    name="phantom",
    summary="a long line shown by two CPUs: one thread serves 23 tickets, one real waiter waits through",
    locks=("ticket", "proportional:50", "auto"),
    reference="ticket",
    threads=(2,),
    threads_allowed=(2, 2),
    seconds=0.3,
    rounds=7,
    takes=frozenset({"cap", "line"}),
)

# Hold and think: what 500 and 100 turns of an empty loop take on the machine on which the lock's limits were set (0.8 ns a
# turn). As many rounds that time every wait as rounds that time none: the figures that matter here are tails. On two CPUs 18
# cells: nine minutes.
OVERSUBSCRIBED = Preset(
    name="oversubscribed",
    summary="1, 4 and 16 threads a CPU on one lock: throughput, CPU time, the longest waits, who is kept out",
    locks=("lock", "lock:throughput", "lock:strict", "std", "parking_lot", "pthread"),
    reference="std",
    hold_ns=400,
    think_ns=80,
    seconds=1.0,
    rounds=15,
    waits_every=1,
    takes=frozenset({"threads", "hold", "think", "iterations"}),
    multiples=(1, 4, 16),
)

PRESETS = {preset.name: preset for preset in (UNCONTENDED, SEMAPHORE, FAIRNESS, PHANTOM, OVERSUBSCRIBED)}

# A hold of nothing is what programs guard most: one count is increased. The think is about what a call of a small function
# costs; without any, a thread that keeps its interpreter takes the lock back before anybody else can run.
PYTHON_OVERSUBSCRIBED = Preset(
    name="oversubscribed",
    summary="Python threads on one lock, few to many: throughput, CPU time, the longest waits, who is kept out",
    locks=("threading.Lock", "threading.RLock", "lock", "lock:throughput", "lock:strict", "rlock"),
    reference="threading.Lock",
    threads=(1, 2, 8, 32),
    think_ns=100,
    seconds=0.5,
    rounds=7,
    waits_every=1,
    takes=frozenset({"threads", "hold", "think"}),
)

PYTHON_UNCONTENDED = Preset(
    name="uncontended",
    summary="what acquire() and release(), and `with`, cost while nobody competes, the empty loop subtracted",
    locks=("threading.Lock", "threading.RLock", "lock", "lock:throughput", "lock:strict", "rlock", "ticket", "auto"),
    reference="threading.Lock",
    threads=(1,),
    threads_allowed=(1, 1),
    seconds=0.1,
    rounds=15,
    takes=frozenset(),
)

PYTHON_PRESETS = {preset.name: preset for preset in (PYTHON_UNCONTENDED, PYTHON_OVERSUBSCRIBED)}

# A Python hold or think of at least this length sleeps; a shorter one computes. A sleep gives the interpreter away, as a
# thread does that waits for a file or a network; it comes back some 60 us late, so shorter ones could not be kept.
SLEEP_FROM_NS = 100_000

DRIVERS = ("native", "python")


def presets_of(driver: str) -> Mapping[str, Preset]:
    """The presets of a driver."""
    return PYTHON_PRESETS if driver == "python" else PRESETS


def default_of(driver: str) -> str:
    """The preset that runs when none is named."""
    return PYTHON_OVERSUBSCRIBED.name if driver == "python" else SEMAPHORE.name


# K of the phantom line: with the real waiter, the 24 threads of the published figure.
PHANTOM_LINE = 23
