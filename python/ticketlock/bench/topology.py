"""Which CPUs share a core, and where to pin threads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SYSFS = Path("/sys/devices/system/cpu")

PIN_POLICIES = ("none", "spread", "compact", "cores")


@dataclass(frozen=True, slots=True, order=True)
class Cpu:
    """One CPU that this process may use."""

    package: int
    core: int
    number: int


def affinity() -> list[int]:
    """CPU numbers that this process may use; empty where the platform cannot pin."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


def read(numbers: Sequence[int] | None = None, root: Path = SYSFS) -> list[Cpu]:
    """The topology of the given CPUs (of this process without them). A CPU without an entry counts as its own core."""
    return sorted(_cpu(number, root / f"cpu{number}" / "topology") for number in (affinity() if numbers is None else numbers))


def _cpu(number: int, entry: Path) -> Cpu:
    try:
        return Cpu(int((entry / "physical_package_id").read_text()), int((entry / "core_id").read_text()), number)
    except (OSError, ValueError):
        return Cpu(-1, number, number)


def cores(cpus: Sequence[Cpu]) -> list[list[int]]:
    """CPU numbers by core, cores in order."""
    found: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted(cpus):
        found.setdefault((cpu.package, cpu.core), []).append(cpu.number)
    return list(found.values())


def placement(policy: str, threads: int, cpus: Sequence[Cpu]) -> list[int]:
    """The CPU of each thread under a policy of `PIN_POLICIES`; empty for `none` and where pinning is impossible.

    `spread` uses every core before a second sibling, `compact` fills a core before the next, `cores` uses one CPU of each
    core only. More threads than such CPUs go round again.
    """
    by_core = cores(cpus)
    if policy == "none" or not by_core:
        return []
    if policy == "compact":
        order = [number for core in by_core for number in core]
    elif policy == "cores":
        order = [core[0] for core in by_core]
    else:
        depth = max(len(core) for core in by_core)
        order = [core[level] for level in range(depth) for core in by_core if level < len(core)]
    return [order[thread % len(order)] for thread in range(threads)]


def siblings(cpus: Sequence[Cpu]) -> list[int] | None:
    """Two CPUs of one core, None where no core has two."""
    return next((core[:2] for core in cores(cpus) if len(core) >= 2), None)
