"""What each preset measures, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """A named experiment.

    `threads_allowed` is None where any number of threads makes sense. A round ends after `seconds`, and after `iterations`
    acquisitions if that comes first. `takes` names the load options that mean something here.
    """

    name: str
    summary: str
    locks: tuple[str, ...]
    reference: str
    threads: tuple[int, ...]
    threads_allowed: tuple[int, int] | None
    hold_ns: int
    think_ns: int
    seconds: float
    iterations: int | None
    rounds: int
    waits: bool
    takes: frozenset[str]


# Hold and think of `semaphore` are those that the simulator's 24-CPU semaphore program was fitted with, so that a
# measured and a predicted figure speak of the same load. Six lengths of the line, 48 cells, 5 throughput and 3 waits
# rounds of 0.15 s each: a little over a minute.
SEMAPHORE = Preset(
    name="semaphore",
    summary="a semaphore's internal lock around a short section, 1 to 24 threads (the headline test)",
    locks=("ticket", "proportional:50", "auto", "mcs", "tas-retry", "std", "parking_lot", "pthread"),
    reference="ticket",
    threads=(1, 2, 4, 8, 16, 24),
    threads_allowed=None,
    hold_ns=167,
    think_ns=209,
    seconds=0.15,
    iterations=None,
    rounds=5,
    waits=True,
    takes=frozenset({"threads", "hold", "think", "iterations", "lock_count", "cap"}),
)

UNCONTENDED = Preset(
    name="uncontended",
    summary="what one lock and unlock pair costs while nobody competes, the empty loop subtracted",
    locks=("ticket", "auto", "mcs", "tas-retry", "std", "parking_lot", "parking_lot-fair", "pthread", "pthread-spin"),
    reference="std",
    threads=(1,),
    threads_allowed=(1, 1),
    hold_ns=0,
    think_ns=0,
    seconds=0.1,
    iterations=None,
    rounds=15,
    waits=False,
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
    think_ns=0,
    seconds=60.0,
    iterations=1_000_000,
    rounds=5,
    waits=True,
    takes=frozenset({"threads", "hold", "think", "iterations", "cap"}),
)

PHANTOM = Preset(
    name="phantom",
    summary="a long line shown by two CPUs: one thread serves 23 tickets in turn, one real waiter waits through them",
    locks=("ticket", "proportional:50", "auto"),
    reference="ticket",
    threads=(2,),
    threads_allowed=(2, 2),
    hold_ns=0,
    think_ns=0,
    seconds=0.3,
    iterations=None,
    rounds=7,
    waits=False,
    takes=frozenset({"cap", "line"}),
)

DEFAULT = SEMAPHORE.name

PRESETS = {preset.name: preset for preset in (UNCONTENDED, SEMAPHORE, FAIRNESS, PHANTOM)}

# K of the phantom line: with the real waiter, the 24 threads of the published figure.
PHANTOM_LINE = 23
