"""The seam between the benchmark and what runs a round: a protocol, and the native engine behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, cast

from . import values
from .presets import DRIVERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Mode = Literal["throughput", "waits"]


class RoundSpec(TypedDict):
    """One round of one cell, as the engine takes it.

    The round ends after `seconds`, and after `iterations` acquisitions if that comes first. Threads are pinned to `cpus` in
    turn, none of which comes twice.
    """

    preset: str
    lock: str
    threads: int
    hold_ns: int
    think_ns: int
    seconds: float
    iterations: int | None
    lock_count: int
    cpus: list[int]
    mode: Mode
    seed: int
    cap: int | None
    emulated_cpus: int | None
    line: int


class Switches(TypedDict):
    """Context switches of the threads of a round."""

    voluntary: int
    involuntary: int


class WaitCounts(TypedDict):
    """Waits of a round: buckets of [low, high) nanoseconds with their counts, and exact figures."""

    histogram: list[tuple[float, float, int]]
    max_ns: float
    sum_ns: float
    count: int


class RunCounts(TypedDict):
    """Runs of consecutive acquisitions by one thread."""

    histogram: list[tuple[int, int]]
    longest: int
    mean: float
    runs: int


class RoundResult(TypedDict, total=False):
    """What a round measured; a key is missing or None where it was not measured.

    `monopoly_ns` is the longest time that one thread kept re-acquiring while others waited, `windows` the acquisitions of
    each thread in each whole window of 100 ms.
    """

    status: Literal["ok", "invalid", "partial"]
    why: str | None
    seconds: float
    acquisitions: list[int]
    cpu_s: list[float] | None
    process_cpu_s: float | None
    steal_s: float | None
    context_switches: Switches | None
    wait: WaitCounts | None
    run_length: RunCounts | None
    overtakes: int | None
    overtakes_examined: int | None
    monopoly_ns: float | None
    windows: list[list[int]] | None
    pair_ns: dict[str, float] | None
    cycles: int | None
    cycles_unit: str | None
    extra: dict[str, Any]


class LockInfo(TypedDict):
    """What an engine says of a kind of lock. In `pattern`, N stands for the `parameter`."""

    pattern: str
    family: str
    fair: bool
    parameter: str | None
    available: bool
    about: str


DelayTuple = tuple[int, int, int, int, float, int, int]


class Engine(Protocol):
    """Runs rounds. The native one drives real threads; tests drive the benchmark with one that answers from a script."""

    def machine(self) -> dict[str, Any]:
        """Describe the machine, as `ticketlock._lab.machine` does."""
        ...

    def locks(self) -> Sequence[LockInfo]:
        """Every lock identifier that `round` takes."""
        ...

    def parse_lock(self, lock: str, /) -> Mapping[str, Any]:
        """Describe the lock, `family` included; raise ValueError, saying what is accepted, for an unknown identifier."""
        ...

    def order(self, seed: int, cells: int, rounds: int, /) -> list[list[int]]:
        """A random permutation of the cells for every round."""
        ...

    def round(self, spec: RoundSpec, /) -> RoundResult:
        """Run one round; KeyboardInterrupt ends it early."""
        ...

    def delays(self) -> Sequence[DelayTuple]:
        """The delay tables of living threads; called from another thread while a round runs."""
        ...


def driver_of(engine: Engine) -> str:
    """The driver of an engine; one that does not say runs native threads."""
    driver: str = getattr(engine, "driver", "native")
    return driver


def engine_for(driver: str) -> Engine:
    """The engine of a driver."""
    if values.choice("driver", driver, DRIVERS) == "python":
        from .python import PythonEngine

        return PythonEngine()
    return NativeEngine()


class NativeEngine:
    """Real threads on this machine, without the interpreter."""

    driver = "native"

    def __init__(self) -> None:
        from ticketlock import _lab

        self._lab: Any = _lab

    def machine(self) -> dict[str, Any]:
        """Describe this machine."""
        return cast("dict[str, Any]", self._lab.machine())

    def locks(self) -> Sequence[LockInfo]:
        """The lock identifiers of this build."""
        return cast("list[LockInfo]", self._lab.bench_locks())

    def parse_lock(self, lock: str, /) -> Mapping[str, Any]:
        """Check an identifier."""
        return cast("Mapping[str, Any]", self._lab.bench_parse_lock(lock))

    def order(self, seed: int, cells: int, rounds: int, /) -> list[list[int]]:
        """The interleaving that belongs to a seed."""
        return cast("list[list[int]]", self._lab.bench_order(seed, cells, rounds))

    def round(self, spec: RoundSpec, /) -> RoundResult:
        """Run one round detached from the interpreter."""
        return cast("RoundResult", self._lab.bench_round(dict(spec)))

    def delays(self) -> Sequence[DelayTuple]:
        """The delay tables of the threads that run a round now."""
        return cast("list[DelayTuple]", self._lab.delays())
