"""`ticketlock run`: a program with our locks in place of Python's, and a report about them when it ends.

This process only looks at the options. It then becomes the program, so that its process id, signals, streams and exit code
are the program's from the start, and nothing that options need is loaded there (see `ticketlock._run`).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from ticketlock import _run

from .output import OutputFile, UsageError, complain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from .options import Parser
    from .output import Terminal

REPORTS = ("table", "json", "html", "none")

# Options that take a value in a word of its own.
VALUED = frozenset({"--report", "--report-file", "--include", "--exclude", "--export", "--color"})


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the command and its options."""
    from .options import subparser

    parser = subparser(
        commands,
        "run",
        "run a program with its locks replaced, and report which of them were waited for",
        "Run a Python program with threading.Lock, RLock and all that is made of them replaced by ticketlock's, and report at\n"
        "its end which locks were waited for, by whom and where. The program's output and exit code stay its own.",
        "ticketlock run server.py --port 8000\n"
        "  ticketlock run --report html --report-file locks.html -m pytest tests\n"
        "  ticketlock run --exclude '*/vendor/*' --report json -- script.py --verbose",
    )
    parser.usage = (
        "ticketlock run [options] [--] script.py [argument ...]\n"
        "       ticketlock run [options] -m module [argument ...]\n"
        "       ticketlock run [options] -c code [argument ...]"
    )
    report = parser.add_argument_group("report")
    report.add_argument("--report", choices=REPORTS, default="table", help="its form (default: table)")
    report.add_argument("--report-file", metavar="FILE", help="write the report to FILE, whole or not at all (default: stderr)")
    report.add_argument(
        "--export",
        action="append",
        default=[],
        metavar="KIND=FILE",
        help="also write FILE for other tools; may be given several times",
    )
    report.add_argument(
        "--live", action="store_true", help="say first how to watch the program while it runs (ticketlock top PID)"
    )
    report.add_argument(
        "--order", action="store_true", help="also report locks that were taken in both orders, which can deadlock (slower)"
    )
    locks = parser.add_argument_group("which locks")
    locks.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="GLOB",
        help="replace only locks that files of this pattern create; a pattern without / is for the file's name",
    )
    locks.add_argument("--exclude", action="append", default=[], metavar="GLOB", help="do not replace those of these files")
    locks.add_argument(
        "--children", action="store_true", help="replace them in Python programs that the program starts, too (no report there)"
    )


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own options (behind `run`), and the program with its arguments, where options are none of our business."""
    own: list[str] = []
    words = iter(range(len(argv)))
    for index in words:
        word = argv[index]
        if word == "--":
            return own, list(argv[index + 1 :])
        if not word.startswith("-") or word == "-" or (word.startswith(("-m", "-c")) and not word.startswith("--")):
            return own, list(argv[index:])
        own.append(word)
        if word in VALUED and index + 1 < len(argv):
            own.append(argv[next(words)])
    return own, []


def run(parsed: argparse.Namespace, _out: Terminal, _err: Terminal) -> int:
    """Become the program. Returns only where a process cannot become another."""
    _check_program(parsed.program)
    options = _options(parsed)
    flags = _flags()
    environment = _environment(options, flags)
    if parsed.live:
        complain("ticketlock run", f"watch it with: ticketlock top {os.getpid()}")
    words = [sys.executable, *flags, *parsed.program]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if os.name != "nt":
        os.execve(sys.executable, words, environment)
    # There a process that becomes another ends as far as its parent can see.
    return subprocess.call(words, env=environment)


def _check_program(program: Sequence[str]) -> None:
    if not program:
        raise UsageError("give a program: script.py, -m module or -c code, with its arguments")
    first = program[0]
    if first.startswith(("-m", "-c")):
        if first in ("-m", "-c") and len(program) == 1:
            raise UsageError(f"{first}: expected {'a module' if first == '-m' else 'code'} behind it")
    elif first == "-":
        pass
    elif first.startswith("-"):
        raise UsageError(f"script: '{first}' is no script; options of the interpreter go before -m ticketlock")
    elif not os.path.exists(first):
        raise UsageError(f"script: '{first}' does not exist; give a Python file, -m module or -c code")
    if sys.flags.no_site:
        raise UsageError("the interpreter was started with -S, without which nobody can get in before the program; leave it out")
    if not sys.executable:
        raise UsageError("this interpreter does not know where it lies (sys.executable is empty)")


def _options(parsed: argparse.Namespace) -> dict[str, Any]:
    if parsed.report == "html" and not parsed.report_file:
        raise UsageError("--report html: give --report-file FILE with it")
    if parsed.report == "none" and parsed.report_file:
        raise UsageError("--report-file: there is nothing to write with --report none")
    return {
        "report": parsed.report,
        "report_file": _writable("--report-file", parsed.report_file),
        "export": [_export(text) for text in parsed.export],
        "include": tuple(parsed.include),
        "exclude": tuple(parsed.exclude),
        "children": parsed.children,
        "order": parsed.order,
        "quiet": False,
        "title": " ".join(parsed.program[:2] if parsed.program[0] == "-m" else parsed.program[:1]).partition("\n")[0],
        "folder": _folder(),
    }


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _writable(option: str, path: str | None) -> str | None:
    """The path as it will be understood wherever the program goes."""
    if not path:
        return None
    OutputFile(path, option)
    return os.path.abspath(path)


def _export(text: str) -> tuple[str, str]:
    from ticketlock.monitor.export import FORMATS

    kind, equals, path = text.partition("=")
    if not equals or not path or kind not in FORMATS:
        raise UsageError(f"--export: '{text}' is not KIND=FILE; kinds are {', '.join(FORMATS)}")
    found = _writable("--export", path)
    assert found is not None
    return kind, found


def _flags() -> list[str]:
    """Those that this interpreter was started with."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    if getattr(sys.__stdout__, "write_through", False) and not os.environ.get("PYTHONUNBUFFERED"):
        flags.append("-u")
    return flags


def _environment(options: dict[str, Any], flags: list[str]) -> dict[str, str]:
    """The program's environment with what lets us in. `options["environ"]` gets what takes that out again, `flags` may change.

    PYTHONPATH is not looked at with -E and -I. The program then runs without them, but also without the variables that they
    would have kept from it, and finds those in its environment all the same.
    """
    environment = dict(os.environ)
    if sys.flags.ignore_environment:
        for name in [name for name in environment if name.startswith("PYTHON")]:
            del environment[name]
        isolated = "-I" in flags
        flags[:] = [flag for flag in flags if flag not in ("-E", "-I")] + (["-s", "-P"] if isolated else [])
    folder = os.path.join(os.path.dirname(os.path.abspath(_run.__file__)), "_start")
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = folder + (os.pathsep + path if path else "")
    options["pythonpath"] = environment["PYTHONPATH"]
    changed = {name for name in {*environment, *os.environ} if environment.get(name) != os.environ.get(name)}
    options["environ"] = _undoing(changed, os.environ)
    environment[_run.VARIABLE] = _run.encode(options)
    return environment


def _undoing(names: set[str], environ: Mapping[str, str]) -> dict[str, str | None]:
    return {name: environ.get(name) for name in names}
