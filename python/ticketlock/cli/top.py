"""`ticketlock top`: the locks of a process, live on a terminal or printed once."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from .options import subparser, terminal_options
from .output import OutputFile, UsageError
from .printing import Printer, Request
from .signals import Interrupts
from .text import clean

if TYPE_CHECKING:
    import argparse

    from ticketlock.monitor.conditions import Condition
    from ticketlock.monitor.source import Live, Recorder, Replay
    from ticketlock.monitor.tree import Tree

    from .options import Parser
    from .output import Terminal

OK = 0

# What can be printed instead of the live screen, one of them at a time.
PRINTED = ("once", "json", "jsonl", "csv", "prometheus")

_MOST_READINGS = 1_000_000_000


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """The options of the command."""
    top = subparser(
        commands,
        "top",
        "watch the locks of a running process: who waits, who holds, for how long",
        "Watch the locks of a running process that uses ticketlock. Nothing in it has to be prepared, and no rights are needed\n"
        "beyond being the same user.\n\n"
        "On a terminal this is a live screen (press ? there); where the output is none, or with one of the options that print,\n"
        "one interval is measured and printed.",
        "ticketlock top                                    the process that there is, or a choice\n"
        "  ticketlock top 4242 --sort p99 --filter cache\n"
        "  ticketlock top 4242 --once --interval 10\n"
        "  ticketlock top 4242 --jsonl -n 60 > minute.jsonl\n"
        "  ticketlock top --replay minute.jsonl\n"
        "  ticketlock top 4242 --fail-if 'wait%>20' --fail-if 'cycles>0'",
    )
    top.add_argument("pid", nargs="?", metavar="PID", help="the process (default: the only one that reports, or a choice)")
    _view_options(top)
    _recording_options(top)
    _printing_options(top)
    terminal_options(top)


def _view_options(top: argparse.ArgumentParser) -> None:
    from ticketlock.monitor import columns
    from ticketlock.monitor.options import DEFAULT_SORT, LIVE_INTERVAL_S, ONCE_INTERVAL_S

    view = top.add_argument_group("what to show")
    view.add_argument("--sort", metavar="KEY", default=DEFAULT_SORT, help=f"{', '.join(columns.SORTS)} (default: {DEFAULT_SORT})")
    view.add_argument("--columns", metavar="C,...", help=f"of {', '.join(columns.COLUMNS)} (default: what fits)")
    view.add_argument(
        "--filter",
        metavar="TEXT",
        default="",
        help="only locks with TEXT in name, kind, site or owner; re:EXPR for an expression",
    )
    view.add_argument("--internal", action="store_true", help="also locks of the standard library and of ticketlock itself")
    view.add_argument("--tree", action="store_true", help="the process together with those that it has forked")
    pace = top.add_argument_group("how often")
    pace.add_argument(
        "--interval",
        metavar="T",
        help=f"seconds between two readings, or 200ms (default: {LIVE_INTERVAL_S:g}, printed {ONCE_INTERVAL_S:g})",
    )
    pace.add_argument("-n", "--count", metavar="N", help="end after N readings; what is printed covers all of them")


def _recording_options(top: argparse.ArgumentParser) -> None:
    recordings = top.add_argument_group("recordings")
    recordings.add_argument("--record", metavar="FILE", help="also write every reading to FILE, as --jsonl prints it")
    recordings.add_argument("--replay", metavar="FILE", help="show a recording instead of a process; - is standard input")


def _printing_options(top: argparse.ArgumentParser) -> None:
    from ticketlock.monitor.conditions import MEASURES

    printing = top.add_argument_group("printing instead of the live screen")
    formats = printing.add_mutually_exclusive_group()
    formats.add_argument("--once", action="store_true", help="a table of one interval (automatic where stdout is no terminal)")
    formats.add_argument("--json", action="store_true", help="one document of strict JSON (schema ticketlock.snapshot/1)")
    formats.add_argument("--jsonl", action="store_true", help="such a document a line, every interval, until the process ends")
    formats.add_argument("--csv", action="store_true", help="CSV, one line a lock")
    formats.add_argument("--prometheus", action="store_true", help="the text format of Prometheus")
    printing.add_argument(
        "--export",
        action="append",
        default=[],
        metavar="KIND=FILE",
        help=f"also write FILE for other tools: {', '.join(_export_kinds())}; may be repeated",
    )
    printing.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="EXPR",
        help=f"exit with 6 if 'NAME>NUMBER' holds, for example 'p99>1ms'; NAME: {', '.join(MEASURES).replace('%', '%%')}; "
        "may be repeated",
    )


def _export_kinds() -> tuple[str, ...]:
    from ticketlock.monitor.export import FORMATS

    return tuple(FORMATS)


def run(options: argparse.Namespace, out: Terminal, _: Terminal) -> int:
    """Show or print."""
    request = _request(options, out)
    if request.format is None:
        from ticketlock.monitor.app import run as show

        source = _source(options, out, live=True)
        return OK if source is None else show(source, request.view, out)
    # Before anything is opened: a signal is heeded from now on.
    with Interrupts() as interrupts, contextlib.ExitStack() as open_ones:
        source = _source(options, out, live=False)
        assert source is not None
        open_ones.callback(source.close)
        recorder = None
        if request.view.record is not None:
            recorder = _recorder(request.view.record)
            open_ones.callback(recorder.close)
        return Printer(source, request, out, recorder, interrupts).run()


def _recorder(path: str) -> Recorder:
    from ticketlock.monitor.source import Recorder

    try:
        return Recorder(path)
    except OSError as wrong:
        raise UsageError(_unwritable("--record", path, wrong)) from None


def _unwritable(option: str, path: str, wrong: OSError) -> str:
    return (
        f"{option}: '{path}' cannot be written ({wrong.strerror or wrong}); give a new file or a recording in a writable folder"
    )


def _request(options: argparse.Namespace, out: Terminal) -> Request:
    from ticketlock.monitor import columns
    from ticketlock.monitor.options import LIVE_INTERVAL_S, ONCE_INTERVAL_S, ViewOptions

    chosen = next((name for name in PRINTED if getattr(options, name)), None)
    if chosen is None and (options.export or options.fail_if or not out.interactive):
        chosen = "once"
    if options.sort not in columns.SORTS:
        raise _refused("--sort", options.sort, "one of " + ", ".join(columns.SORTS))
    try:
        columns.matcher(options.filter)
    except ValueError as wrong:
        raise UsageError(f"--filter: '{options.filter}' is {wrong}; give a part of a name, or re: and an expression") from None
    if options.replay is not None and (options.pid is not None or options.tree):
        raise UsageError("--replay: give either a recording or a process (PID, --tree), not both")
    if options.replay is not None and options.record is not None and _same_file(options.replay, options.record):
        raise UsageError(f"--record: '{options.record}' is the recording that is shown; give another file")
    interval = LIVE_INTERVAL_S if chosen is None else ONCE_INTERVAL_S
    view = ViewOptions(
        sort=options.sort,
        filter=options.filter,
        columns=_columns(options.columns),
        interval_s=interval if options.interval is None else _interval(options.interval),
        internal=options.internal,
        record=options.record,
        count=None if options.count is None else _count(options.count),
        ascii=options.ascii,
    )
    exports = _exports(options.export)
    if options.replay is not None and any(_needs_events(kind) for kind, _ in exports):
        raise UsageError("--export: a recording has no single waits, which this kind shows; export from the process itself")
    return Request(view, chosen, _conditions(options.fail_if), exports)


def _needs_events(kind: str) -> bool:
    from ticketlock.monitor.export import FORMATS

    return FORMATS[kind].needs == "events"


def _refused(option: str, value: str, accepted: str) -> UsageError:
    return UsageError(f"{option}: '{value}' is not accepted; give {accepted}")


def _interval(text: str) -> float:
    from ticketlock.bench.values import BadValueError, seconds
    from ticketlock.monitor.options import MAX_INTERVAL_S, MIN_INTERVAL_S

    accepted = f"seconds from {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g} such as 0.5, or 500ms"
    try:
        value = seconds("interval", text)
    except BadValueError:
        raise _refused("--interval", text, accepted) from None
    if value < MIN_INTERVAL_S:
        raise _refused("--interval", text, accepted)
    return value


def _count(text: str) -> int:
    from ticketlock.bench.values import BadValueError, count

    try:
        return count("count", text, 1, _MOST_READINGS, "readings")
    except BadValueError as bad:
        raise _refused("-n/--count", text, bad.accepted) from None


def _columns(text: str | None) -> tuple[str, ...] | None:
    from ticketlock.monitor.columns import COLUMNS

    if text is None:
        return None
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in COLUMNS:
            raise _refused("--columns", name, "names of " + ", ".join(COLUMNS))
    return names


def _conditions(texts: list[str]) -> tuple[Condition, ...]:
    from ticketlock.monitor import conditions

    found = []
    for text in texts:
        try:
            found.append(conditions.parse(text))
        except ValueError as wrong:
            raise UsageError(f"--fail-if: '{text}' is not accepted ({wrong}); give {conditions.ACCEPTED}") from None
    return tuple(found)


def _exports(texts: list[str]) -> tuple[tuple[str, OutputFile], ...]:
    found = []
    for text in texts:
        kind, equals, path = text.partition("=")
        if not equals or not path or kind not in _export_kinds():
            raise _refused("--export", text, f"KIND=FILE with one of the kinds {', '.join(_export_kinds())}")
        found.append((kind, OutputFile(path, "--export")))
    return tuple(found)


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _source(options: argparse.Namespace, out: Terminal, live: bool) -> Live | Tree | Replay | None:
    """None if the user was asked for a process and wanted none."""
    from ticketlock.monitor.source import Live, Replay

    if options.replay is not None:
        try:
            return Replay(options.replay)
        except OSError as wrong:
            raise UsageError(
                f"--replay: '{options.replay}' cannot be read ({wrong.strerror or wrong}); give a file that --record wrote, or -"
            ) from None
    pid = the_pid("PID", options.pid) if options.pid is not None else _only(out, live)
    if pid is None:
        return None
    if options.tree:
        from ticketlock.monitor.tree import Tree

        return Tree(pid)
    return Live(pid)


def the_pid(option: str, text: str) -> int:
    """A process id as the user gave it."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 10 and 0 < int(text) < 1 << 31):
        raise _refused(option, text, "the number of a process ('ticketlock ps' lists those that report)")
    return int(text)


def _only(out: Terminal, live: bool) -> int | None:
    """The process that is meant if none was named; with the live screen the user can choose, or choose none."""
    from ticketlock.monitor.errors import NotFoundError
    from ticketlock.monitor.find import instrumented

    found = instrumented()
    candidates = found.processes
    if len(candidates) == 1:
        return candidates[0].pid
    if not candidates:
        hidden = f" among those that you may look into ({found.hidden} you may not)" if found.hidden else ""
        raise NotFoundError(
            f"no running process reports{hidden}",
            "start one that uses locks of ticketlock, or give the PID of one to learn why not",
        )
    if live:
        from ticketlock.monitor.app import choose

        choice = choose(instrumented, out)
        if choice.code:
            raise SystemExit(choice.code)
        return choice.pid
    names = ", ".join(f"{one.pid} ({clean(one.program)})" for one in candidates[:10])
    more = f" and {len(candidates) - 10} more" if len(candidates) > 10 else ""
    raise NotFoundError(f"{len(candidates)} processes report: {names}{more}", "give the PID of one")
