"""Arithmetic, against values worked out by hand."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from ticketlock.bench import noise, statistics
from ticketlock.bench.compare import Ratio, cheaper, ratio

if TYPE_CHECKING:
    from pathlib import Path


def test_jain() -> None:
    assert statistics.jain([5, 5, 5, 5]) == 1.0
    assert statistics.jain([8, 0, 0, 0]) == 0.25
    assert statistics.jain([1]) == 1.0
    assert statistics.jain([0, 0]) is None
    assert statistics.jain([]) is None


def test_quantiles_are_upper_limits_and_never_above_the_maximum() -> None:
    buckets = [(0.0, 10.0, 50), (10.0, 20.0, 49), (20.0, 40.0, 1)]
    assert statistics.quantile(buckets, 0.5, 33.0) == 10.0
    assert statistics.quantile(buckets, 0.51, 33.0) == 20.0
    assert statistics.quantile(buckets, 0.999, 33.0) == 33.0
    assert statistics.quantile([], 0.5, 0.0) is None


def test_histograms_merge_by_bucket() -> None:
    merged = statistics.merge_buckets([[(10, 20, 2), (0, 10, 1)], [(10, 20, 3), (20, 30, 0)]])
    assert merged == [(0, 10, 1), (10, 20, 5)]
    assert statistics.merge_lengths([[(1, 2), (3, 1)], [(1, 1)]]) == [(1, 3), (3, 1)]


def test_ratios_are_medians_of_per_round_ratios() -> None:
    # The ratio of the medians would be 20 / 20 = 1.
    assert ratio([10, 20, 90], [20, 10, 45]) == Ratio(median=2.0, low=0.5, high=2.0, rounds=3)
    assert ratio([10, None, 30], [5, 5, None]) == Ratio(median=2.0, low=2.0, high=2.0, rounds=1)
    assert ratio([None], [1]) is None
    assert ratio([1], [0]) is None
    with pytest.raises(ValueError, match="zip"):
        ratio([1, 2], [1])


def test_the_cheaper_of_two_is_chosen_round_by_round() -> None:
    assert cheaper([3, 9, None, None], [4, 5, 6, None]) == [3, 5, 6, None]


@pytest.mark.parametrize(("size", "left_out"), [(6, 0), (8, 0), (9, 1), (15, 3), (31, 9)])
def test_the_interval_of_the_median_leaves_out_so_many_at_either_end(size: int, left_out: int) -> None:
    """As in tables of confidence limits of the median (95 %)."""
    values = [float(value) for value in range(size, 0, -1)]
    assert statistics.median_interval(values) == (1.0 + left_out, float(size - left_out))


def test_few_values_have_no_interval() -> None:
    for size in range(6):
        assert statistics.median_interval([1.0] * size) is None
    found = ratio([2.0] * 6, [1.0] * 6)
    assert found is not None
    assert (found.interval, found.limits) == ((2.0, 2.0), (2.0, 2.0))
    few = ratio([2.0, 3.0], [1.0, 1.0])
    assert few is not None
    assert (few.interval, few.limits) == (None, (2.0, 3.0))


def test_an_interval_holds_the_true_median_as_often_as_it_says() -> None:
    chance = random.Random(11)
    held = 0
    for _ in range(2_000):
        limits = statistics.median_interval([chance.random() for _ in range(15)])
        assert limits is not None
        held += limits[0] <= 0.5 <= limits[1]
    assert 1_900 <= held < 1_990


def test_a_share_lies_below() -> None:
    assert statistics.share_below(range(1, 16), 0.9) == 14
    assert statistics.share_below([3, None, 1], 1.0) == 3
    assert statistics.share_below([7], 0.0) == 7
    assert statistics.share_below([None], 0.5) is None


def test_spread_and_median_leave_out_what_is_missing() -> None:
    assert statistics.spread([3, None, 1, 2]) == (2, 1, 3)
    assert statistics.spread([None]) is None
    assert statistics.median([]) is None


def test_noise_levels() -> None:
    quiet = noise.Sample(0.0, 0.2, 1.0, 0.0)
    assert noise.verdict(quiet, noise.Sample(10.0, 2.0, 1.0, 0.0), 2)["level"] == "low"
    loaded = noise.verdict(noise.Sample(0.0, 1.5, 1.0, 0.0), noise.Sample(10.0, 2.0, 1.0, 0.0), 2)
    assert (loaded["level"], loaded["reasons"]) == ("medium", ["load 1.50 before the run"])
    stolen = noise.verdict(quiet, noise.Sample(10.0, 2.0, 2.5, 0.0), 2)
    assert (stolen["level"], stolen["reasons"]) == ("high", ["7.5% of the CPU time stolen by other guests"])
    throttled = noise.verdict(quiet, noise.Sample(10.0, 2.0, 1.0, 0.04), 2)
    assert (throttled["level"], throttled["throttled_s"]) == ("high", 0.04)
    unknown = noise.verdict(noise.Sample(0.0, None, None, None), noise.Sample(1.0, None, None, None), 2)
    assert (unknown["level"], unknown["steal_s"], unknown["throttled_s"]) == ("low", None, None)


def test_noise_counters_are_read_from_the_system(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  1 2 3 4 5 6 7 250 0 0\ncpu0 0\ncpu1 0\nintr 1\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.stat").write_text("usage_usec 5\nthrottled_usec 1500000\n")
    found = noise.sample(tmp_path)
    assert found.steal_s == pytest.approx(2.5)
    assert found.busy_s == pytest.approx(found.clock_s * 2 - (4 + 5 + 250) / os.sysconf("SC_CLK_TCK"))
    assert found.throttled_s == 1.5
    nothing = noise.sample(tmp_path / "nowhere")
    assert (nothing.steal_s, nothing.throttled_s, nothing.busy_s) == (None, None, None)
