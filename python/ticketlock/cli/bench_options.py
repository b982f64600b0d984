"""The options of `ticketlock bench`."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING

from ticketlock.bench.presets import DRIVERS, PHANTOM_LINE, PRESETS, PYTHON_PRESETS, default_of
from ticketlock.bench.topology import PIN_POLICIES

from .options import ENVIRONMENT, epilog, terminal_options

if TYPE_CHECKING:
    from .options import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """The options of the command."""
    presets = "\n".join(f"  {preset.name:14} {preset.summary}" for preset in PRESETS.values())
    python = "\n".join(f"  {preset.name:14} {preset.summary}" for preset in PYTHON_PRESETS.values())
    bench = commands.add_parser(
        "bench",
        help="measure locks against each other on this machine",
        description=f"Measure locks against each other on real threads of this machine.\n\npresets:\n{presets}\n"
        f"  {'list':14} show presets with their defaults, and all lock identifiers\n\n"
        f"presets with --driver python:\n{python}\n\n"
        + textwrap.fill(
            "Cells run interleaved in random order, round by round. Rounds that measure throughput time nothing else; other "
            "rounds time every wait. An invalid round is run again up to twice; a cell with "
            "less than half of its rounds valid is invalid. Ratios are medians of per-round ratios. The first Ctrl-C ends the "
            "round and prints what is valid, the second leaves at once.",
            100,
        ),
        epilog=epilog(
            "ticketlock bench\n"
            "  ticketlock bench semaphore --threads 1-4 --locks auto,ticket,std --live\n"
            "  ticketlock bench uncontended --json -o pairs.json\n"
            "  ticketlock bench fairness --iterations 10000000\n"
            "  ticketlock bench phantom --cap 16,native --line 40\n"
            "  ticketlock bench oversubscribed --threads 2 --hold 800 --think 800 --rounds 31 --aa lock\n"
            "  ticketlock bench --driver python --locks threading.Lock,lock,mymodule:MyLock",
            ENVIRONMENT,
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    bench.add_argument(
        "preset",
        nargs="?",
        choices=(*PRESETS, "list"),
        metavar="PRESET",
        help=f"what to measure: {', '.join(PRESETS)} or list (default: {default_of('native')}; "
        f"with --driver python {default_of('python')})",
    )
    _load_options(bench)
    _round_options(bench)
    _result_options(bench)
    terminal_options(bench)


def _load_options(bench: argparse.ArgumentParser) -> None:
    load = bench.add_argument_group("load")
    load.add_argument(
        "--driver",
        choices=DRIVERS,
        default=DRIVERS[0],
        help="native: threads without an interpreter; python: Python threads, and any lock as module:factory (default: native)",
    )
    load.add_argument("--locks", metavar="L,...", help="lock identifiers, separated by commas (see: ticketlock bench list)")
    load.add_argument("--aa", metavar="L", help="measure this lock twice: the ratio shows what the run cannot tell apart")
    load.add_argument("--threads", metavar="N", help="thread counts: 4, 1,2,4 or 1-8")
    load.add_argument(
        "--hold", metavar="T", help="time in the section: N[ns|us|ms|s], a bare number is ns (python: 100us and more sleep)"
    )
    load.add_argument("--think", metavar="T", help="time outside the section")
    load.add_argument("--lock-count", metavar="N", help="number of locks that the threads use")
    load.add_argument("--pin", metavar="P", help=f"where threads run: {', '.join(PIN_POLICIES)} (default: spread while they fit)")
    load.add_argument(
        "--cap", metavar="U,...", help="delay caps of auto locks in units, or native, or machine; several make several cells"
    )
    load.add_argument("--line", metavar="N", help=f"phantom: tickets ahead of the waiter (default: {PHANTOM_LINE})")


def _round_options(bench: argparse.ArgumentParser) -> None:
    rounds = bench.add_argument_group("rounds")
    rounds.add_argument("--seconds", metavar="S", help="longest time of a round in seconds (or 500ms)")
    rounds.add_argument("--iterations", metavar="N", help="end a round after so many acquisitions of all threads")
    rounds.add_argument("--rounds", metavar="N", help="rounds of every cell")
    rounds.add_argument("--seed", metavar="N", help="seed of the order of cells (default: random; always printed)")


def _result_options(bench: argparse.ArgumentParser) -> None:
    result = bench.add_argument_group("results and progress")
    formats = result.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="strict JSON with every raw value (schema ticketlock.bench/1)")
    formats.add_argument("--csv", action="store_true", help="CSV, one line a cell")
    result.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="also write the results to FILE, whole or not at all: CSV with --csv or a name in .csv, else JSON",
    )
    display = result.add_mutually_exclusive_group()
    display.add_argument("--live", action="store_true", help="show the delay tables moving while the rounds run (on stderr)")
    display.add_argument("--no-progress", action="store_true", help="no progress line on stderr")
