"""The `ticketlock` command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, FAILED, USAGE, INTERRUPTED, READER_GONE = 0, 1, 2, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    try:
        return _guarded(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return INTERRUPTED


def _guarded(argv: list[str]) -> int:
    from .output import provide_streams, silence

    provide_streams()
    try:
        return _reported(argv)
    finally:
        try:
            sys.stderr.flush()
        except OSError:  # the terminal is gone; the interpreter would complain again at exit
            silence(sys.stderr)


def _reported(argv: list[str]) -> int:
    from ticketlock.monitor.errors import MonitorError

    from .options import COMMANDS
    from .output import ReaderGoneError, UsageError, complain, silence
    from .signals import Aborted
    from .text import clean

    command = f"ticketlock {argv[0]}" if argv[:1] and argv[0] in COMMANDS else "ticketlock"
    try:
        try:
            code = _dispatch(argv)
        except SystemExit as finished:  # --help and --version
            code = OK if finished.code is None else int(finished.code)
        sys.stdout.flush()
        return code
    except UsageError as mistake:
        complain(command, f"{clean(str(mistake))}\nTry '{command} --help'.")
        return USAGE
    except MonitorError as obstacle:
        complain(command, clean(str(obstacle)))
        return obstacle.exit_code
    except Aborted as aborted:
        silence(sys.stdout)
        return 128 + aborted.signum
    except (ReaderGoneError, OSError) as problem:
        silence(sys.stdout)
        if isinstance(problem, (ReaderGoneError, BrokenPipeError)):
            return READER_GONE
        complain("ticketlock", f"output failed: {problem.strerror or problem}")
        return FAILED


def _dispatch(argv: list[str]) -> int:
    from importlib import import_module

    from . import options
    from .output import UsageError, terminal

    parsed = options.parse(argv)
    if parsed.command is None:
        raise UsageError(f"give a command: {', '.join(options.COMMANDS[:-1])} or {options.COMMANDS[-1]}")
    parsed.argv = argv
    run = import_module(f".{parsed.command}", __package__).run
    color, ascii_only = getattr(parsed, "color", "auto"), getattr(parsed, "ascii", False)
    code: int = run(parsed, terminal(sys.stdout, color, ascii_only), terminal(sys.stderr, color, ascii_only))
    return code
