"""What this machine is, and what the backoff of this process has learned: typed views of the native module."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from . import _lab
from ._watch import Watch


@dataclass(frozen=True, slots=True)
class Hypervisor:
    """Whether a hypervisor runs this machine, and how we know."""

    present: bool
    vendor: str | None
    signature: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Cpus:
    """CPUs of the machine and of this process. `quota` is the control group's limit in CPUs, None without one."""

    online: int
    affinity: int
    quota: float | None
    usable: int


@dataclass(frozen=True, slots=True)
class Python:
    """The interpreter that loaded ticketlock."""

    version: str
    implementation: str
    free_threaded: bool
    gil_enabled: bool


@dataclass(frozen=True, slots=True)
class System:
    """Operating system and processor, None where the platform does not say."""

    os: str
    release: str
    architecture: str
    cpu_model: str | None


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that decides how a lock behaves here. `delay_cap` counts policy units, `pause_ns` is one spin hint."""

    hypervisor: Hypervisor
    delay_cap: int
    pause_ns: float
    spins_per_unit: int
    pause_loop_exits: str
    membarrier: str
    cpus: Cpus
    python: Python
    system: System
    build: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """This machine as the plain object of `ticketlock info --json`, without its `schema`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DelayRow:
    """One tuned delay of one living thread.

    `lock` and `slot` are None for a delay that the thread shares among all its locks. `thread` is the Python name of the
    thread, None for a thread that Python did not start. `delay` is in policy units.
    """

    thread: str | None
    native_id: int
    lock: int | None
    generation: int
    slot: int | None
    delay: float
    hits: int
    collisions: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a traceback."""

    filename: str
    lineno: int
    name: str


@dataclass(frozen=True, slots=True)
class DelayEvent:
    """A delay outgrew 4/3 of the largest that its thread had seen. `traceback` ends with the call that waited."""

    lock: int
    delay: float
    previous_max: float
    native_id: int
    thread: str | None
    traceback: tuple[Frame, ...]

    def format(self) -> str:
        """The event as a few lines of text: what happened, then the traceback."""
        who = self.thread or f"thread {self.native_id}"
        head = f"{who}: delay of lock {self.lock} grew to {self.delay:.2f} units (largest before: {self.previous_max:.2f})"
        return "\n".join([head, *(f'  File "{f.filename}", line {f.lineno}, in {f.name}' for f in self.traceback)])


DelayCallback = Callable[[DelayEvent], object]


def machine() -> Machine:
    """Describe this machine: hypervisor, delay cap, pause cost, CPUs, interpreter and build."""
    return describe(_lab.machine())


def describe(native: Mapping[str, Any]) -> Machine:
    """Complete the native module's description with what only Python knows."""
    return Machine(
        hypervisor=Hypervisor(**_fields(Hypervisor, native["hypervisor"])),
        delay_cap=native["delay_cap"],
        pause_ns=native["pause_ns"],
        spins_per_unit=native["spins_per_unit"],
        pause_loop_exits=native["pause_loop_exits"],
        membarrier=native["membarrier"],
        cpus=Cpus(**_fields(Cpus, native["cpus"])),
        python=_python(),
        system=_system(),
        build=dict(native["build"]),
    )


def delays() -> list[DelayRow]:
    """The tuned delays of every living thread of this process, by thread and slot."""
    names = thread_names()
    rows = [
        DelayRow(
            thread=names.get(native_id),
            native_id=native_id,
            lock=lock if slot >= 0 else None,
            generation=generation,
            slot=slot if slot >= 0 else None,
            delay=delay,
            hits=hits,
            collisions=collisions,
        )
        for native_id, lock, generation, slot, delay, hits, collisions in _lab.delays()
    ]
    return sorted(rows, key=lambda row: (row.native_id, -1 if row.slot is None else row.slot))


def thread_names() -> dict[int, str]:
    """Names of the Python threads of this process by native id."""
    return {thread.native_id: thread.name for thread in threading.enumerate() if thread.native_id is not None}


_WATCH: Watch[DelayEvent] = Watch("ticketlock-watch")


def on_delay_watch(callback: DelayCallback | None) -> DelayCallback | None:
    """Call `callback` whenever a delay outgrows 4/3 of its thread's largest so far; None switches the watch off.

    A report is made after the lock is released, with the traceback of the call that waited. The callback runs in a thread
    of its own (`ticketlock-watch`), never with a lock of ours held, so a slow one delays no waiter; what it raises goes to
    `threading.excepthook`, and what it waits for itself is not reported. Returns the callback that was set before. A forked
    child goes on watching.
    """
    if callback is not None and not callable(callback):
        raise TypeError(f"on_delay_watch: expected a callable or None, got {type(callback).__name__}")
    return _WATCH.set(callback, _event, _lab.set_delay_watch)


def _event(report: Mapping[str, Any]) -> DelayEvent:
    return DelayEvent(
        lock=report["lock"],
        delay=report["delay"],
        previous_max=report["previous_max"],
        native_id=report["native_id"],
        thread=thread_names().get(report["native_id"]),
        traceback=tuple(Frame(*frame) for frame in report["traceback"]),
    )


def _fields(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in kind.__dataclass_fields__}  # type: ignore[attr-defined]


def _python() -> Python:
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    gil_enabled = getattr(sys, "_is_gil_enabled", None)
    return Python(
        version=platform.python_version(),
        implementation=platform.python_implementation(),
        free_threaded=free_threaded,
        gil_enabled=True if gil_enabled is None else bool(gil_enabled()),
    )


def _system() -> System:
    return System(os=platform.system(), release=platform.release(), architecture=platform.machine(), cpu_model=_cpu_model())


def _cpu_model() -> str | None:
    if not os.path.exists("/proc/cpuinfo"):
        return platform.processor() or None
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model", "cpu model"):
                return value.strip() or None
    return None
