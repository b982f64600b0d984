"""The command line."""

from __future__ import annotations

import argparse
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from .output import UsageError
from .run import split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import SupportsWrite

# In the order of the help. A command is a module here with `add(commands)`, which adds its options, and
# `run(options, out, err)`, which returns the exit code; only what works stands in the list.
COMMANDS = ("info", "bench", "run", "top", "ps", "dump", "attach")

# Where the options of a command are not with the command itself.
MODULES = {"bench": "bench_options"}

EXIT_CODES = """\
exit codes: 0 ok, 1 failed, 2 wrong usage, 3 no such process, or none that reports, 4 not permitted, 5 unknown format,
  6 a threshold was exceeded, 130 interrupted, 141 the reader of the output went away, 143 terminated"""

ENVIRONMENT = """\
environment:
  TICKETLOCK_HYPERVISOR=auto|none|present   what the delay cap assumes
  TICKETLOCK_DELAY_CAP=N                    largest tuned delay, in units
  TICKETLOCK_CPUS=N                         usable CPUs that the locks assume
  TICKETLOCK_TELEMETRY=auto|0|file          how the locks of a process report: best, not at all, in a file
  TICKETLOCK_SITES=0|1                      whether each lock remembers the line that created it
  TICKETLOCK_PATCH=0                        replace no locks, whatever asks for it
  NO_COLOR, FORCE_COLOR                     colour off or on (--color goes first)
"""


class Parser(argparse.ArgumentParser):
    """A parser that reports mistakes as `UsageError`, so that there is one way out."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting."""
        raise UsageError(message)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Help and version. The standard one swallows the error of a reader that is gone."""
        if message:
            (file or sys.stderr).write(message)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options of a command line. What `run` is to run is in `program`, and no option of ours."""
    if argv[:1] == ["run"]:
        own, program = split(argv[1:])
        return _parser(argv[:1]).parse_args(["run", *own], argparse.Namespace(program=program))
    return _parser(argv[:1]).parse_args(_joined(argv))


def _joined(argv: Sequence[str]) -> list[str]:
    """`--hold -5us` as `--hold=-5us`: a negative value is a wrong value, not another option."""
    joined: list[str] = []
    for word in argv:
        if joined and re.fullmatch(r"--[a-z-]+", joined[-1]) and re.match(r"-[\d.]", word):
            joined[-1] += "=" + word
        else:
            joined.append(word)
    return joined


def _parser(first: Sequence[str]) -> Parser:
    from ticketlock import __version__

    parser = Parser(
        prog="ticketlock",
        description="Fair locks: what they report about themselves in running programs, and how they behave on this machine.",
        epilog=epilog(
            "ticketlock ps\n  ticketlock top 4242\n  ticketlock dump 4242\n  ticketlock bench semaphore --threads 1,2,4 --live",
            ENVIRONMENT,
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ticketlock {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    # A command that is named is all that is needed; the help lists all of them.
    for name in first if first and first[0] in COMMANDS else COMMANDS:
        module = MODULES.get(name, name)
        import_module(f".{module}", __package__).add(commands)
    return parser


def subparser(commands: argparse._SubParsersAction[Parser], name: str, summary: str, description: str, examples: str) -> Parser:
    """The parser of a command, which other options are added to."""
    return commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=epilog(examples, ENVIRONMENT),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def epilog(examples: str, *more: str) -> str:
    """What stands at the end of a help text."""
    return "\n".join([f"examples:\n  {examples}\n", *more, EXIT_CODES])


def terminal_options(parser: argparse.ArgumentParser) -> None:
    """Options of everything that people look at."""
    group = parser.add_argument_group("output on terminals")
    group.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colour (default: auto, on a terminal unless NO_COLOR is set)",
    )
    group.add_argument("--ascii", action="store_true", help="draw with ASCII only (default: as the stream's encoding allows)")
