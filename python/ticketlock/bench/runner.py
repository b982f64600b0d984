"""The loop over rounds and cells."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ticketlock._observe import describe

from . import noise, plan, summary
from .engine import Engine, Mode, RoundResult, driver_of, engine_for
from .plan import Options, Plan, PlannedCell
from .presets import default_of
from .results import Results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# An invalid round is run again this often before it counts as lost.
MOST_RERUNS = 2

# Reruns of the whole run, as a share of its rounds: on a machine that never leaves us alone they would triple its time.
MOST_RERUNS_OF_ALL = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands: before each round of a cell, and once at the end with `cell` None."""

    cell: PlannedCell | None
    mode: Mode
    round: int
    rounds: int
    done: int
    total: int
    elapsed_s: float
    eta_s: float | None
    latest_per_s: float | None


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run: `results` holds what was measured before, marked partial."""

    def __init__(self, results: Results) -> None:
        super().__init__("benchmark interrupted")
        self.results = results


def run(
    preset: str | None = None,
    *,
    driver: str | None = None,
    locks: str | Iterable[str] | None = None,
    threads: int | str | Iterable[int] | None = None,
    hold: float | str | None = None,
    think: float | str | None = None,
    seconds: float | str | None = None,
    rounds: int | str | None = None,
    seed: int | str | None = None,
    pin: str | None = None,
    lock_count: int | str | None = None,
    iterations: int | str | None = None,
    cap: int | str | Iterable[int | str] | None = None,
    line: int | str | None = None,
    aa: str | None = None,
    progress: Callable[[Progress], object] | None = None,
    stop: Callable[[], bool] | None = None,
    engine: Engine | None = None,
    command: str | None = None,
) -> Results:
    """Measure a preset and return its cells.

    `driver` is `"native"` (threads without an interpreter, the default) or `"python"`. Options left out come from the
    preset. `aa` names a lock that is measured twice: the ratio of its two cells shows what the run cannot tell apart.
    Durations are numbers of nanoseconds or text such as `"1.5us"`; `threads` and
    `locks` are sequences or text such as `"1,2,4"`. `progress` is called before every round and once at the end. When
    `stop` answers true between rounds, the results so far come back marked partial; Ctrl-C raises `Interrupted`, a
    KeyboardInterrupt that carries them.

    Raises `BadValueError` (a ValueError) before anything has run if an option cannot be used.
    """
    chosen = engine or engine_for(driver or "native")
    name = preset or default_of(driver_of(chosen))
    options = Options(
        locks=locks,
        threads=threads,
        hold=hold,
        think=think,
        seconds=seconds,
        rounds=rounds,
        seed=seed,
        pin=pin,
        lock_count=lock_count,
        iterations=iterations,
        cap=cap,
        line=line,
        aa=aa,
    )
    ready = plan.make(name, options, chosen)
    return execute(
        ready, chosen, progress=progress, stop=stop, command=command or f"ticketlock.bench.run({name!r}, driver={ready.driver!r})"
    )


def execute(
    ready: Plan,
    engine: Engine,
    *,
    progress: Callable[[Progress], object] | None = None,
    stop: Callable[[], bool] | None = None,
    command: str,
    clock: Callable[[], float] = time.monotonic,
) -> Results:
    """Run a plan."""
    run = _Run(ready, engine, progress or (lambda _: None), stop or (lambda: False), clock)
    before = noise.sample()
    interrupt: KeyboardInterrupt | None = None
    try:
        run.loop()
    except KeyboardInterrupt as raised:
        interrupt = raised
    results = run.results(command, before)
    if interrupt is not None:
        raise Interrupted(results) from interrupt
    return results


class _Run:
    """State of one run."""

    def __init__(
        self,
        ready: Plan,
        engine: Engine,
        progress: Callable[[Progress], object],
        stop: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self.plan = ready
        self.engine = engine
        self.progress = progress
        self.stop = stop
        self.clock = clock
        self.started = clock()
        self.records = [summary.Record() for _ in ready.cells]
        self.hopeless: dict[int, str] = {}
        self.reruns_left = ready.slices * MOST_RERUNS_OF_ALL
        self.done = 0
        self.latest: float | None = None
        self.complete = False

    def loop(self) -> None:
        """Every pass over every cell, until the end or a request to stop."""
        # Seeds of the rounds' think times: every lock of a round gets the same one.
        seeds = random.Random(self.plan.seed)
        for one in plan.passes(self.plan, self.engine):
            seed = seeds.getrandbits(64)
            for index in one.order:
                if self.stop():
                    return
                self._report(self.plan.cells[index], one)
                result = self._round(index, one.mode, seed)
                self.records[index].add(one.mode, result)
                self.done += 1
                self.latest = None if result is None else summary.per_second(result)
        self.complete = True
        self._report(None, None)

    def _round(self, index: int, mode: Mode, seed: int) -> RoundResult | None:
        """One slice of a cell: the round, and its reruns while it is invalid."""
        if index in self.hopeless:
            return None
        record = self.records[index]
        for attempt in range(1 + MOST_RERUNS):
            if attempt and (self.stop() or self.reruns_left < 1):
                break
            if attempt:
                record.reruns += 1
                self.reruns_left -= 1
            try:
                result = self.engine.round(plan.spec(self.plan, self.plan.cells[index], mode, seed))
            except (ValueError, RuntimeError, OSError) as failure:
                # The harness refuses this cell; it will do so again.
                self.hopeless[index] = str(failure)
                record.reasons.append(str(failure))
                return None
            if result["status"] == "ok":
                return result
            record.reasons.append(result.get("why") or f"round {result['status']}, no reason given")
        return None

    def _report(self, cell: PlannedCell | None, one: plan.Pass | None) -> None:
        elapsed = self.clock() - self.started
        total = self.plan.slices
        rounds = self.plan.waits_rounds if one is not None and one.mode == "waits" else self.plan.rounds
        self.progress(
            Progress(
                cell=cell,
                mode="throughput" if one is None else one.mode,
                round=rounds if one is None else one.index + 1,
                rounds=rounds,
                done=self.done,
                total=total,
                elapsed_s=elapsed,
                eta_s=self._eta(elapsed),
                latest_per_s=self.latest,
            )
        )

    def _eta(self, elapsed: float) -> float | None:
        left = self.plan.slices - self.done
        if self.done:
            return elapsed / self.done * left
        return None if self.plan.iterations is not None else self.plan.seconds * left

    def results(self, command: str, before: noise.Sample) -> Results:
        """What has been measured so far."""
        ready = self.plan
        driver = driver_of(self.engine)
        return Results(
            preset=ready.preset.name,
            command=command,
            seed=ready.seed,
            machine={
                **describe(self.engine.machine()).to_json(),
                "noise": noise.verdict(before, noise.sample(), ready.usable_cpus),
            },
            cells=tuple(
                summary.cell(planned, record, ready, driver) for planned, record in zip(ready.cells, self.records, strict=True)
            ),
            partial=not self.complete,
        )
