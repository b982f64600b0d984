"""What users of locks have reported against others, as tests of ours.

Each names the reports it comes from. Those about pools that starve although their lock is fair, and about acquisitions that
asyncio cancels, are not here: they concern a Condition and an asyncio lock of our own.
"""

import copy
import gc
import logging
import os
import pickle
import re
import signal
import sys
import threading
import time
import weakref

import pytest
import threads
from kinds import KINDS
from threads import FREE_THREADED, JOIN_S, Holder, alarm, join, needs_fork, needs_timers, python, raise_interrupt, spawn
from ticketlock import Lock, RLock

# --- signals -------------------------------------------------------------------------------------------------------------


@needs_timers
def test_a_handler_that_raises_ends_a_blocked_acquire(lock):
    """python/cpython#74157, #125541: a blocked acquire ignores Ctrl-C."""
    with Holder(lock):
        start = time.monotonic()
        with alarm(raise_interrupt, 0.2), pytest.raises(KeyboardInterrupt):
            lock.acquire()
        assert time.monotonic() - start < 5
        start = time.monotonic()
        with alarm(raise_interrupt, 0.2), pytest.raises(KeyboardInterrupt):
            lock.acquire(timeout=JOIN_S)
        assert time.monotonic() - start < 5
    assert lock.acquire(timeout=JOIN_S), "the waiter that left took the lock, or its place, with it"


def test_ctrl_c_reaches_a_blocked_main_thread_soon(lock):
    """The same, where another thread takes the signal, so that nothing wakes the one that waits."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt_after(seconds, sent):
        time.sleep(seconds)
        sent.append(time.monotonic())
        signal.raise_signal(signal.SIGINT)

    def latency():
        sent = []
        with Holder(lock, 10):
            interrupter = spawn(interrupt_after, 0.2, sent)
            with pytest.raises(KeyboardInterrupt):
                lock.acquire()
            late = time.monotonic() - sent[0]
            join([interrupter])
        assert lock.acquire(timeout=1), "interrupted, and yet taken"
        lock.release()
        return late

    try:
        assert threads.smallest(latency, 0.1) < 0.1
    finally:
        signal.signal(signal.SIGINT, former)


@needs_timers
def test_signals_do_not_stretch_a_timeout(lock):
    """python/cpython#4103 (PR): an interrupted wait begins anew with the full timeout."""
    handled = []
    with Holder(lock):
        start = time.monotonic()
        with alarm(lambda *_: handled.append(1), 0.01, 0.01):
            assert lock.acquire(timeout=0.5) is False
        assert 0.45 < time.monotonic() - start < 5
    assert len(handled) > 5, "handlers run while the thread waits"


@needs_timers
def test_a_handler_may_take_the_lock_that_its_thread_waits_for():
    """python/cpython#144706: the thread stands in line ahead of its own handler."""
    lock = RLock()
    handled = []

    def handler(*_):
        assert lock.acquire(timeout=JOIN_S)
        handled.append(lock._is_owned())
        lock.release()

    with Holder(lock, 0.5) as holder, alarm(handler, 0.1):
        assert lock.acquire(timeout=JOIN_S)
        holder.join()
    assert handled == [True]
    lock.release()
    assert not lock._is_owned()


@needs_timers
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="every context manager of 3.14 has this window (python/cpython#148874)")
def test_with_leaks_no_lock_to_an_exception_from_a_handler(lock):
    """python/cpython#148874, #74174: the handler runs after __enter__ and before there is an __exit__."""

    def take_again_and_again():
        while True:
            with lock:
                pass

    for _ in range(200):
        with pytest.raises(KeyboardInterrupt), alarm(raise_interrupt, 0.0005):
            take_again_and_again()
        assert lock.acquire(False), "still held"
        lock.release()


@needs_timers
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_a_condition_interrupted_while_it_takes_its_lock_back_releases_nobody_elses(make):
    """python/cpython#118433: `with condition` leaves by releasing a lock that another thread holds."""
    condition = threading.Condition(make())
    taken_over, may_take = threading.Event(), threading.Event()
    failures = []

    def take_over():
        may_take.wait(JOIN_S)
        try:
            with condition:
                taken_over.set()
                time.sleep(1)
        except RuntimeError as stolen:
            failures.append(stolen)

    def wait_and_be_interrupted():
        with condition, alarm(raise_interrupt, 0.5):
            may_take.set()
            # Gives the lock up, times out, and has to wait for the other thread to get it back: then the signal comes.
            condition.wait(0.1)

    other = spawn(take_over)
    with pytest.raises(KeyboardInterrupt):
        wait_and_be_interrupted()
    join([other])
    assert taken_over.is_set()
    assert failures == []
    assert condition.acquire(timeout=JOIN_S)
    condition.release()


# --- fairness ------------------------------------------------------------------------------------------------------------


def jain(counts):
    """Jain's index: 1 if all have the same, 1/n if one has all."""
    return sum(counts) ** 2 / (len(counts) * sum(count * count for count in counts))


def test_no_thread_dominates_under_contention(lock):
    """cython/cython#7023, #6999 (PR): one thread takes the lock again and again, the others may never finish."""
    count = 8

    def unfairness():
        turns = [0] * count

        def work(me):
            for _ in threads.until(1):
                with lock:
                    turns[me] += 1

        threads.run_together(count, work)
        return 1 - jain(turns)

    # The system's scheduler has a say in it too; with one thread alone ahead it would be 0.8 or more.
    assert threads.smallest(unfairness, 0.5) < 0.5


@pytest.mark.parametrize("make", [Lock, lambda: Lock(fairness="strict"), RLock], ids=["Lock", "Lock-strict", "RLock"])
def test_nobody_waits_for_long_while_holders_sleep(make):
    """The same family: the holder sleeps or does I/O, and a waiter is passed over for hundreds of milliseconds."""
    count, hold_s = 4, 0.001

    def longest_wait():
        lock = make()
        longest = [0.0] * count

        def work(me):
            for _ in threads.until(1):
                start = time.monotonic()
                with lock:
                    longest[me] = max(longest[me], time.monotonic() - start)
                    time.sleep(hold_s)

        threads.run_together(count, work)
        return max(longest)

    # Three holds, if all goes well.
    assert threads.smallest(longest_wait, 0.05) < 0.05


def test_a_try_neither_spins_nor_fails_on_a_free_lock(lock):
    """python/cpython#135871: a try-acquire spins, and can fail although the lock came free."""

    def seconds_of_cpu_for_failing():
        start = time.thread_time()
        for _ in range(1000):
            assert not lock.acquire(False)
            assert not lock.acquire(timeout=0)
        return time.thread_time() - start

    with Holder(lock):
        assert threads.smallest(seconds_of_cpu_for_failing, 0.05) < 0.05
    for _ in range(1000):
        assert lock.acquire(False)
        lock.release()
        assert lock.acquire(timeout=0)
        lock.release()


def test_waiters_leave_the_cpu_to_others(lock):
    """dotnet/runtime#112869: spinning waiters use up the CPU quota of a container."""
    with Holder(lock) as holder:
        waiters = [spawn(lambda: lock.acquire() and lock.release()) for _ in range(4)]
        time.sleep(0.2)

        def seconds_of_cpu():
            start = time.process_time()
            time.sleep(1)
            return time.process_time() - start

        assert threads.smallest(seconds_of_cpu, 0.05) < 0.05
        assert all(waiter.is_alive() for waiter in waiters)
        holder.let_go()
        join(waiters)


def test_a_waiter_lets_the_holder_go_on(lock):
    """PyO3/pyo3#4771, #916, python/cpython#119525 (PR): spinning for a native lock with the GIL, which the holder needs."""
    start = time.monotonic()
    with Holder(lock, 0.2):
        assert lock.acquire(timeout=JOIN_S)
        assert time.monotonic() - start < 10
        lock.release()


@pytest.mark.skipif(not FREE_THREADED, reason="has a GIL in any case")
def test_a_waiter_lets_the_holder_go_on_with_the_gil_switched_on():
    """The same on a free-threaded build that runs with a GIL."""
    source = """
import sys, threading, time
from ticketlock import Lock
assert sys._is_gil_enabled()
lock = Lock()
held = threading.Event()
def hold():
    with lock:
        held.set()
        for _ in range(20):
            time.sleep(0.01)
threading.Thread(target=hold).start()
held.wait()
assert lock.acquire(timeout=30)
"""
    python(source, "-X", "gil=1")


def test_the_longest_timeout(lock):
    """python/cpython#81846, jazzband/imaplib2#4 (PR), tpaviot/pythonocc-core#523: it overflows, and the wait ends at once."""
    results = []
    with Holder(lock) as holder:
        waiter = spawn(lambda: results.append((lock.acquire(True, threading.TIMEOUT_MAX), lock.release())))
        time.sleep(0.3)
        assert waiter.is_alive()
        for too_long in (threading.TIMEOUT_MAX + 1, 1e100, float("inf")):
            with pytest.raises(OverflowError):
                lock.acquire(True, too_long)
        holder.let_go()
        join([waiter])
    assert results == [(True, None)]


# --- what a lock looks like ----------------------------------------------------------------------------------------------


def test_an_rlock_that_another_thread_owns_is_locked():
    """python/cpython#134323: `locked()` is False while another thread owns the lock."""
    lock = RLock()
    with Holder(lock):
        assert repr(lock).startswith("<locked")
        assert lock.locked()
        assert not lock._is_owned()
        assert lock._recursion_count() == 0
        with pytest.raises(RuntimeError, match="^cannot release un-acquired lock$"):
            lock.release()
    assert not lock.locked()


def test_an_rlock_shows_its_count():
    """python/cpython#134322: a fresh lock shows a count of 1, or each thread another count."""
    lock = RLock()
    assert "count=0" in repr(lock)
    lock.acquire()
    lock.acquire()
    assert f"owner={threading.get_ident()} count=2" in repr(lock)
    seen = []
    join([spawn(lambda: seen.append(repr(lock)))])
    assert seen == [repr(lock)]
    lock.release()
    lock.release()
    assert re.fullmatch(r"<unlocked .*RLock object .*count=0 at 0x[0-9a-f]+>", repr(lock))


def test_a_class_attribute_is_the_lock_itself(lock):
    """DataDog/dd-trace-py#1301 (PR): a wrapped lock becomes a bound descriptor when it is read through an instance."""

    class Holding:
        shared = lock

    with Holding.shared:
        assert Holding().shared is lock
        assert not lock.acquire(False) or type(lock) is RLock
    assert weakref.ref(Holding.shared)() is lock
    assert Holding.shared != type(lock)()


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_no_copies(lock, duplicate):
    """DataDog/dd-trace-py#16000 (PR): a substitute can be copied or pickled, and gives two locks where there should be one."""
    with pytest.raises(TypeError, match="cannot pickle"):
        duplicate(lock)


def test_the_types_are_classes():
    """python/cpython#114315, DataDog/dd-trace-py#15880 (PR): `Lock | None` and subclasses fail where Lock is a function."""
    assert isinstance(Lock, type)
    assert isinstance(RLock, type)
    assert isinstance(Lock(), Lock | None)
    assert isinstance(None, RLock | None)
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (Lock,), {})

    class Named(RLock):
        def __init__(self, label, *, size):
            super().__init__()
            self.label = label, size

    named = Named("a", size=2)
    with named as entered:
        assert entered is True
        assert named._is_owned()
        assert named.label == ("a", 2)


def test_the_collector_lists_locks(lock):
    """gevent/gevent#1354, eventlet/eventlet#546: tools that look for living locks through gc do not see them."""
    assert gc.is_tracked(lock)
    assert any(known is lock for known in gc.get_objects())


# --- the end of the interpreter ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
@pytest.mark.parametrize("ending", ["", "atexit.register(lock.release)", "lock.release()"])
@pytest.mark.parametrize("timeout", ["", ", args=(True, 60)"])
def test_daemon_threads_that_wait_do_not_disturb_the_exit(kind, ending, timeout):
    """python/cpython#124878, #87135, PyO3/pyo3#6085 (PR): the process crashes, or the threads run in its ruins."""
    source = f"""
import atexit, threading, time
from ticketlock import {kind}
lock = {kind}()
lock.acquire()
for _ in range(8):
    threading.Thread(target=lock.acquire{timeout}, daemon=True).start()
time.sleep(0.1)
{ending}
"""
    python(source, runs=3)


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
@pytest.mark.parametrize(
    ("timeout", "answer"), [("timeout=0.2", "False"), ("", "cannot acquire lock at interpreter finalization")]
)
@pytest.mark.parametrize("importer", ["the main thread", "another thread"])
def test_a_finalizer_at_exit_does_not_wait_for_ever(kind, timeout, answer, importer):
    """python/cpython#135991 (PR): a finalizer waits for a lock whose owner is gone, and the process with it."""
    # Then the main thread has not been seen by the library before it is too late to ask whether it is that.
    elsewhere = "first = threading.Thread(target=__import__, args=('ticketlock',)); first.start(); first.join()"
    source = f"""
import os, sys, threading, time
{elsewhere if importer == "another thread" else ""}
from ticketlock import {kind}
lock = {kind}()
held = threading.Event()
class Finalized:
    def __del__(self, acquire=lock.acquire, write=os.write, error=RuntimeError):
        write(1, b"begins, ")
        try:
            answer = acquire({timeout})
        except error as told:  # PythonFinalizationError where there is one
            answer = told
        write(1, str(answer).encode())
def hold():
    lock.acquire()
    held.set()
    time.sleep(99)
threading.Thread(target=hold, daemon=True).start()
held.wait()
sys.finalized = Finalized()  # among the last things to go
"""
    assert python(source) == f"begins, {answer}"


# --- fork ----------------------------------------------------------------------------------------------------------------


@needs_fork
def test_a_forked_child_forgets_the_waiters_behind_its_lock(lock):
    """ROCm/rocm-systems#6777 (PR): the child waits for threads that do not exist there; their tickets are never served."""
    lock.acquire()
    waiters = [spawn(lambda: lock.acquire() and lock.release()) for _ in range(3)]
    time.sleep(0.2)

    def use():
        lock.release()
        assert not lock.locked()
        for _ in range(100):
            assert lock.acquire(timeout=JOIN_S)
            lock.release()
        with Holder(lock, 0.1):
            assert lock.acquire(timeout=JOIN_S)
            lock.release()

    threads.in_forked_child(use)
    lock.release()
    join(waiters)
    assert lock.acquire(False)


@needs_fork
def test_a_lock_whose_holder_is_lost_in_a_fork_can_be_made_anew(lock):
    """python/cpython#50970, #19195 (PR): a lock that another thread held at the fork stays locked for ever."""

    def use():
        assert lock.locked()
        assert not lock.acquire(False)
        lock._at_fork_reinit()
        assert not lock.locked()
        assert lock.acquire(False)
        lock.release()
        with Holder(lock, 0.1):
            assert lock.acquire(timeout=JOIN_S)
            lock.release()

    with Holder(lock):
        waiters = [spawn(lambda: lock.acquire() and lock.release()) for _ in range(3)]
        time.sleep(0.2)
        threads.in_forked_child(use)
    join(waiters)


@needs_fork
def test_a_forked_child_may_log_with_a_handler_that_was_busy():
    """DataDog/dd-trace-py#18900 (PR): the child hangs in `logging`, whose lock was held by another thread."""
    lock = RLock()
    handler = logging.StreamHandler(open(os.devnull, "w"))  # noqa: SIM115
    handler.lock = lock
    logger = logging.getLogger("ticketlock.tests.fork")
    logger.propagate = False
    logger.addHandler(handler)
    try:
        with Holder(lock):
            threads.in_forked_child(lambda: logger.error("from the child"))
    finally:
        logger.removeHandler(handler)
        handler.stream.close()
        handler.close()


# --- interpreters --------------------------------------------------------------------------------------------------------

SUBINTERPRETERS = """
ALONE = '''
from ticketlock import Lock, RLock
for lock in (Lock(), RLock()):
    with lock as entered:
        assert entered is True
        assert lock.locked()
    assert not lock.locked()
'''
TOGETHER = ALONE + '''
import threading, time
for lock in (Lock(), RLock()):
    lock.acquire()
    waiter = threading.Thread(target=lambda: lock.acquire() and lock.release())
    waiter.start()
    time.sleep(0.1)
    lock.release()
    waiter.join()
    assert not lock.locked()
'''
try:
    import _interpreters
    for kind in ("isolated", "legacy"):  # with a GIL of its own, and with the main one
        interpreter = _interpreters.create(kind)
        ended = _interpreters.exec(interpreter, TOGETHER)
        assert ended is None, ended
        _interpreters.destroy(interpreter)
except ImportError:
    import _xxsubinterpreters
    for isolated, code in ((True, ALONE), (False, TOGETHER)):  # isolated ones of 3.11 have no threads
        interpreter = _xxsubinterpreters.create(isolated=isolated)
        _xxsubinterpreters.run_string(interpreter, code)
        _xxsubinterpreters.destroy(interpreter)
exec(TOGETHER)
print("ok")
"""


def test_subinterpreters_have_locks_too():
    """PyO3/pyo3#576, #3451: the extension cannot be imported in a subinterpreter."""
    try:
        import _interpreters  # noqa: F401
    except ImportError:
        pytest.importorskip("_xxsubinterpreters")
    assert python(SUBINTERPRETERS) == "ok"


def test_the_import_leaves_the_gil_off():
    """scoder/fastrlock#19, cupy/cupy#8998, PyO3/maturin#2772: the import switches the GIL on, with a warning at best."""
    shown = python(
        "import sys, ticketlock; ticketlock.RLock(); print(getattr(sys, '_is_gil_enabled', lambda: True)())", "-W", "error"
    )
    assert shown == str(not FREE_THREADED)
