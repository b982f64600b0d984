"""What type checkers must accept, and refuse: read by them, never run.

A line with an ignore must be wrong: both checkers are told to complain about an ignore that is not needed.
"""

import threading
from typing import assert_type

import ticketlock
from ticketlock import Fairness, Lock, LockLike, LockStats, RLock, TicketLock


def guard(lock: LockLike) -> bool:
    with lock as entered:
        assert_type(entered, bool)
    if lock.acquire(timeout=0.5):
        lock.release()
    return lock.acquire(False)


def every_lock_is_like_a_lock() -> None:
    guard(Lock())
    guard(RLock(name="orders", fairness="strict"))
    guard(threading.Lock())
    guard(threading.RLock())
    guard(threading.Condition(threading.Lock()))
    guard(TicketLock())  # type: ignore[arg-type]  # it takes no timeout
    guard(threading.Event())  # type: ignore[arg-type]


def what_a_lock_tells(lock: Lock) -> None:
    assert_type(lock.acquire(), bool)
    assert_type(lock.acquire(True, -1), bool)
    assert_type(lock.acquire(blocking=False), bool)
    assert_type(lock.release(), None)
    assert_type(lock.locked(), bool)
    assert_type(lock.name, str | None)
    assert_type(lock.fairness, Fairness)
    assert_type(lock.id, int)
    stats = lock.stats()
    assert_type(stats, LockStats)
    assert_type(stats["acquisitions"], int)
    assert_type(stats["wait_ns_log2"], list[int])
    stats["waits"]  # type: ignore[typeddict-item]
    lock.name = "other"  # type: ignore[misc]
    with lock as entered:
        assert_type(entered, bool)
    # A lock that swallowed exceptions would make this reachable, and the end of the function possible.
    assert_type(after_with(lock), int)


def after_with(lock: Lock) -> int:
    with lock:
        return 1


def how_a_lock_is_made(fairness: Fairness) -> None:
    Lock(name=None, fairness=fairness)
    Lock(name="cache")
    Lock("cache")  # type: ignore[call-arg]
    Lock(fairness="fair")  # type: ignore[arg-type]
    Lock(name=1)  # type: ignore[arg-type]
    RLock("cache")  # type: ignore[call-arg]
    Lock().acquire("long")  # type: ignore[arg-type]
    Lock().acquire(True, None)  # type: ignore[arg-type]


class Derived(RLock):
    def __init__(self, label: str) -> None:
        super().__init__(name=label)


class Wrong(Lock):  # type: ignore[misc]
    pass


def what_derives_from_rlock() -> None:
    with Derived("label") as entered:
        assert_type(entered, bool)
    assert_type(Derived("label"), Derived)
    assert_type(Derived("label")._release_save(), tuple[int, int])
    guard(Derived("label"))
    Derived()  # type: ignore[call-arg]


def what_the_package_has() -> None:
    assert_type(ticketlock.Lock(), Lock)
    assert_type(ticketlock.RLock(), RLock)
    print(ticketlock.Mutex)  # type: ignore[attr-defined]
