"""What every lock stands, whatever its type: for the tests of each. Whoever counts acquisitions gets their number."""

import ctypes
import threading
import time

from threads import FREE_THREADED, JOIN_S, run_together


class Untrue:
    """Neither true nor false."""

    def __bool__(self):
        raise ZeroDivisionError


def called_with_empty_keywords(function):
    """What `function()` returns if it is told that there are no keywords by an empty tuple, not by NULL."""
    call = ctypes.pythonapi.PyObject_Vectorcall
    call.restype = ctypes.py_object
    call.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_size_t, ctypes.py_object]
    return call(function, None, 0, ())


def check_exclusion(lock):
    threads, turns = 4, 500
    inside = []
    total = 0

    def work(me):
        nonlocal total
        for turn in range(turns):
            with lock:
                inside.append(me)
                seen = total
                if turn % 50 == 0:
                    time.sleep(0)  # lets others run while the lock is held
                total = seen + 1
                assert inside == [me]
                inside.pop()

    run_together(threads, work)
    assert total == threads * turns
    return total


def check_racing_releases(lock):
    """Two threads release one acquisition at the same time: exactly one is told that the lock is not held."""
    rounds = 2000
    start = threading.Barrier(2)
    errors = [0, 0]

    def release(me):
        for _ in range(rounds):
            if me == 0:
                lock.acquire()
            start.wait(JOIN_S)
            try:
                lock.release()
            except RuntimeError:
                errors[me] += 1
            start.wait(JOIN_S)

    run_together(2, release)
    assert sum(errors) == rounds
    assert not lock.locked()
    return rounds


def check_every_acquisition_is_released_once(lock):
    """One thread takes and releases, another only releases: whoever comes second must be told."""
    stop = time.monotonic() + (3 if FREE_THREADED else 0.3)
    taken = 0
    releases = [0, 0]

    def release(me):
        nonlocal taken
        acquire, release = lock.acquire, lock.release
        while time.monotonic() < stop:
            for _ in range(100):
                if me == 0 and acquire(False):
                    taken += 1
                try:
                    release()
                    releases[me] += 1
                except RuntimeError:
                    pass

    run_together(2, release)
    assert taken > 100
    assert sum(releases) + lock.locked() == taken
    return taken
