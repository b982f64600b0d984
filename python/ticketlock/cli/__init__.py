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
    from .output import ReaderGoneError, UsageError, complain, silence
    from .signals import Aborted

    try:
        try:
            code = _dispatch(argv)
        except SystemExit as finished:  # --help and --version
            code = OK if finished.code is None else int(finished.code)
        sys.stdout.flush()
        return code
    except UsageError as mistake:
        command = "ticketlock bench" if argv[:1] == ["bench"] else "ticketlock info" if argv[:1] == ["info"] else "ticketlock"
        complain(command, f"{mistake}\nTry '{command} --help'.")
        return USAGE
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
    from . import options
    from .output import UsageError, terminal

    parsed = options.parse(argv)
    if parsed.command is None:
        raise UsageError("give a command: info or bench")
    out = terminal(sys.stdout, parsed.color, parsed.ascii)
    if parsed.command == "info":
        from . import info

        return info.run(parsed, out)
    from . import bench

    return bench.run(parsed, out, terminal(sys.stderr, parsed.color, parsed.ascii), argv)
