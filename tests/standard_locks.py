"""Puts our locks where the standard library looks for its own."""

import _thread
import sys

from ticketlock import Lock, RLock


def replace_in_threading():
    """The five names through which `threading` makes every lock of its own, from now on."""
    import threading

    threading.Lock = threading._allocate_lock = Lock
    threading.RLock = threading._CRLock = threading._PyRLock = RLock


def replace_everywhere():
    """In `_thread`, before `threading` is imported and takes them from there; the import system uses them too."""
    assert "threading" not in sys.modules
    _thread.allocate_lock = _thread.allocate = Lock
    for name in ("lock", "LockType"):
        if hasattr(_thread, name):
            setattr(_thread, name, Lock)
    _thread.RLock = RLock


def check_replaced():
    """Raise AssertionError unless what the standard library makes now is ours."""
    import threading

    assert type(threading.Lock()) is Lock
    assert type(threading.RLock()) is RLock
    assert type(threading.Condition()._lock) is RLock
    assert type(threading.Event()._cond._lock) is Lock
