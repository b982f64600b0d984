"""Shared by the tests: a lock of each kind, the scripted engine, the command as a subprocess, and a terminal to run it in."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fake_lab
import pytest
from kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ticketlock import Lock, RLock

FAKE = [sys.executable, str(Path(__file__).parent / "fake_lab.py")]
REAL = [sys.executable, "-m", "ticketlock"]


def pytest_configure() -> None:
    """Have the commands under test start with the usual signals, whatever this run was started under.

    `nohup` and the background jobs of scripts leave signals ignored, children inherit that, and the command rightly keeps to it.
    """
    for name, usual in (("SIGINT", signal.default_int_handler), ("SIGTERM", signal.SIG_DFL), ("SIGHUP", signal.SIG_DFL)):
        signum = getattr(signal, name, None)
        if signum is not None and signal.getsignal(signum) == signal.SIG_IGN:
            signal.signal(signum, usual)


class ScriptedEngine:
    """An engine that answers every round with what `script(spec, n)` says, n counting the rounds of a cell and mode from 0.

    The script returns a result, raises an exception that it returns, or returns None for the usual valid result. Every
    specification that was asked for is kept in `asked`.
    """

    driver = "scripted"

    def __init__(self, script: Callable[[dict[str, Any], int], Any] = lambda spec, n: None) -> None:
        self.asked: list[dict[str, Any]] = []
        self.script = script
        self._counts: dict[tuple[str, int, str], int] = {}

    def machine(self) -> dict[str, Any]:
        return fake_lab.machine()

    def locks(self) -> list[dict[str, Any]]:
        return fake_lab.bench_locks()

    def parse_lock(self, lock: str) -> dict[str, Any]:
        return fake_lab.bench_parse_lock(lock)

    def order(self, seed: int, cells: int, rounds: int) -> list[list[int]]:
        return fake_lab.bench_order(seed, cells, rounds)

    def round(self, spec: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(spec)
        key = (spec["lock"], spec["threads"], spec["mode"])
        number = self._counts.get(key, 0)
        self._counts[key] = number + 1
        answer = self.script(spec, number)
        if isinstance(answer, BaseException):
            raise answer
        return fake_lab.measured(spec) if answer is None else answer

    def delays(self) -> list[tuple[int, int, int, int, float, int, int]]:
        return []


def environment(**changes: str | None) -> dict[str, str]:
    """The environment without anything that decides about colour, encoding or locks, then changed."""
    noise = ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "LINES", "COLORTERM")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in noise and not name.startswith(("TICKETLOCK_", "PYTHONIO", "PYTHONUTF8", "PYTHONUNBUFFERED", "LC_", "LANG"))
    }
    kept["TERM"] = "xterm-256color"
    kept["PYTHONUTF8"] = "1"
    return {**kept, **{name: value for name, value in changes.items() if value is not None}}


def command(*arguments: str, program: list[str] = FAKE, **changes: str | None) -> subprocess.CompletedProcess[bytes]:
    """Run the command to its end, without a terminal."""
    return subprocess.run(
        [*program, *arguments], env=environment(**changes), stdin=subprocess.DEVNULL, capture_output=True, timeout=50
    )


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def lock(request: pytest.FixtureRequest) -> Lock | RLock:
    return request.param()


@pytest.fixture
def scripted() -> type[ScriptedEngine]:
    return ScriptedEngine


@pytest.fixture(scope="session")
def standard_test_package() -> None:
    """CPython's `test` package, which some distributions split off.

    Without it the test is skipped, or fails if TICKETLOCK_TEST_PACKAGE says `required`: where the project's own scripts see
    to it that it is there, its tests must not be lost in silence.
    """
    try:
        there = importlib.util.find_spec("test.lock_tests") is not None
    except ModuleNotFoundError:
        there = False
    if there:
        return
    version = sysconfig.get_python_version()
    why = f"this interpreter has no `test` package (on Debian: apt-get install libpython{version}-testsuite)"
    if os.environ.get("TICKETLOCK_TEST_PACKAGE") == "required":
        pytest.fail(why)
    pytest.skip(why)
