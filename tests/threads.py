"""Threads, signals and forked children for the tests of locks."""

import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import traceback
import warnings
from contextlib import contextmanager

import pytest
import watchdog

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
# Longer than anything here takes on a machine that is busy with other things; what takes longer hangs.
JOIN_S = 30

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
needs_timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that signal")


def spawn(target, *args):
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


def join(threads):
    for thread in threads:
        thread.join(JOIN_S)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"


def run_together(count, target):
    """Run `target(number)` in that many threads at once, to their end."""
    join([spawn(target, number) for number in range(count)])


class Holder:
    """A thread that holds a lock from now on, for a while or until it is told to let go."""

    def __init__(self, lock, seconds=JOIN_S):
        self._let_go = threading.Event()
        held = threading.Event()

        def hold():
            with lock:
                held.set()
                self._let_go.wait(seconds)

        self._thread = spawn(hold)
        assert held.wait(JOIN_S), "the lock cannot be taken"

    def let_go(self):
        self._let_go.set()
        self.join()

    def join(self):
        join([self._thread])

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.let_go()


@contextmanager
def alarm(handler, first_s, every_s=0.0):
    """Have the main thread handle SIGALRM after a while, and again at an interval if one is given."""
    former = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, first_s, every_s)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def raise_interrupt(signum, frame):
    raise KeyboardInterrupt


def in_forked_child(body):
    """Run `body()` in a forked child. Fails if it raises, or hangs: its stacks are on stderr then."""
    with warnings.catch_warnings():
        # From 3.12 on for every fork of a process with threads, which is what is to be tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            watchdog.die_with_all_stacks_after(JOIN_S)
            body()
            status = 0
        except BaseException:  # noqa: BLE001 - nothing of the test run may go on in here
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the child failed: see stderr"


def python(source, *options, runs=1):
    """Run `source` in a fresh interpreter, each time expecting success and a clean stderr; return what the last one wrote."""
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, *options, "-c", source], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == "", done.stderr
    return done.stdout.strip()


def smallest(measure, wanted, attempts=5):
    """The first measurement below `wanted`, or the smallest: other load on the machine can only make them larger."""
    found = []
    for _ in range(attempts):
        found.append(measure())
        if found[-1] < wanted:
            break
    return min(found)


def until(seconds):
    """Go round for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
