"""The benchmark as a library.

    from ticketlock import bench

    results = bench.run("semaphore", locks=["auto", "std"], threads=[1, 2], seconds=0.2, rounds=5)
    for cell in results.cells:
        print(cell.lock, cell.threads, cell.throughput_per_s.median, cell.wait_ns, cell.run_length)
    print(results.dumps())

    mine = bench.run(driver="python", locks=["threading.Lock", "mymodule:MyLock"])

A run interleaves its cells in random order, round by round; a throughput round times nothing but itself, a waits round
times every wait. Ratios between locks are medians of per-round ratios (`ratio`).
"""

from .compare import Ratio, cheaper, ratio, throughput_ratio
from .csv_export import to_csv
from .engine import Engine, NativeEngine, RoundResult, RoundSpec
from .plan import Options, Plan, PlannedCell
from .presets import DRIVERS, PRESETS, Preset, presets_of
from .results import Cell, ContextSwitches, Monopoly, PairCost, Results, RunLengths, Spread, Waits
from .runner import Interrupted, Progress, execute, run
from .values import BadValueError

__all__ = [
    "DRIVERS",
    "PRESETS",
    "BadValueError",
    "Cell",
    "ContextSwitches",
    "Engine",
    "Interrupted",
    "Monopoly",
    "NativeEngine",
    "Options",
    "PairCost",
    "Plan",
    "PlannedCell",
    "Preset",
    "Progress",
    "Ratio",
    "Results",
    "RoundResult",
    "RoundSpec",
    "RunLengths",
    "Spread",
    "Waits",
    "cheaper",
    "execute",
    "presets_of",
    "ratio",
    "run",
    "throughput_ratio",
    "to_csv",
]
