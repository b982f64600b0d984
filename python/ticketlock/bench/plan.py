"""From options to the list of cells and the order in which they run."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import values
from .engine import Engine, Mode, RoundSpec, driver_of
from .presets import PHANTOM_LINE, Preset, presets_of
from .topology import PIN_POLICIES, Cpu, placement, read, siblings
from .values import BadValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# A round that counts iterations ends here all the same: a lock that has collapsed would take hours.
LONGEST_COUNTED_ROUND_S = 60.0

# The machine's `fairness` with every CPU at most: beyond this many threads the table says nothing more.
MOST_FAIRNESS_THREADS = 8


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One lock under one load. `placement` names how `cpus` were chosen; `cap` is None for this machine's cap.

    Threads are pinned to `cpus` in turn; none comes twice. `again` marks the second cell of a lock that is measured twice.
    """

    preset: str
    lock: str
    threads: int
    hold_ns: int
    think_ns: int
    lock_count: int
    line: int
    cap: int | None
    cpus: tuple[int, ...]
    placement: str
    oversubscribed: bool
    again: bool = False

    @property
    def group(self) -> tuple[int, str]:
        """Cells of one group differ only in the lock and are compared with each other."""
        return (self.threads, self.placement)


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller asked for; None leaves the choice to the preset."""

    locks: str | Iterable[str] | None = None
    threads: int | str | Iterable[int] | None = None
    hold: int | float | str | None = None
    think: int | float | str | None = None
    seconds: float | str | None = None
    rounds: int | str | None = None
    seed: int | str | None = None
    pin: str | None = None
    lock_count: int | str | None = None
    iterations: int | str | None = None
    cap: int | str | Iterable[int | str] | None = None
    line: int | str | None = None
    aa: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A run that is ready to start."""

    preset: Preset
    cells: tuple[PlannedCell, ...]
    rounds: int
    waits_rounds: int
    seconds: float
    iterations: int | None
    seed: int
    usable_cpus: int
    driver: str = "native"

    @property
    def slices(self) -> int:
        """Rounds of cells in the whole run, reruns not counted."""
        return (self.rounds + self.waits_rounds) * len(self.cells)


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over all cells. `index` counts the passes of its mode."""

    mode: Mode
    index: int
    order: tuple[int, ...]


def make(preset: str, options: Options, engine: Engine, cpus: Sequence[Cpu] | None = None) -> Plan:
    """Check every option and lay out the cells; `BadValueError` before anything has run."""
    driver = driver_of(engine)
    presets = presets_of(driver)
    chosen = presets[values.choice("preset", preset, presets)]
    _refuse_foreign(chosen, options, presets)
    topology = read() if cpus is None else list(cpus)
    usable = max(1, engine.machine()["cpus"]["usable"])
    if topology:
        usable = min(usable, len(topology))
    seed = secrets.randbits(32) if options.seed is None else values.count("seed", options.seed, 0, values.MAX_SEED, "a number")
    rounds = chosen.rounds if options.rounds is None else values.count("rounds", options.rounds, 1, values.MAX_ROUNDS, "rounds")
    cells = _cells(chosen, options, engine, topology, usable)
    return Plan(
        preset=chosen,
        cells=tuple(cells),
        rounds=rounds,
        waits_rounds=-(-rounds // chosen.waits_every) if chosen.waits_every else 0,
        seconds=_seconds(chosen, options),
        iterations=_iterations(chosen, options),
        seed=seed,
        usable_cpus=usable,
        driver=driver,
    )


def passes(plan: Plan, engine: Engine) -> list[Pass]:
    """Every pass of the run: all throughput rounds, with a waits round after every `waits_every`-th, the first included.

    Both orders are random: that of the groups, and that of the locks in a group. A group runs in one go, so that the locks
    being compared meet the same disturbances.
    """
    orders = iter(engine.order(plan.seed, len(plan.cells), plan.rounds + plan.waits_rounds))
    found: list[Pass] = []
    for index in range(plan.rounds):
        found.append(Pass("throughput", index, _grouped(next(orders), plan.cells)))
        every = plan.preset.waits_every
        if every and index % every == 0:
            found.append(Pass("waits", index // every, _grouped(next(orders), plan.cells)))
    return found


def spec(plan: Plan, cell: PlannedCell, mode: Mode, seed: int) -> RoundSpec:
    """The engine's description of one round of a cell."""
    return RoundSpec(
        preset=cell.preset,
        lock=cell.lock,
        threads=cell.threads,
        hold_ns=cell.hold_ns,
        think_ns=cell.think_ns,
        seconds=plan.seconds,
        iterations=plan.iterations,
        lock_count=cell.lock_count,
        cpus=list(cell.cpus),
        mode=mode,
        seed=seed,
        cap=cell.cap,
        emulated_cpus=None,
        line=cell.line,
    )


def _grouped(order: Iterable[int], cells: Sequence[PlannedCell]) -> tuple[int, ...]:
    groups: dict[tuple[int, str], list[int]] = {}
    for index in order:
        groups.setdefault(cells[index].group, []).append(index)
    return tuple(index for group in groups.values() for index in group)


def _refuse_foreign(preset: Preset, options: Options, presets: Mapping[str, Preset]) -> None:
    for name in ("threads", "hold", "think", "lock_count", "iterations", "cap", "line"):
        value = getattr(options, name)
        if value is not None and name not in preset.takes:
            if name == "threads" and preset.threads_allowed is not None:
                continue  # the range check below gives the better message
            users = ", ".join(other.name for other in presets.values() if name in other.takes)
            having = f"a preset that has this option ({users})" if users else "another driver"
            raise BadValueError(name, value, f"it only with {having}; {preset.name} has not")


def _seconds(preset: Preset, options: Options) -> float:
    if options.seconds is None:
        return preset.seconds if options.iterations is None else max(preset.seconds, LONGEST_COUNTED_ROUND_S)
    return values.seconds("seconds", options.seconds)


def _iterations(preset: Preset, options: Options) -> int | None:
    if options.iterations is not None:
        if options.lock_count not in (None, 1, "1"):
            raise BadValueError(
                "iterations", _shown(options.iterations), "seconds instead: iterations are counted on one lock only"
            )
        return values.count("iterations", options.iterations, 1, values.MAX_ITERATIONS, "iterations of a round")
    return None if options.seconds is not None else preset.iterations


def _cells(preset: Preset, options: Options, engine: Engine, topology: Sequence[Cpu], usable: int) -> list[PlannedCell]:
    hold = preset.hold_ns if options.hold is None else values.duration_ns("hold", options.hold)
    think = preset.think_ns if options.think is None else values.duration_ns("think", options.think)
    lock_count = (
        1 if options.lock_count is None else values.count("lock_count", options.lock_count, 1, values.MAX_LOCK_COUNT, "locks")
    )
    line = PHANTOM_LINE if options.line is None else values.count("line", options.line, 1, values.MAX_LINE, "tickets")
    cells = []
    for threads, label, cpus in _loads(preset, options, topology, usable, driver_of(engine)):
        for lock, cap, again in _locks(preset, options, engine):
            cells.append(
                PlannedCell(
                    preset=preset.name,
                    lock=lock,
                    threads=threads,
                    hold_ns=hold,
                    think_ns=think,
                    lock_count=lock_count,
                    line=line if preset.name == "phantom" else 0,
                    cap=cap,
                    cpus=tuple(dict.fromkeys(cpus)),
                    placement=label,
                    oversubscribed=threads > usable,
                    again=again,
                )
            )
    return cells


def _locks(preset: Preset, options: Options, engine: Engine) -> list[tuple[str, int | None, bool]]:
    """Locks with their delay caps (only a lock that tunes a delay has one), and the lock that is measured twice."""
    family = "ticket" if preset.name == "phantom" else None
    if options.locks is None:
        missing = {info["pattern"] for info in engine.locks() if not info["available"]}
        names = tuple(name for name in preset.locks if name not in missing)
    else:
        names = values.locks("locks", options.locks, engine, family)
    if options.cap is not None:
        caps = values.caps("cap", options.cap)
    elif preset.name == "phantom" and engine.machine()["delay_cap"] != values.NATIVE_CAP_UNITS:
        caps = (None, values.NATIVE_CAP_UNITS)
    else:
        caps = (None,)
    twice = () if options.aa is None else values.locks("aa", options.aa, engine, family)
    return [
        (name, cap, again)
        for name in dict.fromkeys((*names, *twice))
        for cap in (caps if name.startswith("auto") else (None,))
        for again in ((False, True) if name in twice else (False,))
    ]


def _loads(
    preset: Preset, options: Options, topology: Sequence[Cpu], usable: int, driver: str
) -> list[tuple[int, str, list[int]]]:
    """Thread counts with the name of their placement and the CPU of each thread."""
    policy = None if options.pin is None else values.choice("pin", options.pin, PIN_POLICIES)
    if policy not in (None, "none") and not topology:
        raise BadValueError("pin", str(policy), "none: this platform cannot pin threads")
    counts = _thread_counts(preset, options, usable)
    if preset.name == "fairness" and policy is None and options.threads is None:
        return _fairness_loads(topology, usable)
    default = "cores" if preset.name in ("fairness", "phantom") else "none" if driver == "python" else "spread"
    found = []
    for threads in counts:
        # More threads than CPUs are left to the scheduler unless a placement was asked for; so are Python threads, which
        # programs do not pin.
        chosen = policy or (default if threads <= usable or preset.name == "fairness" else "none")
        cpus = placement(chosen, threads, topology)
        if policy is None and chosen == "cores" and len(set(cpus)) < min(threads, usable):
            # Too few cores for one each.
            chosen, cpus = "spread", placement("spread", threads, topology)
        found.append((threads, chosen if cpus else "none", cpus))
    return found


def _thread_counts(preset: Preset, options: Options, usable: int) -> tuple[int, ...]:
    if options.threads is None:
        multiples = (min(multiple * usable, values.MAX_THREADS) for multiple in preset.multiples)
        return tuple(dict.fromkeys((*preset.threads, *multiples)))
    counts = values.thread_counts("threads", options.threads)
    if preset.threads_allowed is not None:
        low, high = preset.threads_allowed
        if not all(low <= threads <= high for threads in counts):
            accepted = f"{low}" if low == high else f"thread counts from {low} to {high}"
            raise BadValueError("threads", _shown(options.threads), f"{accepted} with preset {preset.name}")
    return counts


def _fairness_loads(topology: Sequence[Cpu], usable: int) -> list[tuple[int, str, list[int]]]:
    """Two threads on two cores, two on the siblings of one core, and one on every CPU: what the machine has of them."""
    pair = siblings(topology)
    apart = placement("cores", 2, topology)
    loads: list[tuple[int, str, list[int]]] = []
    if len(set(apart)) == 2 or pair is None:
        loads.append((2, "cores" if apart else "none", apart))
    if pair is not None:
        loads.append((2, "siblings", pair))
    if usable > 2 and len(topology) > 2:
        threads = min(usable, len(topology), MOST_FAIRNESS_THREADS)
        loads.append((threads, "spread", placement("spread", threads, topology)))
    return loads


def _shown(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
