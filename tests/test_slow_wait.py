"""`ticketlock.on_slow_wait`: which waits are told, how, and what is refused."""

from __future__ import annotations

import dataclasses
import math
import os
import queue
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import ticketlock
from conftest import environment
from kinds import KINDS
from threads import JOIN_S, Holder, in_forked_child, join, needs_fork, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EVERY_KIND = {**KINDS, "TicketLock": ticketlock.TicketLock}


@contextmanager
def told(ms: float) -> Iterator[queue.SimpleQueue[ticketlock.SlowWait]]:
    """What is told of waits from `ms` on."""
    events: queue.SimpleQueue[ticketlock.SlowWait] = queue.SimpleQueue()
    assert ticketlock.on_slow_wait(ms, events.put) is None
    try:
        yield events
    finally:
        deliverers = [thread for thread in threading.enumerate() if thread.name == "ticketlock-slow-wait"]
        ticketlock.on_slow_wait(None, None)
        join(deliverers)


def wait_behind(lock: Any, seconds: float) -> tuple[int, int]:
    """Have this thread wait that long for a lock, and release it; its ident and the line that waits."""
    with Holder(lock, seconds):
        lock.acquire()
        line = sys._getframe().f_lineno - 1
        lock.release()
    return threading.get_ident(), line


@pytest.mark.parametrize("make", EVERY_KIND.values(), ids=EVERY_KIND.keys())
def test_a_slow_wait_is_told(make: Callable[[], Any]) -> None:
    lock = make()
    with told(50) as events:
        ident, line = wait_behind(lock, 0.2)
        event = events.get(timeout=JOIN_S)
    assert event.lock == lock.id
    assert 50 <= event.wait_ms < 1_000 * JOIN_S
    assert event.ident == ident
    assert event.thread == threading.current_thread().name
    assert event.name is None
    assert event.site == f"{__file__}:{line}"


def test_an_event_names_the_lock_and_cannot_be_changed() -> None:
    # Kept: the name of a lock that is gone is not known.
    ledger, other = ticketlock.Lock(name="ledger"), ticketlock.Lock(name="other")
    with told(20) as events:
        wait_behind(ledger, 0.1)
        event = events.get(timeout=JOIN_S)
        wait_behind(other, 0.1)
        assert events.get(timeout=JOIN_S).name == "other"
    assert event.name == "ledger"
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.lock = 3  # type: ignore[misc]


def test_short_waits_are_not_told() -> None:
    with told(60_000) as events:
        wait_behind(ticketlock.Lock(), 0.05)
        time.sleep(0.1)
    assert events.empty()


def test_it_is_told_after_the_release() -> None:
    lock = ticketlock.Lock()
    with told(20) as events:
        with Holder(lock, 0.1):
            lock.acquire()
        with pytest.raises(queue.Empty):
            events.get(timeout=0.2)
        lock.release()
        assert events.get(timeout=JOIN_S).lock == lock.id


def test_the_former_callback_is_returned() -> None:
    def first(event: ticketlock.SlowWait) -> None:
        """Never called."""

    def second(event: ticketlock.SlowWait) -> None:
        """Never called."""

    assert ticketlock.on_slow_wait(60_000, first) is None
    assert ticketlock.on_slow_wait(60_000, second) is first
    assert ticketlock.on_slow_wait(5, None) is second
    assert ticketlock.on_slow_wait(None, None) is None


def test_switched_off_nothing_is_told() -> None:
    with told(1) as events:
        ticketlock.on_slow_wait(None, None)
        wait_behind(ticketlock.Lock(), 0.1)
        time.sleep(0.1)
    assert events.empty()


def test_a_callback_that_blocks_or_waits_for_locks_disturbs_nobody() -> None:
    contended = ticketlock.Lock()
    begun, go_on = threading.Event(), threading.Event()
    calls = []

    def slow(event: ticketlock.SlowWait) -> None:
        calls.append(event.lock)
        begun.set()
        go_on.wait(JOIN_S)
        # Waits itself, which is not told: it would be told for ever.
        wait_behind(contended, 0.1)

    lock = ticketlock.Lock()
    ticketlock.on_slow_wait(20, slow)
    try:
        wait_behind(lock, 0.1)
        assert begun.wait(JOIN_S)
        wait_behind(lock, 0.1)
        assert not lock.locked()
    finally:
        go_on.set()
        deliverers = [thread for thread in threading.enumerate() if thread.name == "ticketlock-slow-wait"]
        ticketlock.on_slow_wait(None, None)
        join(deliverers)
    assert calls == [lock.id, lock.id]


def test_a_callback_that_raises_is_heard_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: queue.SimpleQueue[type[BaseException]] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.put(args.exc_type))

    def bad(event: ticketlock.SlowWait) -> None:
        raise LookupError("planted")

    ticketlock.on_slow_wait(20, bad)
    try:
        for _ in range(2):
            wait_behind(ticketlock.Lock(), 0.1)
            assert raised.get(timeout=JOIN_S) is LookupError
    finally:
        ticketlock.on_slow_wait(None, None)


@needs_fork
def test_a_forked_child_goes_on_telling() -> None:
    with told(20) as events:

        def child() -> None:
            lock = ticketlock.Lock(name="of the child")
            wait_behind(lock, 0.1)
            event = events.get(timeout=JOIN_S)
            assert (event.lock, event.name) == (lock.id, "of the child")
            # What was set before the fork can be taken back.
            assert ticketlock.on_slow_wait(None, None) is not None

        in_forked_child(child)
        lock = ticketlock.Lock()
        wait_behind(lock, 0.1)
        assert events.get(timeout=JOIN_S).lock == lock.id


@needs_fork
def test_a_fork_while_the_callback_runs() -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: queue.SimpleQueue[int] = queue.SimpleQueue()

    def slow(event: ticketlock.SlowWait) -> None:
        begun.set()
        go_on.wait(JOIN_S)
        seen.put(event.lock)

    ticketlock.on_slow_wait(20, slow)
    try:
        wait_behind(ticketlock.Lock(), 0.1)
        assert begun.wait(JOIN_S)

        def child() -> None:
            go_on.set()
            lock = ticketlock.Lock()
            wait_behind(lock, 0.1)
            assert seen.get(timeout=JOIN_S) == lock.id

        in_forked_child(child)
    finally:
        go_on.set()
        ticketlock.on_slow_wait(None, None)


@pytest.mark.parametrize("ms", [0, -1, -0.5, math.nan, math.inf])
def test_numbers_that_are_no_length_of_time_are_refused(ms: float) -> None:
    with pytest.raises(ValueError, match="ms must be a number of milliseconds above 0, got"):
        ticketlock.on_slow_wait(ms, print)


@pytest.mark.parametrize("ms", ["5", None, [5]])
def test_what_is_no_number_is_refused(ms: Any) -> None:
    with pytest.raises(TypeError, match="ms must be a number of milliseconds above 0, got"):
        ticketlock.on_slow_wait(ms, print)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a callable or None, got int"):
        ticketlock.on_slow_wait(5, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("ms", [1e-9, 10**30])
def test_any_length_above_0_is_accepted(ms: float) -> None:
    with told(ms):
        pass


def test_without_telemetry_it_is_told_without_names() -> None:
    source = """
import queue, sys, threading, time, ticketlock
events = queue.SimpleQueue()
ticketlock.on_slow_wait(20, events.put)
lock = ticketlock.Lock(name="x")
held = threading.Event()
def hold():
    with lock:
        held.set()
        time.sleep(0.1)
threading.Thread(target=hold).start()
held.wait(20)
with lock:
    pass
event = events.get(timeout=20)
print(event.lock == lock.id, event.name, event.site, event.wait_ms >= 20)
"""
    done = subprocess.run(
        [sys.executable, "-c", source],
        env=environment(TICKETLOCK_TELEMETRY="0"),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.stdout.strip(), done.stderr) == ("True None None True", "")


def test_many_threads_that_wait_slowly_are_all_told() -> None:
    lock = ticketlock.Lock()
    waited = []

    def work(number: int) -> None:
        for _ in range(5):
            lock.acquire()
            time.sleep(0.003)
            lock.release()

    with told(1) as events:
        join([spawn(work, number) for number in range(6)])
        deadline = time.monotonic() + JOIN_S
        slow_at_least = sum(lock.stats()["wait_ns_log2"][20:])  # 2**20 ns are more than 1 ms
        assert slow_at_least > 0
        while len(waited) < slow_at_least and time.monotonic() < deadline:
            waited.append(events.get(timeout=JOIN_S))
    assert len(waited) == slow_at_least
    assert {event.lock for event in waited} == {lock.id}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX only")
def test_an_exit_while_waits_are_told_is_clean() -> None:
    source = """
import threading, time, ticketlock
ticketlock.on_slow_wait(1, lambda event: time.sleep(0.001))
lock = ticketlock.Lock()
def work():
    while True:
        with lock:
            time.sleep(0.002)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
"""
    done = subprocess.run([sys.executable, "-c", source], env=environment(), capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
