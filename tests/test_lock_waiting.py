"""Locks while somebody waits for them: other threads' releases, signals, forks, the collector, interpreters and their end."""

import _thread
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import contract
import pytest
from threads import (
    JOIN_S,
    Holder,
    alarm,
    in_forked_child,
    join,
    needs_fork,
    needs_timers,
    python,
    raise_interrupt,
    run_together,
    spawn,
)
from ticketlock import Lock, RLock

KINDS = [Lock, RLock]
# A waiter that has gone to sleep: it does so within a few microseconds once it runs.
ASLEEP_S = 0.05


# --- threads -------------------------------------------------------------------------------------------------------------


def test_exclusion(lock):
    assert contract.check_exclusion(lock) == lock.stats()["acquisitions"]
    assert not lock.locked()


def test_a_release_by_another_thread_lets_a_waiter_in():
    lock = Lock()
    lock.acquire()
    for _ in range(20):
        waiter = spawn(lock.acquire)
        time.sleep(0.002)
        join([spawn(lock.release)])
        join([waiter])
        assert lock.locked()


def test_a_timeout_is_kept_and_leaves_no_trace(lock):
    with Holder(lock) as holder:
        for timeout in (0.001, 0.05, 0.2):
            start = time.monotonic()
            assert lock.acquire(timeout=timeout) is False
            assert timeout <= time.monotonic() - start < timeout + 5
        waiter = spawn(lock.acquire)
        time.sleep(ASLEEP_S)
        assert not lock.acquire(timeout=0.01)
        holder.let_go()
        join([waiter])
    assert lock.locked()
    assert lock.stats()["timeouts"] == 4


def test_a_timeout_that_rounds_to_minus_one_is_none():
    lock = Lock()
    lock.acquire()
    waiter = spawn(lock.acquire, True, -0.9999999999)
    waiter.join(1.5)
    assert waiter.is_alive(), "waits for ever"
    lock.release()
    join([waiter])


def test_many_timeouts_and_grants_mixed(lock):
    taken = [0] * 4

    def work(me):
        for turn in range(300):
            if lock.acquire(timeout=(turn % 7) * 1e-4):
                taken[me] += 1
                if turn % 20 == 0:
                    time.sleep(0.0005)
                lock.release()

    run_together(4, work)
    assert sum(taken) == lock.stats()["acquisitions"] > 0
    assert not lock.locked()
    assert lock.acquire(False)


def test_waiters_are_detached(lock):
    """The collector, other threads and forks go on while threads wait."""
    with Holder(lock) as holder:
        waiters = [spawn(lambda: (lock.acquire(), lock.release())) for _ in range(3)]
        time.sleep(ASLEEP_S)
        gc.collect()
        join([spawn(sum, range(1000))])
        if hasattr(os, "fork"):
            in_forked_child(gc.collect)
        assert all(waiter.is_alive() for waiter in waiters)
        holder.let_go()
        join(waiters)
    assert not lock.locked()


# --- signals -------------------------------------------------------------------------------------------------------------


def test_an_interrupt_without_a_signal_is_noticed(lock):
    """`_thread.interrupt_main()` sends nothing that would wake a sleeper."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Holder(lock):
            sent = []

            def interrupt():
                time.sleep(0.2)
                sent.append(time.monotonic())
                _thread.interrupt_main()

            thread = spawn(interrupt)
            with pytest.raises(KeyboardInterrupt):
                lock.acquire()
            assert time.monotonic() - sent[0] < 5
            join([thread])
    finally:
        signal.signal(signal.SIGINT, former)
    assert lock.acquire(timeout=JOIN_S)


@needs_timers
def test_other_threads_take_no_signals(lock):
    """A handler runs in the main thread, and does not shorten another thread's wait."""
    ran, timed_out = [], []

    def wait():
        start = time.monotonic()
        timed_out.append(lock.acquire(timeout=0.5) is False and time.monotonic() - start >= 0.5)

    with Holder(lock), alarm(lambda *_: ran.append(threading.get_ident()), 0.01, 0.01):
        waiter = spawn(wait)
        waiter.join(JOIN_S)
    assert timed_out == [True]
    assert {*ran} == {threading.get_ident()}


@needs_timers
def test_the_place_in_line_is_given_up_before_a_handler_runs():
    """Behind the main thread another one waits, and the main thread's handler waits for that."""
    lock = Lock(fairness="strict")
    passed = threading.Event()
    handled = []
    holder = Holder(lock)

    def behind():
        with lock:
            passed.set()

    def handler(*_):
        if not handled:
            handled.append(None)
            holder.let_go()
            handled.append(passed.wait(JOIN_S))

    def line_up():
        time.sleep(0.2)
        behind()

    waiter = spawn(line_up)
    with alarm(handler, 0.5):
        assert lock.acquire(timeout=JOIN_S)
    assert handled == [None, True], "the lock went to a thread that was busy with its handler"
    join([waiter])


@needs_timers
def test_a_handler_may_leave_an_rlock_with_its_thread():
    lock = RLock()
    holder = Holder(lock)

    def handler(*_):
        holder.let_go()
        lock.acquire()

    with alarm(handler, 0.1):
        assert lock.acquire()
    assert lock._recursion_count() == 2
    assert lock.stats()["acquisitions"] == 2


@needs_timers
@pytest.mark.parametrize("kind", KINDS)
def test_a_conditions_lock_is_taken_back_whatever_signals_come(kind):
    lock = kind()
    lock.acquire()
    saved = lock._release_save()
    handled = []

    def handler(*_):
        handled.append(time.monotonic())
        raise KeyboardInterrupt

    def take_back():
        lock._acquire_restore(saved)
        while not handled:
            pass  # the handler runs at the next occasion

    with Holder(lock, 0.5):
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt), alarm(handler, 0.1):
            take_back()
    assert handled[0] - start > 0.3, "while somebody else held it"
    assert lock.locked()
    if kind is RLock:
        assert lock._is_owned()


@needs_fork
@needs_timers
def test_the_main_thread_of_a_child_is_the_one_that_forked(lock):
    """Its handlers run there, so its waits end there: also where in the parent it was not the main thread."""

    def body():
        with Holder(lock):
            start = time.monotonic()
            with pytest.raises(KeyboardInterrupt), alarm(raise_interrupt, 0.1):
                lock.acquire(timeout=JOIN_S)
            assert time.monotonic() - start < 5

    failed = []

    def fork():
        try:
            in_forked_child(body)
        except BaseException as error:  # noqa: BLE001 - shown below
            failed.append(error)

    join([spawn(fork)])
    assert failed == []


IMPORTED_ELSEWHERE = """
import threading, signal, time
thread = threading.Thread(target=__import__, args=("ticketlock",))
thread.start()
thread.join()
from ticketlock import Lock

def interrupt(*_):
    raise KeyboardInterrupt

lock = Lock()
lock.acquire()
signal.signal(signal.SIGALRM, interrupt)
for _ in range(2):
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        lock.acquire(timeout=10)
    except KeyboardInterrupt:
        print("interrupted")
"""


@needs_timers
def test_the_main_thread_is_found_when_another_one_imports():
    assert python(IMPORTED_ELSEWHERE).split() == ["interrupted"] * 2


# --- interpreters --------------------------------------------------------------------------------------------------------

SUBINTERPRETERS = """
try:
    import _interpreters
    def kinds():
        yield "isolated"
        yield "legacy"
    def run(kind, code):
        interpreter = _interpreters.create(kind)
        ended = _interpreters.exec(interpreter, code)
        assert ended is None, ended
        _interpreters.destroy(interpreter)
except ImportError:
    import _xxsubinterpreters
    def kinds():
        # Both share the GIL before 3.12.
        yield True
        yield False
    def run(kind, code):
        interpreter = _xxsubinterpreters.create(isolated=kind)
        _xxsubinterpreters.run_string(interpreter, code)
        _xxsubinterpreters.destroy(interpreter)

CODE = '''
import time, threading
from ticketlock import Lock, RLock

class Derived(RLock):
    def __init__(self):
        super().__init__(name="derived")
        self.me = self

for lock in (Lock(name="inner"), Derived(), RLock()):
    with lock as entered:
        assert entered is True
        assert lock.locked()
    lock.acquire()
    if type(lock) is Lock:
        assert not lock.acquire(timeout=0.12)  # longer than a slice of an interruptible wait
        assert lock.stats()["timeouts"] == 1
        try:
            lock.acquire(timeout=-2)
        except ValueError:
            pass
        else:
            raise AssertionError
print("ok")
'''

from ticketlock import Lock
held = Lock()
with held:
    for kind in kinds():
        run(kind, CODE)
run(kind, CODE)
"""


def test_subinterpreters():
    try:
        import _interpreters  # noqa: F401
    except ImportError:
        pytest.importorskip("_xxsubinterpreters")
    assert python(SUBINTERPRETERS).split() == ["ok"] * 3


THREADS_IN_SUBINTERPRETER = """
import _interpreters
CODE = '''
import threading, time
from ticketlock import Lock
lock = Lock()
total = 0
def work():
    global total
    for turn in range(500):
        with lock:
            seen = total
            if turn % 50 == 0:
                time.sleep(0)
            total = seen + 1
lock.acquire()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
time.sleep(0.05)
lock.release()
for thread in threads:
    thread.join()
assert total == 2000
assert lock.stats()["contended"] > 0
print("ok")
'''
import threading
def run():
    interpreter = _interpreters.create("isolated")
    ended = _interpreters.exec(interpreter, CODE)
    assert ended is None, ended
    _interpreters.destroy(interpreter)
threads = [threading.Thread(target=run) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_of_several_interpreters_with_a_gil_each():
    pytest.importorskip("_interpreters")
    assert python(THREADS_IN_SUBINTERPRETER).split() == ["ok"] * 2


# --- the end -------------------------------------------------------------------------------------------------------------

AT_EXIT = """
import gc, threading, time
from ticketlock import {kind}
lock = {kind}()
held = threading.Event()

def hold():
    lock.acquire()
    held.set()
    time.sleep(1000)

class Last:
    def __del__(self):
        try:
            lock.acquire()
        except RuntimeError as error:
            print(type(error).__name__, error, flush=True)

threading.Thread(target=hold, daemon=True).start()
held.wait()
last = Last()
last.me = last
gc.disable()
del last  # the last collection finds it
"""


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_wait_that_could_only_hang_the_exit_is_refused(kind):
    expected = "PythonFinalizationError" if sys.version_info >= (3, 13) else "RuntimeError"
    said = python(AT_EXIT.format(kind=kind))
    assert said == f"{expected} cannot acquire lock at interpreter finalization"


BUSY_DAEMONS = """
import threading, time
from ticketlock import Lock, RLock
locks = [Lock(), RLock(), Lock(fairness="strict")]

def work():
    while True:
        for lock in locks:
            with lock:
                pass
            if lock.acquire(timeout=0.0001):
                time.sleep(0)
                lock.release()

for _ in range(6):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""


def test_the_exit_while_daemon_threads_come_and_go():
    python(BUSY_DAEMONS, runs=5)


@needs_timers
def test_ctrl_c_ends_a_program_that_waits_for_itself():
    program = "from ticketlock import Lock\nlock = Lock()\nlock.acquire()\nprint('waits', flush=True)\nlock.acquire()"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=JOIN_S)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_a_wait_at_the_limit_of_recursion_waits():
    """Nothing that a wait asks the interpreter may be mistaken for an answer when there is no stack left for the question."""
    source = """
import threading, time
from ticketlock import Lock
lock, held = Lock(), threading.Event()
def hold():
    with lock:
        held.set()
        time.sleep(0.2)
def take(depth):
    return take(depth - 1) if depth else lock.acquire()
for depth in range(1000, 900, -1):
    held.clear()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        take(depth)
    except RecursionError:
        holder.join()
        continue
    holder.join()
    lock.release()
    break
print("taken", depth > 900)
"""
    assert python(source) == "taken True"
