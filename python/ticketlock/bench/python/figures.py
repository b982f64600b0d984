"""From what the threads of a round wrote down to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .loops import WINDOW_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ticketlock.bench.engine import RunCounts, WaitCounts

    from .loops import Notes

# Buckets an octave of the histogram, as a power of two: no bucket is wider than 1/16 of its lower end.
PER_OCTAVE_LOG2 = 4

# Arrivals this close, in nanoseconds, are simultaneous: between two readings of the clock a thread may not even get to its
# lock. The native driver has the same.
SIMULTANEOUS_NS = 100


def wait_counts(waits: Iterable[int]) -> WaitCounts:
    """The histogram of waits, with exact maximum, sum and count."""
    buckets: dict[int, int] = {}
    largest = total = count = 0
    for wait in waits:
        count += 1
        total += wait
        largest = max(largest, wait)
        shift = max(0, wait.bit_length() - 1 - PER_OCTAVE_LOG2)
        key = wait >> shift << shift
        buckets[key] = buckets.get(key, 0) + 1
    histogram: list[tuple[float, float, int]] = [(low, _top(low), buckets[low]) for low in sorted(buckets)]
    return {"histogram": histogram, "max_ns": largest, "sum_ns": total, "count": count}


def _top(low: int) -> int:
    shift = max(0, low.bit_length() - 1 - PER_OCTAVE_LOG2)
    return low + (1 << shift) - 1


def run_counts(starts: Sequence[int], total: int) -> RunCounts | None:
    """Runs from the numbers of their first acquisitions, in order, up to `total` acquisitions."""
    if not starts:
        return None
    counts: dict[int, int] = {}
    for first, following in zip(starts, [*starts[1:], total], strict=True):
        length = following - first
        counts[length] = counts.get(length, 0) + 1
    runs = len(starts)
    return {
        "histogram": sorted(counts.items()),
        "longest": max(counts),
        "mean": (total - starts[0]) / runs,
        "runs": runs,
    }


def overtakes(notes: Sequence[Notes]) -> tuple[int, int, int]:
    """Acquisitions that overtook somebody, that were overtaken, and that were examined."""
    arrivals = [arrival for _, arrival in sorted(pair for one in notes for pair in zip(one.numbers, one.arrivals, strict=True))]
    earliest_later, overtaking = None, 0
    for arrival in reversed(arrivals):
        if earliest_later is not None and earliest_later + SIMULTANEOUS_NS < arrival:
            overtaking += 1
        earliest_later = arrival if earliest_later is None else min(arrival, earliest_later)
    latest_earlier, overtaken = 0, 0
    for arrival in arrivals:
        overtaken += latest_earlier > arrival + SIMULTANEOUS_NS
        latest_earlier = max(latest_earlier, arrival)
    return overtaking, overtaken, len(arrivals)


def whole_windows(notes: Sequence[Notes], length_ns: int) -> list[list[int]]:
    """Acquisitions of each thread in each window that was over when the round was."""
    count = length_ns // WINDOW_NS
    return [[one.windows[window] if window < len(one.windows) else 0 for one in notes] for window in range(count)]


def waits_result(notes: Sequence[Notes], total: int, length_ns: int) -> dict[str, Any]:
    """What a round that timed every wait adds to its result. `total` numbers the acquisitions, warm-up included."""
    overtaking, overtaken, examined = overtakes(notes)
    return {
        "wait": wait_counts(wait for one in notes for wait in one.waits),
        "run_length": run_counts(sorted(start for one in notes for start in one.starts), total),
        "overtakes": overtaking,
        "overtakes_examined": examined,
        "monopoly_ns": max(one.longest_monopoly for one in notes) if len(notes) > 1 else None,
        "windows": whole_windows(notes, length_ns),
        "extra": {"overtaken": overtaken},
    }
