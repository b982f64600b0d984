"""`ticketlock.machine`, `delays` and `on_delay_watch`: typed views of what the native module says."""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import threading
import time
from typing import Any

import pytest
import ticketlock
from ticketlock import _lab, _observe


def test_machine_is_a_frozen_value() -> None:
    machine = ticketlock.machine()
    assert isinstance(machine, ticketlock.Machine)
    assert machine.cpus.usable >= 1
    assert machine.delay_cap >= 1
    assert machine.build["version"] == ticketlock.__version__
    assert machine.python.version.startswith("3.")
    with pytest.raises(dataclasses.FrozenInstanceError):
        machine.delay_cap = 5  # type: ignore[misc]
    json.dumps(machine.to_json(), allow_nan=False)


def test_the_package_offers_exactly_its_names() -> None:
    assert set(ticketlock.__all__) <= set(dir(ticketlock))
    for name in ticketlock.__all__:
        assert getattr(ticketlock, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
        _ = ticketlock.nosuch  # type: ignore[attr-defined]


def test_delays_are_typed_and_carry_the_names_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    here = threading.get_native_id()
    rows = [(here, 5, 1, 12, 3.5, 40, 2), (here, 0, 0, -1, 7.0, 0, 0), (1, 6, 2, 0, 1.0, 1, 0)]
    monkeypatch.setattr(_observe._lab, "delays", lambda: rows)
    assert ticketlock.delays() == [
        ticketlock.DelayRow(None, 1, 6, 2, 0, 1.0, 1, 0),
        ticketlock.DelayRow(threading.current_thread().name, here, None, 0, None, 7.0, 0, 0),
        ticketlock.DelayRow(threading.current_thread().name, here, 5, 1, 12, 3.5, 40, 2),
    ]


def line_up(lock: ticketlock.TicketLock) -> list[ticketlock.DelayRow]:
    """The delays of a lock for which three threads have waited in line."""
    through, seen = threading.Barrier(4), threading.Event()

    def wait_in_line() -> None:
        with lock:
            pass
        through.wait(30)
        seen.wait(30)

    threads = [threading.Thread(target=wait_in_line, name=f"waiter-{n}", daemon=True) for n in range(3)]
    with lock:
        for thread in threads:
            thread.start()
        time.sleep(0.05)  # for all three to draw their tickets; where it was not enough, the next turn may be
    through.wait(30)
    found = [row for row in ticketlock.delays() if row.lock == lock.id]
    seen.set()
    for thread in threads:
        thread.join(30)
    return found


def test_waiting_behind_a_waiter_leaves_a_delay_of_this_lock() -> None:
    lock = ticketlock.TicketLock()
    found = next((rows for _ in range(50) if (rows := line_up(lock))), [])
    assert found, "nobody ever waited behind another"
    for row in found:
        assert row.thread in ("waiter-0", "waiter-1", "waiter-2")
        assert row.delay >= 1.0
        assert row.slot is not None
        assert 0 <= row.slot < 64
    # A joined Python thread may still be on its way out of the system.
    for _ in range(500):
        left = [row for row in ticketlock.delays() if row.lock == lock.id]
        if not left:
            break
        time.sleep(0.01)
    assert left == [], "delays of threads that are gone"


def test_the_watch_gets_typed_events_and_returns_the_previous_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    native: list[Any] = []
    monkeypatch.setattr(_lab, "set_delay_watch", native.append)
    events: queue.SimpleQueue[tuple[ticketlock.DelayEvent, str]] = queue.SimpleQueue()

    def first(event: ticketlock.DelayEvent) -> None:
        events.put((event, threading.current_thread().name))

    def second(event: ticketlock.DelayEvent) -> None:
        """Never called."""

    assert ticketlock.on_delay_watch(first) is None
    native[0](
        {
            "lock": 9,
            "delay": 4.0,
            "previous_max": 2.5,
            "native_id": threading.get_native_id(),
            "traceback": [("a.py", 3, "outer"), ("b.py", 7, "inner")],
        }
    )
    event, deliverer = events.get(timeout=20)
    assert ticketlock.on_delay_watch(second) is first
    assert ticketlock.on_delay_watch(None) is second
    assert ticketlock.on_delay_watch(None) is None
    assert [callback is None for callback in native] == [False, True, False, True]
    assert deliverer == "ticketlock-watch"
    assert (event.lock, event.delay, event.previous_max, event.thread) == (9, 4.0, 2.5, threading.current_thread().name)
    assert event.traceback[-1] == _observe.Frame("b.py", 7, "inner")
    text = event.format()
    assert "delay of lock 9 grew to 4.00 units (largest before: 2.50)" in text
    assert text.endswith('  File "b.py", line 7, in inner')


def grow_a_delay(lock: ticketlock.TicketLock) -> None:
    """Three in line behind a long hold: the delays of the last two grow."""
    with lock:
        threads = [threading.Thread(target=lambda: lock.acquire() and lock.release()) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join(20)


def stop_watching() -> None:
    """Switch the watch off, and wait until its thread has delivered what was reported."""
    deliverers = [thread for thread in threading.enumerate() if thread.name == "ticketlock-watch"]
    ticketlock.on_delay_watch(None)
    for thread in deliverers:
        thread.join(20)


def test_a_blocked_callback_blocks_no_lock() -> None:
    lock = ticketlock.TicketLock()
    begun, go_on = threading.Event(), threading.Event()

    def slow(event: ticketlock.DelayEvent) -> None:
        begun.set()
        go_on.wait(30)

    ticketlock.on_delay_watch(slow)
    try:
        grow_a_delay(lock)
        assert begun.wait(20), "no report"
        grow_a_delay(lock)
        assert not lock.locked()
    finally:
        go_on.set()
        stop_watching()


def test_a_callback_that_raises_is_heard_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: queue.SimpleQueue[type[BaseException]] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.put(args.exc_type))

    def bad(event: ticketlock.DelayEvent) -> None:
        raise LookupError("planted")

    ticketlock.on_delay_watch(bad)
    try:
        for _ in range(2):
            grow_a_delay(ticketlock.TicketLock())
            assert raised.get(timeout=20) is LookupError
    finally:
        stop_watching()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_goes_on_watching() -> None:
    events: list[ticketlock.DelayEvent] = []
    ticketlock.on_delay_watch(events.append)
    try:
        child = os.fork()
        if child == 0:
            grow_a_delay(ticketlock.TicketLock())
            for _ in range(2_000):
                if events:
                    os._exit(0)
                time.sleep(0.01)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop_watching()


def test_the_watch_refuses_what_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="expected a callable or None, got int"):
        ticketlock.on_delay_watch(5)  # type: ignore[arg-type]


def test_the_real_watch_switches_on_and_off() -> None:
    def callback(event: ticketlock.DelayEvent) -> None:
        """Nothing waits here."""

    assert ticketlock.on_delay_watch(callback) is None
    assert ticketlock.on_delay_watch(None) is callback
