"""What a run returns: frozen values that serialise to the `ticketlock.bench/1` document."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = "ticketlock.bench/1"

Status = Literal["ok", "invalid", "partial"]


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the rounds. Entry i of `runs` is the same round for every lock, None where it was not valid."""

    median: float | None
    low: float | None
    high: float | None
    runs: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class PairCost:
    """Nanoseconds of one lock and unlock: `net` has the empty `loop` subtracted from `gross`."""

    net: float
    gross: float
    loop: float


@dataclass(frozen=True, slots=True)
class Waits:
    """Nanoseconds from the request to the grant; `max` is exact, the quantiles are upper limits of their buckets."""

    p50: float
    p90: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True, slots=True)
class RunLengths:
    """Consecutive acquisitions by one thread. Lengths up to 15 are exact, longer ones stand for a bucket."""

    mean: float
    longest: int
    histogram: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Monopoly:
    """The longest time of a round that one thread kept re-acquiring while others waited, in nanoseconds.

    `p50` is the median over rounds, `max` the longest of all.
    """

    p50: float
    max: float


@dataclass(frozen=True, slots=True)
class ContextSwitches:
    """Context switches of the threads, over all valid throughput rounds."""

    voluntary: int
    involuntary: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One lock under one load. A figure that is not known is None; `why` says what went wrong."""

    preset: str
    driver: str
    lock: str
    threads: int
    hold_ns: int
    think_ns: int
    params: Mapping[str, Any]
    status: Status
    why: str | None
    throughput_per_s: Spread
    pair_ns: PairCost | None
    wait_ns: Waits | None
    jain: float | None
    run_length: RunLengths | None
    overtakes_per_million: float | None
    monopoly_ns: Monopoly | None
    cpu_s_per_million: float | None
    context_switches: ContextSwitches | None
    extra: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The lock with its delay cap where that is not the machine's, and a mark on a lock's second row."""
        cap = self.params.get("cap")
        return self.lock + ("" if cap is None else f" cap {cap}") + (" A/A" if self.again else "")

    @property
    def again(self) -> bool:
        """Whether this is the second cell of a lock that is measured twice, to see what the run cannot tell apart."""
        return bool(self.params.get("again"))

    @property
    def group(self) -> tuple[int, str]:
        """Cells of one group differ only in the lock."""
        return (self.threads, str(self.params["pin"]))

    @property
    def oversubscribed(self) -> bool:
        """More threads than usable CPUs: the figures are about the scheduler as much as about the lock."""
        return bool(self.extra["oversubscribed"])

    def runs_of(self, name: str) -> tuple[float | None, ...]:
        """Round-by-round values of `throughput_per_s`, or of a figure under `extra.runs` or `extra.waits_runs`."""
        if name == "throughput_per_s":
            return self.throughput_per_s.runs
        if name in self.extra.get("waits_runs", ()):
            return tuple(self.extra["waits_runs"][name])
        missing = (None,) * len(self.throughput_per_s.runs)
        return tuple(self.extra["runs"].get(name, missing))


@dataclass(frozen=True, slots=True)
class Results:
    """A whole run. `partial` is true when it was stopped before its last round."""

    preset: str
    command: str
    seed: int
    machine: Mapping[str, Any]
    cells: tuple[Cell, ...]
    partial: bool

    @property
    def driver(self) -> str:
        """What ran the rounds."""
        return self.cells[0].driver if self.cells else "native"

    def to_json(self) -> dict[str, Any]:
        """The document as plain objects."""
        return {
            "schema": SCHEMA,
            "command": self.command,
            "seed": self.seed,
            "partial": self.partial,
            "machine": dict(self.machine),
            "cells": [asdict(cell) for cell in self.cells],
        }

    def dumps(self) -> str:
        """The document as strict JSON, a line for every cell, ending in a newline."""
        document = self.to_json()
        cells = ",\n".join(json.dumps(cell, allow_nan=False) for cell in document.pop("cells"))
        return json.dumps(document, allow_nan=False)[:-1] + f', "cells": [\n{cells}\n]}}\n'
