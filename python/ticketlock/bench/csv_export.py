"""Results as CSV: one line a cell, medians and limits without raw rounds."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import Cell, Results

COLUMNS = (
    "preset",
    "driver",
    "lock",
    "threads",
    "hold_ns",
    "think_ns",
    "lock_count",
    "line",
    "cap",
    "pin",
    "seconds",
    "iterations",
    "rounds",
    "again",
    "status",
    "why",
    "oversubscribed",
    "throughput_per_s_median",
    "throughput_per_s_low",
    "throughput_per_s_high",
    "pair_ns_net",
    "pair_ns_gross",
    "wait_ns_p50",
    "wait_ns_p90",
    "wait_ns_p99",
    "wait_ns_p999",
    "wait_ns_max",
    "longest_wait_ns_median",
    "longest_wait_ns_p90",
    "jain",
    "jain_100ms",
    "run_length_mean",
    "run_length_longest",
    "overtakes_per_million",
    "monopoly_ns_p50",
    "monopoly_ns_max",
    "cpu_s_per_million",
    "context_switches_voluntary",
    "context_switches_involuntary",
    "voluntary_per_acquisition",
    "involuntary_per_acquisition",
    "pair_ns_with",
)


# Columns that are figures under `extra` of the same name.
EXTRA = ("jain_100ms", "voluntary_per_acquisition", "involuntary_per_acquisition")


def to_csv(results: Results) -> str:
    """The cells as CSV with a header line; an unknown figure is an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for cell in results.cells:
        writer.writerow(_row(cell))
    return text.getvalue()


def _row(cell: Cell) -> dict[str, Any]:
    def of(part: object, *names: str) -> dict[str, Any]:
        prefix, *fields = names
        return {f"{prefix}_{name}": getattr(part, name, None) for name in fields}

    longest = cell.extra.get("longest_wait_ns") or {}
    return {
        **{name: getattr(cell, name) for name in ("preset", "driver", "lock", "threads", "hold_ns", "think_ns", "status", "why")},
        **{name: cell.params[name] for name in ("lock_count", "line", "cap", "pin", "seconds", "iterations", "rounds")},
        "again": int(cell.again),
        "oversubscribed": int(cell.oversubscribed),
        **of(cell.throughput_per_s, "throughput_per_s", "median", "low", "high"),
        **of(cell.pair_ns, "pair_ns", "net", "gross"),
        **of(cell.wait_ns, "wait_ns", "p50", "p90", "p99", "p999", "max"),
        **{f"longest_wait_ns_{name}": longest.get(name) for name in ("median", "p90")},
        "jain": cell.jain,
        **{name: cell.extra.get(name) for name in EXTRA},
        **of(cell.run_length, "run_length", "mean", "longest"),
        "overtakes_per_million": cell.overtakes_per_million,
        **of(cell.monopoly_ns, "monopoly_ns", "p50", "max"),
        "cpu_s_per_million": cell.cpu_s_per_million,
        **of(cell.context_switches, "context_switches", "voluntary", "involuntary"),
        "pair_ns_with": cell.extra.get("with_net_ns"),
    }
