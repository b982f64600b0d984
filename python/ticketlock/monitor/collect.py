"""Reads a source at a steady pace in a thread of its own, so that a source that waits never holds up keys and signals."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .model import Snapshot
    from .source import Source

# A source that has not come back by then is left behind when the screen closes.
PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look at the source gave: a snapshot, an end, or what went wrong. Nothing of these: a total that was asked for."""

    snapshot: Snapshot | None = None
    total: Snapshot | None = None
    ending: str | None = None
    problem: Exception | None = None


class Collector:
    """The only user of a source between `start` and `stop`. `wake` is called, from its thread, whenever there is something."""

    def __init__(self, source: Source, interval_s: float, wake: Callable[[], None]) -> None:
        self._source = source
        self._interval_s = interval_s
        self._wake = wake
        self._readings: queue.SimpleQueue[Reading] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._over = False
        self._reset = False
        # Totals cost as much as the snapshot itself: they are made while somebody looks at them.
        self._totals = False
        self._asked = False
        self._thread = threading.Thread(target=self._run, name="ticketlock-reader", daemon=True)

    def start(self) -> None:
        """Take the first reading now, and go on."""
        self._thread.start()

    def stop(self) -> None:
        """End, and close the source unless it is still waiting for something."""
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE_S)
        if not self._thread.is_alive():
            self._source.close()

    def pace(self, interval_s: float) -> None:
        """Read at another interval from the next reading on."""
        with self._changed:
            self._interval_s = interval_s
            self._changed.notify()

    def reset(self) -> None:
        """Have totals count from now."""
        with self._changed:
            self._reset = True
            self._changed.notify()

    def totals(self, wanted: bool) -> None:
        """Have readings come with totals, the first of them at once; or without."""
        with self._changed:
            self._totals = self._asked = wanted
            self._changed.notify()

    def take(self) -> Iterator[Reading]:
        """The readings since the last call."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._readings.get_nowait()

    def _run(self) -> None:
        last: float | None = None
        while self._waited(last):
            last = time.monotonic()
            reading = self._read()
            self._post(reading)
            if reading.snapshot is None:
                return

    def _post(self, reading: Reading) -> None:
        self._readings.put(reading)
        self._wake()

    def _read(self, total_only: bool = False) -> Reading:
        try:
            if total_only:
                return Reading(total=self._source.total())
            snapshot = self._source.read()
            if snapshot is None:
                problem = getattr(self._source, "problem", None)
                # There will be no asking later.
                return Reading(total=self._source.total(), ending=self._source.ending or "ended", problem=problem)
            return Reading(snapshot, self._source.total() if self._totals else None)
        except Exception as problem:  # noqa: BLE001  (whatever it is belongs to the thread that shows it)
            return Reading(problem=problem)

    def _waited(self, last: float | None) -> bool:
        """Wait for the time of the next reading, doing what is asked for meanwhile; False when it is over."""
        with self._changed:
            while not self._over:
                if self._reset:
                    self._reset = False
                    self._source.reset()
                if self._asked:
                    self._asked = False
                    self._post(self._read(total_only=True))
                left = 0.0 if last is None else last + self._interval_s - time.monotonic()
                if left <= 0:
                    return True
                self._changed.wait(left)
        return False
