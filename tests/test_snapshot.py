"""`ticketlock.snapshot()`: what the locks of this process report, from inside."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import ticketlock
from conftest import environment
from threads import run_together


def test_what_is_waited_for_is_there() -> None:
    lock = ticketlock.Lock(name="snapshot-test")

    def work(_: int) -> None:
        for _ in range(5):
            with lock:
                time.sleep(0.002)

    run_together(3, work)
    found = ticketlock.snapshot()
    (row,) = (row for row in found.locks if row.name == "snapshot-test")
    assert row.acquisitions == 15
    assert row.contended == lock.stats()["contended"] > 0
    assert row.waits.sum == lock.stats()["wait_ns_sum"]
    assert found.totals.locks >= 1
    assert found.interval_ns > 0


@pytest.mark.parametrize("switch", ["0"])
def test_telemetry_off_is_an_error_that_says_so(switch: str) -> None:
    code = "import ticketlock\ntry: ticketlock.snapshot()\nexcept RuntimeError as problem: print(problem)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=50,
        env=environment(TICKETLOCK_TELEMETRY=switch),
    )
    assert done.stdout.startswith("locks of this process do not report: "), done.stderr
