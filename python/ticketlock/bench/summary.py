"""From the rounds of one cell to its figures."""

from __future__ import annotations

import re
import statistics as standard
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from . import statistics
from .presets import SLEEP_FROM_NS
from .results import Cell, ContextSwitches, Monopoly, PairCost, RunLengths, Spread, Status, Waits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .engine import Mode, RoundResult
    from .plan import Plan, PlannedCell

PER_MILLION = 1_000_000


@dataclass(slots=True)
class Record:
    """The rounds of one cell so far; an attempted round that never became valid is None."""

    throughput: list[RoundResult | None] = field(default_factory=list)
    waits: list[RoundResult | None] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    reruns: int = 0

    def add(self, mode: Mode, result: RoundResult | None) -> None:
        """Keep the outcome of one slice."""
        (self.throughput if mode == "throughput" else self.waits).append(result)


def cell(planned: PlannedCell, record: Record, plan: Plan, driver: str) -> Cell:
    """The figures of a cell, from whatever rounds it has."""
    throughput = [result for result in record.throughput if result is not None]
    waits = [result for result in record.waits if result is not None]
    status, why = _status(record, plan)
    runs = _padded([None if result is None else per_second(result) for result in record.throughput], plan.rounds)
    median, low, high = statistics.spread(runs) or (None, None, None)
    return Cell(
        preset=planned.preset,
        driver=driver,
        lock=planned.lock,
        threads=planned.threads,
        hold_ns=planned.hold_ns,
        think_ns=planned.think_ns,
        params=_params(planned, plan, driver),
        status=status,
        why=why,
        throughput_per_s=Spread(median=median, low=low, high=high, runs=tuple(runs)),
        pair_ns=_pair(throughput),
        wait_ns=_waits(waits),
        jain=_jain(planned, throughput),
        run_length=_run_lengths(throughput) or _run_lengths(waits),
        overtakes_per_million=_overtakes(waits) if waits else _overtakes(throughput),
        monopoly_ns=_monopoly(waits) or _monopoly(throughput),
        cpu_s_per_million=statistics.median(cpu_per_million(result) for result in throughput),
        context_switches=_switches(throughput),
        extra=_extra(planned, record, plan, throughput, waits),
    )


def per_second(result: RoundResult) -> float | None:
    """Acquisitions of all threads per second of the round."""
    return sum(result["acquisitions"]) / result["seconds"] if result["seconds"] > 0 else None


def cpu_per_million(result: RoundResult) -> float | None:
    """CPU seconds of a million acquisitions: of the threads, else of the process."""
    acquired = sum(result["acquisitions"])
    cpu = result.get("cpu_s")
    used = sum(cpu) if cpu else result.get("process_cpu_s")
    return None if used is None or not acquired else used * PER_MILLION / acquired


def _status(record: Record, plan: Plan) -> tuple[Status, str | None]:
    valid = sum(result is not None for result in record.throughput)
    tried = len(record.throughput)
    reasons = _in_short(record.reasons)
    if tried and valid * 2 < tried:
        return "invalid", f"{valid} of {tried} rounds valid: {reasons}"
    if tried < plan.rounds:
        return "partial", f"stopped after {tried} of {plan.rounds} rounds" + (f"; {reasons}" if reasons else "")
    if plan.waits_rounds and record.waits and not any(record.waits):
        return "invalid", f"none of {len(record.waits)} waits rounds valid: {reasons}"
    if len(record.waits) < plan.waits_rounds:
        return "partial", f"stopped after {len(record.waits)} of {plan.waits_rounds} waits rounds"
    return "ok", None


def _in_short(reasons: Sequence[str]) -> str:
    """One example of each kind of reason, with how many there were: kinds differ in more than their numbers."""
    kinds: dict[str, list[str]] = {}
    for reason in reasons:
        kinds.setdefault(re.sub(r"\d+", "#", reason), []).append(reason)
    return "; ".join(same[0] + (f" (and {len(same) - 1} like it)" if len(same) > 1 else "") for same in kinds.values())


def _params(planned: PlannedCell, plan: Plan, driver: str) -> dict[str, Any]:
    sleeps = {}
    if driver == "python":
        sleeps = {"hold_sleeps": planned.hold_ns >= SLEEP_FROM_NS, "think_sleeps": planned.think_ns >= SLEEP_FROM_NS}
    return {
        "lock_count": planned.lock_count,
        "line": planned.line if planned.preset == "phantom" else None,
        "cap": planned.cap,
        "pin": planned.placement,
        "cpus": list(planned.cpus),
        "seconds": plan.seconds,
        "iterations": plan.iterations,
        "rounds": plan.rounds,
        "waits_rounds": plan.waits_rounds,
        "again": planned.again,
        **sleeps,
    }


def _jain(planned: PlannedCell, rounds: Sequence[RoundResult]) -> float | None:
    """Only where all threads do the same; the two of the phantom line do not."""
    if planned.preset == "phantom":
        return None
    return statistics.median(statistics.jain(result["acquisitions"]) for result in rounds)


def _pair(rounds: Sequence[RoundResult]) -> PairCost | None:
    costs = [cost for result in rounds if (cost := result.get("pair_ns"))]
    net, gross, loop = (statistics.median(cost[name] for cost in costs) for name in ("net", "gross", "loop"))
    return None if net is None or gross is None or loop is None else PairCost(net=net, gross=gross, loop=loop)


def _waits(rounds: Sequence[RoundResult]) -> Waits | None:
    counted = [wait for result in rounds if (wait := result.get("wait"))]
    if not counted:
        return None
    largest = max(wait["max_ns"] for wait in counted)
    buckets = _wait_buckets(rounds)
    p50, p90, p99, p999 = (statistics.quantile(buckets, share, largest) for share in (0.5, 0.9, 0.99, 0.999))
    if p50 is None or p90 is None or p99 is None or p999 is None:
        return None
    return Waits(p50=p50, p90=p90, p99=p99, p999=p999, max=largest)


def _wait_buckets(rounds: Sequence[RoundResult]) -> list[tuple[float, float, int]]:
    waits = [result.get("wait") for result in rounds]
    return statistics.merge_buckets(wait["histogram"] for wait in waits if wait)


def _run_lengths(rounds: Sequence[RoundResult]) -> RunLengths | None:
    counted = [lengths for result in rounds if (lengths := result.get("run_length"))]
    total = sum(lengths["runs"] for lengths in counted)
    if not total:
        return None
    return RunLengths(
        mean=sum(lengths["mean"] * lengths["runs"] for lengths in counted) / total,
        longest=max(lengths["longest"] for lengths in counted),
        histogram=tuple(statistics.merge_lengths(lengths["histogram"] for lengths in counted)),
    )


def _overtakes(rounds: Sequence[RoundResult]) -> float | None:
    counted = [
        (overtakes, result.get("overtakes_examined") or sum(result["acquisitions"]))
        for result in rounds
        if (overtakes := result.get("overtakes")) is not None
    ]
    examined = sum(acquisitions for _, acquisitions in counted)
    return sum(overtakes for overtakes, _ in counted) * PER_MILLION / examined if examined else None


def _monopoly(rounds: Sequence[RoundResult]) -> Monopoly | None:
    known = [monopoly for result in rounds if (monopoly := result.get("monopoly_ns")) is not None]
    return Monopoly(p50=standard.median(known), max=max(known)) if known else None


def _switches(rounds: Sequence[RoundResult]) -> ContextSwitches | None:
    counted = [switches for result in rounds if (switches := result.get("context_switches"))]
    if not counted:
        return None
    return ContextSwitches(
        voluntary=sum(switches["voluntary"] for switches in counted),
        involuntary=sum(switches["involuntary"] for switches in counted),
    )


def _extra(
    planned: PlannedCell, record: Record, plan: Plan, throughput: Sequence[RoundResult], waits: Sequence[RoundResult]
) -> dict[str, Any]:
    """Label, raw values and whatever the lock or the preset reports of itself: medians, with every round under `runs`."""
    runs: dict[str, list[float | None]] = {}
    lists: dict[str, Any] = {}
    for name in dict.fromkeys(name for result in throughput for name in result.get("extra", {})):
        found = [None if result is None else result.get("extra", {}).get(name) for result in record.throughput]
        if all(value is None or isinstance(value, (int, float)) for value in found):
            runs[name] = _padded(found, plan.rounds)
        else:
            lists[name] = next((value for value in reversed(found) if value is not None), None)
    readers: dict[str, Callable[[RoundResult], float | None]] = {
        "pair_net_ns": lambda result: (result.get("pair_ns") or {}).get("net"),
        "cycles": lambda result: result.get("cycles"),
        "steal_s": lambda result: result.get("steal_s"),
        "process_cpu_s": lambda result: result.get("process_cpu_s"),
        "cpu_s_per_million": cpu_per_million,
        "voluntary_per_acquisition": lambda result: _switches_per_acquisition(result, "voluntary"),
        "involuntary_per_acquisition": lambda result: _switches_per_acquisition(result, "involuntary"),
    }
    runs |= _by_round(readers, record.throughput, plan.rounds)
    waits_runs = _by_round(WAITS_READERS, record.waits, plan.waits_rounds)
    longest = waits_runs.get("longest_wait_ns", [])
    counted = throughput if any(result.get("run_length") for result in throughput) else waits
    shares = [result["acquisitions"] for result in throughput if len(result["acquisitions"]) == planned.threads]
    return {
        "oversubscribed": planned.oversubscribed,
        "reruns": record.reruns,
        "invalid_attempts": list(record.reasons),
        **{name: statistics.median(values) for name, values in runs.items()},
        **{name: statistics.median(values) for name, values in waits_runs.items()},
        "longest_wait_ns": None
        if not longest
        else {
            "median": statistics.median(longest),
            "p90": statistics.share_below(longest, 0.9),
            "max": max(value for value in longest if value is not None),
        },
        **lists,
        "cycles_unit": next((unit for result in throughput if (unit := result.get("cycles_unit"))), None),
        "acquisitions_per_thread": [sum(column) for column in zip(*shares, strict=True)],
        "total_runs": sum(lengths["runs"] for result in counted if (lengths := result.get("run_length"))) or None,
        "wait_histogram": [list(bucket) for bucket in _wait_buckets(waits)],
        "runs": runs,
        "waits_runs": waits_runs,
    }


def _by_round(
    readers: Mapping[str, Callable[[RoundResult], float | None]], rounds: Sequence[RoundResult | None], length: int
) -> dict[str, list[float | None]]:
    """The figures that at least one round has, each with an entry for every round."""
    found = {name: [None if result is None else reader(result) for result in rounds] for name, reader in readers.items()}
    return {name: _padded(values, length) for name, values in found.items() if any(value is not None for value in values)}


def _switches_per_acquisition(result: RoundResult, kind: Literal["voluntary", "involuntary"]) -> float | None:
    switches, acquired = result.get("context_switches"), sum(result["acquisitions"])
    return switches[kind] / acquired if switches and acquired else None


def _longest_wait(result: RoundResult) -> float | None:
    wait = result.get("wait")
    return wait["max_ns"] if wait and wait["count"] else None


def _jain_in_windows(result: RoundResult) -> float | None:
    return statistics.median(statistics.jain(window) for window in result.get("windows") or ())


# What rounds that time every wait say one by one.
WAITS_READERS: dict[str, Callable[[RoundResult], float | None]] = {
    "longest_wait_ns": _longest_wait,
    "longest_monopoly_ns": lambda result: result.get("monopoly_ns"),
    "jain_100ms": _jain_in_windows,
}


def _padded(values: list[float | None], length: int) -> list[float | None]:
    return values + [None] * (length - len(values))
