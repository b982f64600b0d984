"""Delivery of reports on waits: by a thread of its own, so that a callback never runs where a lock may be held.

The native side hands a report over right after the release of the lock it speaks of, but the releasing thread may still
hold others. Here it only puts the report in a queue; this thread calls back. A slow callback then delays no waiter, and so
cannot raise the delay, or lengthen the waits, that it reports.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

Report = Mapping[str, Any]
Deliver = Callable[[Report], object]
# Has the native side hand over its reports, or, with None, stop.
Switch = Callable[[Deliver | None], None]
Event = TypeVar("Event")


class Delivery:
    """One callback's queue and thread."""

    def __init__(self, deliver: Deliver, switch: Switch, name: str) -> None:
        self.deliver = deliver
        self.switch = switch
        self.reports: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to deliver, and have the native side report."""
        self.thread.start()
        self.switch(self.reports.put)

    def stop(self) -> None:
        """Deliver what was reported so far, and end. Does not wait: the callback itself may be the caller."""
        self.switch(None)
        self.reports.put(None)

    def _run(self) -> None:
        own = {"native_id": threading.get_native_id(), "ident": threading.get_ident()}
        while (report := self.reports.get()) is not None:
            # What the callback itself waits for is not reported: it would report for ever.
            if any(report.get(key) == number for key, number in own.items()):
                continue
            try:
                self.deliver(report)
            except Exception:  # noqa: BLE001 - whatever a callback raises goes where other threads' exceptions go
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class Watch(Generic[Event]):
    """The callback now set, one a process for each kind of report."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._change = threading.Lock()
        self._callback: Callable[[Event], object] | None = None
        self._delivery: Delivery | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def set(
        self, callback: Callable[[Event], object] | None, event: Callable[[Report], Event], switch: Switch
    ) -> Callable[[Event], object] | None:
        """Replace the callback, which gets every report as an `event`; None ends it. Returns the former one."""
        with self._change:
            previous, self._callback = self._callback, callback
            former, self._delivery = self._delivery, None
            if former is not None:
                former.stop()
            if callback is not None:
                self._begin(lambda report: callback(event(report)), switch)
        return previous

    def _begin(self, deliver: Deliver, switch: Switch) -> None:
        fresh = Delivery(deliver, switch, self._name)
        fresh.start()
        self._delivery = fresh

    def _in_child(self) -> None:
        """The thread stayed in the parent, and the lock may be held there."""
        self._change = threading.Lock()
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            self._begin(delivery.deliver, delivery.switch)
