"""Delivery of delay reports: by a thread of its own, so that a callback never runs where a lock may be held.

The native side hands a report over right after the release of the lock it speaks of, but the releasing thread may still
hold others. Here it only puts the report in a queue; this thread calls back. A slow callback then delays no waiter, and so
cannot raise the delay it reports.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from . import _lab

Report = Mapping[str, Any]
Deliver = Callable[[Report], object]


class Delivery:
    """One callback's queue and thread."""

    def __init__(self, deliver: Deliver) -> None:
        self.deliver = deliver
        self.reports: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="ticketlock-watch", daemon=True)

    def start(self) -> None:
        """Begin to deliver, and have the native side report."""
        self.thread.start()
        _lab.set_delay_watch(self.reports.put)

    def stop(self) -> None:
        """Deliver what was reported so far, and end. Does not wait: the callback itself may be the caller."""
        _lab.set_delay_watch(None)
        self.reports.put(None)

    def _run(self) -> None:
        own = threading.get_native_id()
        while (report := self.reports.get()) is not None:
            # What the callback itself waits for is not reported: it would report for ever.
            if report["native_id"] == own:
                continue
            try:
                self.deliver(report)
            except Exception:  # noqa: BLE001 - whatever a callback raises goes where other threads' exceptions go
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class Watch:
    """The delivery now set, one a process."""

    def __init__(self) -> None:
        self._change = threading.Lock()
        self._delivery: Delivery | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def set(self, deliver: Deliver | None) -> None:
        """Replace the delivery; None ends it."""
        with self._change:
            former, self._delivery = self._delivery, None
            if former is not None:
                former.stop()
            if deliver is not None:
                fresh = Delivery(deliver)
                fresh.start()
                self._delivery = fresh

    def _in_child(self) -> None:
        """The thread stayed in the parent, and the lock may be held there."""
        self._change = threading.Lock()
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            self.set(delivery.deliver)


WATCH = Watch()
