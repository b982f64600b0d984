"""Arithmetic on finished rounds. Every function answers None where the figures do not exist, never 0."""

from __future__ import annotations

import math
import statistics as standard
from collections.abc import Iterable, Sequence

Buckets = Sequence[tuple[float, float, int]]


def median(values: Iterable[float | None]) -> float | None:
    """Median of the values that exist."""
    known = [value for value in values if value is not None]
    return standard.median(known) if known else None


def spread(values: Iterable[float | None]) -> tuple[float, float, float] | None:
    """Median, lowest and highest of the values that exist."""
    known = [value for value in values if value is not None]
    return (standard.median(known), min(known), max(known)) if known else None


def ratios(values: Sequence[float | None], reference: Sequence[float | None]) -> list[float | None]:
    """Value over reference, round by round; None where either is missing."""
    return [
        None if value is None or other is None or other == 0 else value / other
        for value, other in zip(values, reference, strict=True)
    ]


def jain(shares: Sequence[float]) -> float | None:
    """Jain's index: 1 when every thread got the same, 1/n when one of n got everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else None


def share_below(values: Iterable[float | None], share: float) -> float | None:
    """The smallest of the values that exist which `share` of them do not exceed."""
    known = sorted(value for value in values if value is not None)
    return known[max(0, math.ceil(share * len(known)) - 1)] if known else None


def median_interval(values: Sequence[float], coverage: float = 0.95) -> tuple[float, float] | None:
    """Limits between which the true median lies with a probability of at least `coverage`; None for too few values.

    From the order of the values alone: so many of them lie below the median as a fair coin shows heads.
    """
    ordered, size = sorted(values), len(values)
    outside, left_out = 0.0, 0
    while True:
        outside += 2 * math.comb(size, left_out) * 0.5**size
        if outside > 1 - coverage or 2 * left_out + 1 > size:
            break
        left_out += 1
    return (ordered[left_out - 1], ordered[-left_out]) if left_out else None


def merge_buckets(histograms: Iterable[Buckets]) -> list[tuple[float, float, int]]:
    """Sum of histograms with the same bucket limits, buckets in order, empty ones left out."""
    counts: dict[tuple[float, float], int] = {}
    for histogram in histograms:
        for low, high, count in histogram:
            counts[low, high] = counts.get((low, high), 0) + count
    return [(low, high, count) for (low, high), count in sorted(counts.items()) if count]


def quantile(buckets: Buckets, share: float, largest: float) -> float | None:
    """The value that `share` of the counted ones do not exceed: upper limit of its bucket, never above `largest`."""
    total = sum(count for _, _, count in buckets)
    if not total:
        return None
    wanted, seen = share * total, 0
    for _, high, count in buckets:
        seen += count
        if seen >= wanted:
            return min(high, largest)
    return largest


def merge_lengths(histograms: Iterable[Iterable[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Sum of run-length histograms, lengths in order."""
    counts: dict[int, int] = {}
    for histogram in histograms:
        for length, count in histogram:
            counts[length] = counts.get(length, 0) + count
    return [(length, count) for length, count in sorted(counts.items()) if count]
