"""`ticketlock attach`: into a running program where that is possible, a clear refusal where it is not."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

import pytest
from conftest import REAL, environment

CAN = hasattr(sys, "remote_exec") and not sys.flags.ignore_environment
needs_remote_exec = pytest.mark.skipif(not CAN, reason="before Python 3.14 nobody can enter a running program")

PROGRAM = """\
import sys, threading, time
print("ready", flush=True)
if len(sys.argv) > 1:
    time.sleep(float(sys.argv[1]))
    sys.exit()
for _ in range(1000):
    time.sleep(0.01)
    if type(threading.Lock()).__module__ == "ticketlock":
        import ticketlock
        lock = threading.Lock()
        print(type(lock).__name__, [row.site for row in ticketlock.snapshot().locks if row.site][0].rpartition(":")[2])
        break
"""


@contextmanager
def program(*arguments: str, **changes: str):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True, env=environment(**changes)
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def attach(*words: str, **changes: str):
    return subprocess.run([*REAL, "attach", *words], capture_output=True, text=True, timeout=50, env=environment(**changes))


@needs_remote_exec
def test_locks_made_from_then_on_are_ours():
    with program() as process:
        done = attach(str(process.pid))
        if done.returncode == 4:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        assert f"ticketlock top {process.pid}" in done.stdout
        assert process.stdout.read().startswith("Lock ")
        assert process.wait(20) == 0


@needs_remote_exec
@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"PYTHON_DISABLE_REMOTE_DEBUG": "1"}, 4, "PYTHON_DISABLE_REMOTE_DEBUG"),
        ({"TICKETLOCK_TELEMETRY": "0"}, 3, "report nothing"),
        ({"TICKETLOCK_PATCH": "0"}, 3, "TICKETLOCK_PATCH=0"),
    ],
)
def test_refusals_of_the_program(changes, code, said):
    with program(**changes) as process:
        done = attach(str(process.pid))
        if done.returncode == 4 and code != 4:
            pytest.skip(done.stderr)
        assert done.returncode == code, done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr


@needs_remote_exec
def test_no_answer_in_time():
    with program("20") as process:
        done = attach(str(process.pid), "--timeout", "0.3")
        if done.returncode == 4:
            pytest.skip(done.stderr)
        assert done.returncode == 124
        assert "has not answered in 0.3 s" in done.stderr


@pytest.mark.skipif(CAN, reason="this Python can enter programs")
def test_older_pythons_refuse_and_say_what_to_do_instead():
    with program("20") as process:
        done = attach(str(process.pid))
    assert done.returncode == 5
    assert "3.14" in done.stderr
    assert "ticketlock run" in done.stderr


@needs_remote_exec
def test_no_such_process():
    done = attach("999999999")
    assert done.returncode == 3
    assert "no process 999999999" in done.stderr


@pytest.mark.parametrize("words", [["x"], ["0"], ["-5"], ["5", "--timeout", "nan"], ["5", "--timeout", "x"], []])
def test_wrong_usage(words):
    done = attach(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("ticketlock attach: ")
    assert "Traceback" not in done.stderr
