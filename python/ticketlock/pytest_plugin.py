"""A plugin for pytest: `--ticketlock-report` runs the tests with Python's locks replaced, and tells which were waited for.

Loaded by every pytest of an environment that ticketlock is installed in, so it imports nothing until it is asked for.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTION = "--ticketlock-report"
ON_TERMINAL = "-"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Our one option."""
    parser.getgroup("ticketlock", "locks").addoption(
        OPTION,
        nargs="?",
        metavar="FILE",
        help="replace Python's locks by ticketlock's, and report which of them were waited for: at the end, or with "
        f"{OPTION}=FILE in a file (JSON or HTML by its name, else text)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Replace the locks before any file of the tests is loaded."""
    asked = None
    for index, word in _options(args):
        asked = word.partition("=")[2] or ON_TERMINAL
        # Else a path of tests behind it would be taken for FILE, and overwritten.
        args[index] = f"{OPTION}={asked}"
    if asked is not None:
        early_config.known_args_namespace = parser.parse_known_args(args, copy.copy(early_config.option))
        from . import _pytest

        _pytest.begin(early_config, None if asked == ON_TERMINAL else asked)


def _options(args: list[str]) -> Iterator[tuple[int, str]]:
    for index, word in enumerate(args):
        if word == "--":
            return
        if word == OPTION or word.startswith(OPTION + "="):
            yield index, word
