"""The engine of the driver: Python threads, or one of them alone."""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, cast

from ticketlock.bench import noise
from ticketlock.bench.presets import SLEEP_FROM_NS

from . import checks, crew, figures, loops
from .locks import Named, find, infos

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ticketlock.bench.engine import DelayTuple, LockInfo, RoundResult, RoundSpec

    from .crew import Opening
    from .locks import LockLike

# Turns of a batch of the uncontended pair: some 20-150 us, long against the clock and short against a time slice.
BATCH = 1_000

# Largest stolen share of the CPUs, least share of what the threads could use that others left to them, and the time below
# which the resolution of 10 ms says nothing. As for native threads.
MOST_STEAL = 0.1
LEAST_LEFT = 0.8
LEAST_VISIBLE_S = 0.02


class PythonEngine:
    """Locks as Python threads use them: the interpreter's own costs and its scheduling included."""

    driver = "python"

    def __init__(self) -> None:
        from ticketlock import _lab

        self._lab: Any = _lab
        self._turn_ns: float | None = None
        self._named: dict[str, Named] = {}
        self._sound: set[str] = set()

    def machine(self) -> dict[str, Any]:
        """Describe this machine."""
        return cast("dict[str, Any]", self._lab.machine())

    def locks(self) -> Sequence[LockInfo]:
        """The kinds of locks that Python threads can use."""
        return infos()

    def parse_lock(self, lock: str, /) -> Mapping[str, Any]:
        """Check an identifier; a `module:factory` is imported and called."""
        named = self._find(lock)
        return {"id": lock, "family": named.kind.family, "fair": named.kind.fair}

    def order(self, seed: int, cells: int, rounds: int, /) -> list[list[int]]:
        """The interleaving that belongs to a seed."""
        return cast("list[list[int]]", self._lab.bench_order(seed, cells, rounds))

    def delays(self) -> Sequence[DelayTuple]:
        """The delay tables of the threads that run a round now."""
        return cast("list[DelayTuple]", self._lab.delays())

    def round(self, spec: RoundSpec, /) -> RoundResult:
        """Run one round; the first one of a lock checks that it excludes. RuntimeError for a lock that does not."""
        named = self._find(spec["lock"])
        if named.name not in self._sound:
            try:
                checks.exclusion(named.make)
            except RuntimeError as fault:
                raise RuntimeError(f"lock '{named.name}': {fault}") from None
            self._sound.add(named.name)
        before = noise.sample()
        result = _uncontended(named.make(), spec["seconds"]) if spec["preset"] == "uncontended" else self._threads(named, spec)
        return _judged(result, before, noise.sample())

    def _find(self, name: str) -> Named:
        if name not in self._named:
            self._named[name] = find(name)
        return self._named[name]

    def _threads(self, named: Named, spec: RoundSpec) -> RoundResult:
        if self._turn_ns is None:
            self._turn_ns = loops.work_turn_ns()
        body = _Round(named.make(), spec, self._turn_ns)
        finished = crew.run(spec["threads"], body, spec["seconds"], spec["cpus"])
        return _summed_up(body, finished)


class _Round(crew.Body[loops.Notes]):
    """Threads around one lock."""

    def __init__(self, lock: LockLike, spec: RoundSpec, turn_ns: float) -> None:
        self.lock = lock
        self.timed = spec["mode"] == "waits"
        self.hold_ns, self.think_ns, self.turn_ns = spec["hold_ns"], spec["think_ns"], turn_ns
        self.shared = loops.guarded()
        self.waiting = [[loops.NEVER] for _ in range(spec["threads"])]
        self.seen = [False] * spec["threads"]
        self.loads: dict[int, loops.Load] = {}
        self.warmed = [0] * spec["threads"]
        self.warm: dict[int, loops.Notes] = {}

    def prepare(self, me: int) -> None:
        hold_sleeps, think_sleeps = self.hold_ns >= SLEEP_FROM_NS, self.think_ns >= SLEEP_FROM_NS
        self.waiting[me] = [loops.NEVER]
        self.loads[me] = loops.Load(
            0 if hold_sleeps else round(self.hold_ns / self.turn_ns),
            0 if think_sleeps else round(self.think_ns / self.turn_ns),
            self.hold_ns / 1e9 if hold_sleeps else 0.0,
            self.think_ns / 1e9 if think_sleeps else 0.0,
        )

    def warm_up(self, me: int, warming: list[bool]) -> None:
        self.seen[me] = True
        if self.timed:
            self.warm[me] = warm = loops.Notes(time.perf_counter_ns(), 0)
            loops.timed(self.lock, self.shared, warming, self.loads[me], me, self.waiting, warm)
            self.warmed[me] = warm.done
        else:
            self.warmed[me] = loops.untimed(self.lock, self.shared, warming, self.loads[me])

    def work(self, me: int, running: list[bool], opening: Opening) -> loops.Notes:
        notes = loops.Notes(opening.at, opening.read)
        if not self.timed:
            notes.done = loops.untimed(self.lock, self.shared, running, self.loads[me])
            return notes
        warm = self.warm[me]
        number, arrived, served = warm.last
        if served > opening.at:
            # It was waiting when the round began: for a thread that is kept out, that wait is all there is.
            notes.waits.append(served - arrived)
            notes.numbers.append(number)
            notes.arrivals.append(arrived)
            notes.longest_monopoly = min(warm.longest_monopoly, served - opening.at)
        loops.timed(self.lock, self.shared, running, self.loads[me], me, self.waiting, notes)
        return notes

    def at_work(self) -> bool:
        return all(self.seen)

    def reading(self) -> int:
        return self.shared[loops.COUNT]


def _summed_up(body: _Round, finished: crew.Finished[loops.Notes]) -> RoundResult:
    notes, used = finished.found, finished.used
    total = sum(body.warmed) + sum(one.done for one in notes)
    if body.shared[loops.COUNT] != total:
        raise RuntimeError(f"two threads held it at once: {total} acquisitions counted {body.shared[loops.COUNT]}")
    began, ended = min(one.period[0] for one in used), max(one.period[1] for one in used)
    first_back = min(one.period[1] for one in used)
    voluntary, involuntary = ([getattr(one, name) for one in used] for name in ("voluntary", "involuntary"))
    counted = None not in voluntary and None not in involuntary
    result: dict[str, Any] = {
        "status": "ok",
        "why": None,
        "seconds": ended - began,
        "acquisitions": [one.done for one in notes],
        "cpu_s": [one.cpu_s for one in used],
        "process_cpu_s": finished.process_cpu_s,
        "context_switches": {"voluntary": sum(voluntary), "involuntary": sum(involuntary)} if counted else None,
        "extra": {},
    }
    if body.timed:
        length = round(first_back * 1e9) - notes[0].opened_at
        result |= figures.waits_result(notes, total, length)
    return cast("RoundResult", result)


def _uncontended(lock: LockLike, seconds: float) -> RoundResult:
    """Batches of pairs, of `with` blocks and of the empty loop in turn; medians leave out those that were disturbed."""
    turns, ends = range(BATCH), time.perf_counter() + seconds
    pairs, blocks, loop = [], [], []
    with crew.second_thread(), crew.no_collection():
        cpu = time.process_time()
        while True:
            pairs.append(loops.calls(lock, turns))
            blocks.append(loops.withs(lock, turns))
            loop.append(loops.empty(turns))
            if time.perf_counter() >= ends:
                break
        cpu = time.process_time() - cpu
    pair, block, nothing = (statistics.median(batches) / BATCH * 1e9 for batches in (pairs, blocks, loop))
    return {
        "status": "ok",
        "why": None,
        "seconds": sum(pairs),
        "acquisitions": [BATCH * len(pairs)],
        "process_cpu_s": cpu,
        "pair_ns": {"net": pair - nothing, "gross": pair, "loop": nothing},
        "extra": {"with_net_ns": block - nothing, "with_gross_ns": block},
    }


def _judged(result: RoundResult, before: noise.Sample, after: noise.Sample) -> RoundResult:
    """A round in which the hypervisor or other processes took the CPUs away does not count."""
    if before.steal_s is None or after.steal_s is None or before.busy_s is None or after.busy_s is None:
        return result
    cpus, wall = os.cpu_count() or 1, max(after.clock_s - before.clock_s, 1e-9)
    # With an interpreter lock, one thread runs at a time.
    wanted = wall * (1 if _gil_enabled() else min(len(result["acquisitions"]), cpus))
    steal, others = after.steal_s - before.steal_s, after.busy_s - before.busy_s - (result["process_cpu_s"] or 0.0)
    result["steal_s"] = steal
    left = (wall * cpus - others) / wanted
    if steal >= LEAST_VISIBLE_S and steal / wanted > MOST_STEAL:
        result["status"], result["why"] = "invalid", f"the hypervisor took {steal / wanted:.0%} of the CPU time"
    elif others >= LEAST_VISIBLE_S and left < LEAST_LEFT and not result.get("pair_ns"):
        # Medians of batches do without the moments that others ran.
        result["status"], result["why"] = "invalid", f"other processes left only {max(left, 0.0):.0%} of the CPU time"
    return result


def _gil_enabled() -> bool:
    enabled: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    return enabled
