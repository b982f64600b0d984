"""The threads of a round: all at work before anything counts, stopped by flags, never waited for without end."""

from __future__ import annotations

import gc
import os
import threading
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

# How long threads may take to get going, and to come back once stopped.
MOST_WARM_UP_S = 2.0
PATIENCE_S = 30.0

# Sleep of the coordinator between two looks at threads that get going.
LOOK_S = 0.001

# The same during the round: rare, since it takes the interpreter from the threads that are measured.
LOOK_FOR_FAILURES_S = 0.25

T = TypeVar("T")


class Flags:
    """Flags of one thread, each a list that is emptied to lower it. Made by that thread."""

    def __init__(self) -> None:
        self.warming = [True]
        self.running = [True]


@dataclass(slots=True)
class Opening:
    """The beginning of what counts: when it was, and what the coordinator read then."""

    at: int = 0
    read: int = 0


@dataclass(frozen=True, slots=True)
class Used:
    """What one thread used: its period (`perf_counter`), CPU time, and context switches where the system says."""

    period: tuple[float, float]
    cpu_s: float
    voluntary: int | None
    involuntary: int | None


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """A finished round: what each thread brought back and used, and the CPU time of the process."""

    found: list[T]
    used: list[Used]
    process_cpu_s: float


class Body(ABC, Generic[T]):
    """What the threads of a round do. `prepare` runs in each thread before `warm_up`, which ends when `warming` is empty."""

    def prepare(self, me: int) -> None:
        """Set up."""

    def warm_up(self, me: int, warming: list[bool]) -> None:
        """Work without counting."""

    @abstractmethod
    def work(self, me: int, running: list[bool], opening: Opening) -> T:
        """Work until `running` is empty."""

    def at_work(self) -> bool:
        """Whether every thread has begun."""
        return True

    def reading(self) -> int:
        """What is to be known of the moment of the opening."""
        return 0


def run(threads: int, body: Body[T], seconds: float | None, cpus: Sequence[int], patience_s: float = PATIENCE_S) -> Finished[T]:
    """Run a body for a time, or until it ends by itself; RuntimeError for a thread that fails or does not come back."""
    crew: _Crew[T] = _Crew(threads, body, cpus)
    with no_collection():
        cpu = time.process_time()
        try:
            crew.open()
            if seconds is not None:
                crew.let_work(seconds)
                crew.stop()
            crew.wait(patience_s)
        except BaseException:
            # Ctrl-C interrupts a sleep: no thread may run on.
            crew.stop()
            crew.wait(patience_s)
            raise
        cpu = time.process_time() - cpu
    return crew.finished(cpu)


class _Crew(Generic[T]):
    def __init__(self, threads: int, body: Body[T], cpus: Sequence[int]) -> None:
        self.body = body
        self.cpus = cpus
        self.opening = Opening()
        self.barrier = threading.Barrier(threads + 1)
        self.flags: list[Flags | None] = [None] * threads
        self.results: list[tuple[T, Used] | None] = [None] * threads
        self.failures: list[str] = []
        self.threads = [
            threading.Thread(target=self._one, args=(me,), name=f"ticketlock-bench-{me}", daemon=True) for me in range(threads)
        ]

    def open(self) -> None:
        """Start all, and let the round begin when all are at work."""
        for thread in self.threads:
            thread.start()
        try:
            self.barrier.wait(PATIENCE_S)
        except threading.BrokenBarrierError:
            return
        give_up = time.monotonic() + MOST_WARM_UP_S
        while not self.body.at_work() and not self.failures and time.monotonic() < give_up:
            time.sleep(LOOK_S)
        self.opening.read = self.body.reading()
        self.opening.at = time.perf_counter_ns()
        self._lower("warming")

    def let_work(self, seconds: float) -> None:
        """Sleep through the round; a failure ends it early."""
        ends = time.monotonic() + seconds
        while not self.failures and (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_FOR_FAILURES_S))

    def stop(self) -> None:
        """End the round."""
        self.barrier.abort()
        self._lower("warming")
        self._lower("running")

    def _lower(self, flag: str) -> None:
        for one in self.flags:
            if one is not None:
                getattr(one, flag).clear()

    def wait(self, patience_s: float) -> None:
        """Until all are back."""
        give_up = time.monotonic() + patience_s
        for thread in self.threads:
            if thread.ident is not None:
                thread.join(max(0.0, give_up - time.monotonic()))
        missing = sum(thread.is_alive() for thread in self.threads)
        if missing:
            self.stop()
            self.failures.append(
                f"{missing} of {len(self.threads)} threads did not come back within {patience_s:g} s: the lock is stuck"
            )

    def finished(self, cpu_s: float) -> Finished[T]:
        """What came out of it."""
        if self.failures:
            raise RuntimeError(self.failures[0])
        back = [result for result in self.results if result is not None]
        if len(back) < len(self.threads):
            raise RuntimeError("the round was called off")
        return Finished([found for found, _ in back], [used for _, used in back], cpu_s)

    def _one(self, me: int) -> None:
        try:
            if self.cpus:
                os.sched_setaffinity(0, {self.cpus[me % len(self.cpus)]})  # of this thread
            flags = Flags()
            self.flags[me] = flags
            self.body.prepare(me)
            self.barrier.wait(PATIENCE_S)
            self.body.warm_up(me, flags.warming)
            before, began = _accounts(), time.perf_counter()
            found = self.body.work(me, flags.running, self.opening)
            ended, after = time.perf_counter(), _accounts()
            cpu, voluntary, involuntary = (
                None if one is None or other is None else one - other for one, other in zip(after, before, strict=True)
            )
            self.results[me] = (found, Used((began, ended), cpu or 0.0, _whole(voluntary), _whole(involuntary)))
        except threading.BrokenBarrierError:
            pass
        except BaseException as problem:  # noqa: BLE001 - reported by the coordinator
            self.failures.append(f"thread {me}: {type(problem).__name__}: {problem}")
            self.stop()


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _accounts() -> tuple[float | None, float | None, float | None]:
    """CPU time and context switches of this thread."""
    which: Any = getattr(resource, "RUSAGE_THREAD", None)
    if which is None:
        return (time.thread_time(), None, None)
    usage = resource.getrusage(which)
    return (time.thread_time(), usage.ru_nvcsw, usage.ru_nivcsw)


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage collection meanwhile: it would fall on whichever lock is being measured."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


@contextmanager
def second_thread() -> Iterator[None]:
    """A second thread meanwhile, asleep: with one thread alone some locks take short cuts."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="ticketlock-bench-asleep", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
