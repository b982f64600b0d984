"""How disturbed the machine was while a run measured."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

# Shares above which figures are read with care: a percent of stolen time is within the spread of any cell, five are not.
STEAL_MEDIUM = 0.01
STEAL_HIGH = 0.05
# Runnable tasks beside us, as a share of the usable CPUs.
LOAD_MEDIUM = 0.5

Level = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters at one moment, None where the platform has none."""

    clock_s: float
    load: float | None
    steal_s: float | None
    throttled_s: float | None
    busy_s: float | None = None


def sample(root: Path = Path("/")) -> Sample:
    """Read the counters. The clock is monotonic: stepping the wall clock changes nothing."""
    try:
        load: float | None = os.getloadavg()[0]
    except (AttributeError, OSError):
        load = None
    clock = time.monotonic()
    busy, steal = _taken(root / "proc/stat", clock)
    return Sample(clock, load, steal, _throttled(root / "sys/fs/cgroup/cpu.stat"), busy)


def verdict(before: Sample, after: Sample, usable_cpus: int) -> dict[str, Any]:
    """The noise of a run: a level, its reasons, and the figures behind them."""
    elapsed = max(after.clock_s - before.clock_s, 1e-9)
    steal, throttled = _grown(before.steal_s, after.steal_s), _grown(before.throttled_s, after.throttled_s)
    level: Level = "low"
    reasons = []
    if before.load is not None and before.load > LOAD_MEDIUM * usable_cpus:
        level = "medium"
        reasons.append(f"load {before.load:.2f} before the run")
    if steal is not None and steal / (elapsed * usable_cpus) > STEAL_MEDIUM:
        share = steal / (elapsed * usable_cpus)
        level = "high" if share > STEAL_HIGH else "medium"
        reasons.append(f"{share:.1%} of the CPU time stolen by other guests")
    if throttled:
        level = "high"
        reasons.append(f"throttled by the control group for {throttled:.2f} s")
    return {
        "level": level,
        "reasons": reasons,
        "elapsed_s": elapsed,
        "load_before": before.load,
        "steal_s": steal,
        "throttled_s": throttled,
    }


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _taken(path: Path, clock_s: float) -> tuple[float | None, float | None]:
    """CPU time of all processes and the kernel up to a constant, and CPU time that the hypervisor gave to others.

    The former is what is neither idle nor stolen: the kernel measures idle time, but samples what runs at its tick, which is
    when threads wake that sleep with a timer.
    """
    try:
        total, *each = [line.split() for line in path.read_text().split("\n") if line.startswith("cpu")]
        idle, iowait, steal = int(total[4]), int(total[5]), int(total[8])
        tick = os.sysconf("SC_CLK_TCK")
        return clock_s * len(each) - (idle + iowait + steal) / tick, steal / tick
    except (OSError, ValueError, IndexError):
        return None, None


def _throttled(path: Path) -> float | None:
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "throttled_usec":
                return int(value) / 1e6
    except (OSError, ValueError):
        pass
    return None
