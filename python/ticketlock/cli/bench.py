"""`ticketlock bench`."""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING

from ticketlock._observe import describe
from ticketlock.bench import csv_export, plan, runner
from ticketlock.bench.engine import Engine, LockInfo, engine_for
from ticketlock.bench.plan import Options, Plan
from ticketlock.bench.presets import DRIVERS, Preset, default_of, presets_of
from ticketlock.bench.values import BadValueError

from . import describe as words
from . import live, report
from .output import OutputFile, Terminal, UsageError, complain
from .screen import Screen
from .signals import InterruptibleEngine, Interrupts
from .table import Column, Row, render
from .text import duration, plain, wrapped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from ticketlock.bench.results import Results
    from ticketlock.bench.runner import Progress

OK, FAILED = 0, 1


def run(options: argparse.Namespace, out: Terminal, err: Terminal) -> int:
    """Measure, or list what can be measured."""
    engine = engine_for(options.driver)
    if options.preset == "list":
        return _list(engine, options.driver, out)
    try:
        ready = plan.make(options.preset or default_of(options.driver), _options(options), engine)
    except BadValueError as bad:
        name = f"PRESET with --driver {options.driver}" if bad.option == "preset" else "--" + bad.option.replace("_", "-")
        raise UsageError(f"{name}: '{bad.value}' is not accepted; give {bad.accepted}") from None
    file = None if options.output is None else OutputFile(options.output)
    with Interrupts() as interrupts:
        results = _measure(ready, engine, options, out, err, interrupts, "ticketlock " + shlex.join(options.argv))
        code = _deliver(results, options, out, file)
        return interrupts.exit_code or code


def _options(options: argparse.Namespace) -> Options:
    return Options(**{name: getattr(options, name) for name in Options.__dataclass_fields__})


def _measure(
    ready: Plan,
    engine: Engine,
    options: argparse.Namespace,
    out: Terminal,
    err: Terminal,
    interrupts: Interrupts,
    command: str,
) -> Results:
    if not (options.json or options.csv):
        machine = describe(engine.machine())
        title = plain(f"ticketlock bench {ready.preset.name}: {ready.preset.summary}", "bold")
        out.show([title, *words.lines([*words.machine(machine), *words.plan(ready)], out.width, out.glyphs)])
    with _display(ready, engine, options, err, interrupts) as progress:
        try:
            return runner.execute(
                ready,
                InterruptibleEngine(engine, interrupts),
                progress=progress,
                stop=interrupts.stop,
                command=command,
            )
        except runner.Interrupted as interrupted:
            return interrupted.results


@contextlib.contextmanager
def _display(
    ready: Plan, engine: Engine, options: argparse.Namespace, err: Terminal, interrupts: Interrupts
) -> Iterator[Callable[[Progress], None]]:
    """The progress callback of whatever display there is: the live tables, a line, or nothing."""
    if options.live and not err.interactive:
        complain("ticketlock bench", "--live needs a terminal on stderr; going on without the display")
    if options.no_progress or not err.interactive:
        yield lambda _: None
        return
    feed = live.Feed(ready.preset.name, engine.machine()["delay_cap"], engine.delays)
    frame = live.live_frame if options.live else live.progress_frame
    screen = Screen(
        err,
        lambda width, height: frame(feed.snapshot(), width, height, err.glyphs),
        full=options.live,
        tick=feed.poll if options.live else None,
    )

    def progress(event: Progress) -> None:
        feed.progress(event)
        with interrupts.shielded():
            screen.paint()

    interrupts.around_suspension = (screen.suspend, screen.resume)
    try:
        with interrupts.shielded():
            screen.open()
        yield progress
    finally:
        with interrupts.shielded():
            interrupts.around_suspension = None
            screen.close()


def _deliver(results: Results, options: argparse.Namespace, out: Terminal, file: OutputFile | None) -> int:
    """File first: it survives even if nobody reads our output any more."""
    code = OK
    if file is not None:
        as_csv = options.csv or (not options.json and file.path.lower().endswith(".csv"))
        try:
            file.write(csv_export.to_csv(results) if as_csv else results.dumps())
        except OSError as problem:
            complain("ticketlock bench", f"'{file.path}' could not be written: {problem.strerror or problem}")
            code = FAILED
    if options.json:
        out.write(results.dumps())
    elif options.csv:
        out.write(csv_export.to_csv(results))
    else:
        out.show([plain(""), *report.lines(results, out.width, out.glyphs)])
    return code


def _list(engine: Engine, driver: str, out: Terminal) -> int:
    presets: list[Row] = [
        ((preset.name, "bold"), (_load(preset), ""), (preset.summary, "")) for preset in presets_of(driver).values()
    ]
    columns = (Column("preset", align="<"), Column("defaults", 1, "<"), Column("measures", align="<"))
    out.show(render(columns, presets, out.width, out.glyphs))
    locks: list[Row] = [
        (
            (info["pattern"], "bold"),
            (info["family"], ""),
            ("yes" if info["fair"] else "no", ""),
            (_about(info), ""),
        )
        for info in engine.locks()
    ]
    about = (Column("lock", align="<"), Column("family", 2, "<"), Column("fair", 1, "<"), Column("", align="<"))
    other = next(name for name in DRIVERS if name != driver)
    hint = f"These are the presets and locks of --driver {driver}; see also: ticketlock bench list --driver {other}"
    out.show([plain(""), *render(about, locks, out.width, out.glyphs), plain(""), *wrapped(hint, out.width, "dim")])
    return OK


def _about(info: LockInfo) -> str:
    parameter = "" if info["parameter"] is None else f" (N: {info['parameter']})"
    return info["about"] + parameter + ("" if info["available"] else "; not here")


def _load(preset: Preset) -> str:
    threads = ",".join([*map(str, preset.threads), *(f"{multiple}x" for multiple in preset.multiples)])
    threads += " CPUs" if preset.multiples else ""
    length = duration(preset.seconds * 1e9) if preset.iterations is None else f"{preset.iterations} iterations"
    return f"threads {threads}; {preset.rounds} rounds of {length}"
