"""CPython's own tests of its locks, unmodified and from the interpreter under test, on our types.

CPython writes them for more than one implementation (`test.lock_tests`), and `test.test_threading` applies them to all that
`threading` has: locks, and what the module builds on them. Here `threading` makes our locks instead.
"""

import _thread
import os
import sys

import pytest
import standard_tests

LIMIT_S = 120
SUITES = [
    "test.test_threading:LockTests",
    "test.test_threading:CRLockTests",
    "test.test_threading:ConditionTests",
    "test.test_threading:ConditionAsRLockTests",
    "test.test_threading:EventTests",
    "test.test_threading:SemaphoreTests",
    "test.test_threading:BoundedSemaphoreTests",
    "test.test_threading:BarrierTests",
]
# Of 3.11 and 3.12; 3.13 has one more, and newer ones have more again.
FEWEST_TESTS = 103
EXCLUDED = {}
# CPython skips these for its own locks too.
EXPECTED_SKIPS = {}
if hasattr(_thread.RLock, "_recursion_count"):
    EXPECTED_SKIPS["test.test_threading.ConditionAsRLockTests.test_recursion_count"] = (
        "Condition does not expose _recursion_count()"
    )
else:
    FEWEST_TESTS -= 2  # the first releases of 3.11 have neither the method nor its tests
if sys.version_info < (3, 15):
    EXCLUDED["*.CRLockTests.test_signature"] = "wants a warning for arguments that we refuse, as 3.15 does"
else:
    EXPECTED_SKIPS["test.test_threading.ConditionAsRLockTests.test_constructor_noargs"] = "Condition allows positional arguments"
if not hasattr(os, "fork"):
    for name in ("LockTests", "EventTests"):
        EXPECTED_SKIPS[f"test.test_threading.{name}.test_at_fork_reinit"] = (
            "platform doesn't support fork (no _at_fork_reinit method)"
        )


@pytest.mark.timeout(LIMIT_S + 60)
def test_cpythons_lock_tests_pass(tmp_path, standard_test_package, capsys):
    report = standard_tests.run(SUITES, excluded=EXCLUDED, limit_s=LIMIT_S, folder=tmp_path)
    standard_tests.check(report)
    assert not report.missing
    assert report.only("skipped") == EXPECTED_SKIPS
    count = len(report.outcomes) - len(report.only("excluded"))
    with capsys.disabled():
        print(f"\nCPython's lock tests: {count}, of which {len(EXPECTED_SKIPS)} skip themselves for any lock")
    assert count >= FEWEST_TESTS, report.log
