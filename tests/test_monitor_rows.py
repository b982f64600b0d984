"""The list of failures that the viewer must survive, held against the names of the tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

# Numbers of the list, and what each is about.
ROWS = {
    1: "encodings other than UTF-8",
    2: "tiny terminals and resizing",
    3: "more rows than the screen has",
    4: "output that is no terminal",
    5: "Ctrl-C at any moment",
    6: "SIGTERM, SIGHUP, stop and continue",
    7: "a target that ends, a pid that is used again",
    8: "permissions",
    9: "clocks that are set back",
    10: "readers that go away",
    11: "colour switches",
    12: "very many locks and threads, lost data",
    13: "hostile names",
    14: "nothing measured yet",
    17: "a file that is truncated",
    18: "damaged or future segments",
    19: "forks and closed files",
    20: "stdin that is a pipe",
}
# About benchmarks; a recording has its share of them.
OTHERS = {15, 16}


def numbers(name: str) -> set[int]:
    """Rows that a test's name claims."""
    return {int(found) for found in re.findall(r"row_(\d+)", name)}


def test_every_row_has_a_test_and_every_number_is_a_row() -> None:
    claimed: dict[int, list[str]] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for number in numbers(node.name):
                    claimed.setdefault(number, []).append(f"{path.name}::{node.name}")
    missing = {number: about for number, about in ROWS.items() if number not in claimed}
    assert not missing, f"no test is named after {missing}"
    unknown = {number: tests for number, tests in claimed.items() if number not in ROWS and number not in OTHERS}
    assert not unknown, f"there is no such row: {unknown}"
    # A name in a list of nothing but pure functions is not enough for what happens on a terminal.
    lacking = [number for number in ROWS if not any("terminal" in test for test in claimed[number])]
    assert not lacking, f"no test on a terminal is named after {lacking}"
