"""CPython's own tests, run with our locks in place of the standard ones, in a process of their own.

`run` starts this file as a program, which loads the tests from the `test` package of its interpreter, runs those that are
not excluded, and writes down what became of each. A run that hangs ends with the stacks of all its threads.
"""

import contextlib
import faulthandler
import fnmatch
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path
from typing import NamedTuple

import standard_locks

# How much longer than its own watchdog a run may take before it is killed from outside.
GRACE_S = 30
LOG_TAIL_CHARACTERS = 30_000


class Outcome(NamedTuple):
    """What became of one test: "passed", "failed", "skipped" or "excluded", and why."""

    test: str
    outcome: str
    why: str
    seconds: float


class Report(NamedTuple):
    """What became of a run: the end of its log, and an outcome for each test. A run that did not end has none."""

    exit_status: int
    log: str
    outcomes: list[Outcome]
    missing: list[str]

    def only(self, outcome):
        return {one.test: one.why for one in self.outcomes if one.outcome == outcome}


def run(suites, *, excluded, limit_s, folder, python=sys.executable, replaced_at_start=False):
    """Run the named modules and classes of the `test` package, and return a Report.

    `excluded` maps patterns of test names to reasons. `replaced_at_start` says that `python` has our locks from its start
    on; otherwise `threading` is patched before the tests are loaded. Everything is written into `folder`.
    """
    report, log = folder / "report.json", folder / "log.txt"
    plan = {
        "suites": suites,
        "excluded": excluded,
        "limit_s": limit_s,
        "report": str(report),
        "replaced_at_start": replaced_at_start,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python, __file__, json.dumps(plan)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=os.name == "posix",
        )
        try:
            status = process.wait(limit_s + GRACE_S)
        finally:
            # What a test has left behind goes too.
            if os.name == "posix":
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
    tail = log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
    if not report.exists():
        return Report(status or 1, tail, [], [])
    written = json.loads(report.read_text())
    return Report(status, tail, [Outcome(*one) for one in written["outcomes"]], written["missing"])


def check(report):
    """Fail unless the run came to its end and nothing failed in it."""
    assert report.outcomes or report.missing, f"the run did not end (exit status {report.exit_status}):\n{report.log}"
    assert not report.only("failed"), f"{report.log}\nfailed: {report.only('failed')}"
    assert report.exit_status == 0, report.log


class Recorder(unittest.TextTestResult):
    """Keeps the worst that happened to each test, parts of a test (subTest) included."""

    worst_last = ("passed", "skipped", "failed")

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.outcomes = {}
        self._started = 0.0

    def note(self, test, outcome, why=""):
        name = getattr(test, "test_case", test).id()
        former, _, _ = self.outcomes.get(name, ("passed", "", 0.0))
        if self.worst_last.index(outcome) >= self.worst_last.index(former):
            self.outcomes[name] = (outcome, why, time.monotonic() - self._started)

    def startTest(self, test):  # noqa: N802
        self._started = time.monotonic()
        super().startTest(test)

    def addSuccess(self, test):  # noqa: N802
        super().addSuccess(test)
        self.note(test, "passed")

    def addExpectedFailure(self, test, err):  # noqa: N802
        super().addExpectedFailure(test, err)
        self.note(test, "passed")

    def addSkip(self, test, reason):  # noqa: N802
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)

    def addError(self, test, err):  # noqa: N802
        super().addError(test, err)
        self.note(test, "failed", repr(err[1]))

    def addFailure(self, test, err):  # noqa: N802
        super().addFailure(test, err)
        self.note(test, "failed", repr(err[1]))

    def addUnexpectedSuccess(self, test):  # noqa: N802
        super().addUnexpectedSuccess(test)
        self.note(test, "failed", "succeeded unexpectedly")

    def addSubTest(self, test, subtest, err):  # noqa: N802
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "failed", repr(err[1]))


def single_tests(suite):
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from single_tests(part)
        else:
            yield part


def load(suite):
    """The tests of "module" or "module:Class"."""
    module_name, _, class_name = suite.partition(":")
    module = importlib.import_module(module_name)
    if class_name:
        return single_tests(unittest.defaultTestLoader.loadTestsFromTestCase(getattr(module, class_name)))
    return single_tests(unittest.defaultTestLoader.loadTestsFromModule(module))


def main(plan):
    faulthandler.dump_traceback_later(plan["limit_s"], exit=True)
    if not plan["replaced_at_start"]:
        standard_locks.replace_in_threading()
    standard_locks.check_replaced()

    outcomes, missing = [], []
    chosen = unittest.TestSuite()
    for suite in plan["suites"]:
        try:
            for test in load(suite):
                reasons = [why for pattern, why in plan["excluded"].items() if fnmatch.fnmatchcase(test.id(), pattern)]
                if reasons:
                    outcomes.append(Outcome(test.id(), "excluded", reasons[0], 0.0))
                else:
                    chosen.addTest(test)
        except unittest.SkipTest as skipped:
            outcomes.append(Outcome(suite, "skipped", str(skipped), 0.0))
        except ModuleNotFoundError as absent:
            # Of the tests themselves: anything else that they import and that is not there is a failure.
            if not suite.startswith(absent.name):
                raise
            missing.append(suite)

    result = unittest.TextTestRunner(resultclass=Recorder, verbosity=2).run(chosen)
    outcomes += [Outcome(name, *rest) for name, rest in result.outcomes.items()]
    Path(plan["report"]).write_text(json.dumps({"outcomes": outcomes, "missing": missing}))
    faulthandler.cancel_dump_traceback_later()
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
