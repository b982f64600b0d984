"""Where snapshots come from: a live process, several of them, a recording. Views and exports see no difference."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from . import graph, proc
from .build import build
from .errors import IncompatibleError, MonitorError, NotInstrumentedError
from .find import MEMORY_FILE, Segment, open_segment, reader_of
from .names import guess
from .recording import Recorder, Replay

if TYPE_CHECKING:
    from .model import Snapshot
    from .raw import Raw, RawEvent, RawLock

__all__ = ["Live", "Recorder", "Replay", "Source"]

# Locks of one reading: more than anybody looks at, and few enough that a frame stays fast.
LIMIT = 1000
# All that a process can have.
EVERYTHING = 1 << 17
# Locks of the reading that others are counted from: those that have waited most so far. What is beyond them has hardly waited
# in its whole life, which is what is counted should it come to the front; reading everything takes a second.
BASELINE = 10_000
# A process that has closed its files is looked at so often, to see whether it has made a new segment or gone over to
# another program.
_LOOK_AGAIN_S = 2.0


class Source(Protocol):
    """Snapshots, one after the other."""

    # For the header.
    title: str
    # Why it ended, None while it goes on; known from the last snapshot on.
    ending: str | None

    def read(self) -> Snapshot | None:
        """What went on since the former read; None: nothing more will come."""
        ...

    def total(self) -> Snapshot | None:
        """What went on since the baseline: that of a live process is its start, until it is reset."""
        ...

    def reset(self) -> None:
        """From now on the baseline is now."""
        ...

    def close(self) -> None:
        """Give up what it holds."""
        ...


class Live:
    """One process that runs. Raises `MonitorError` if it cannot be opened."""

    def __init__(self, pid: int, limit: int = LIMIT) -> None:
        self.ending: str | None = None
        self.pid = pid
        self._limit = limit
        self._segment = open_segment(pid)
        try:
            self.title = proc.title(pid)
            self._latest = self._start()
        except ValueError as wrong:
            self._segment.close()
            raise _unreadable(pid, wrong) from None
        self._first_event = self._latest["next_event"]
        self._baseline: Raw | None = None
        self._known: dict[int, RawLock] = {lock["id"]: lock for lock in self._latest["locks"]}
        self._looked_at = time.monotonic()

    def read(self) -> Snapshot | None:
        """What went on since the former read. After the end of the process one more, with all that was left to count.

        Raises `IncompatibleError` if its segment has become unreadable.
        """
        if self.ending is not None:
            return None
        over = self._segment.watch.ended()
        if over:
            self.ending = self._segment.watch.ending()
        elif not self._segment.still_named():
            self._look_again()
        try:
            raw = self._own(self._segment.reader.sample(self._limit))
        except ValueError as wrong:
            self.ending = "what it reports cannot be read any more"
            raise _unreadable(self.pid, wrong) from None
        # A lock may come back into a limited reading: it is counted from when it was last seen.
        here = {lock["id"] for lock in raw["locks"]}
        known = [self._known[lock["id"]] for lock in raw["locks"] if lock["id"] in self._known]
        # One that is gone has left what it had counted to its site.
        gone = [lock for lock in self._latest["locks"] if lock["id"] not in here]
        earlier: Raw = {**self._latest, "locks": known + gone}
        self._remember(raw)
        return self._confirmed(self._build(raw, earlier, over), raw)

    def total(self) -> Snapshot:
        """What went on since the baseline."""
        raw = self._latest
        if raw["totals"]["locks"] > len(raw["locks"]):
            try:
                # A reader of its own has those first that waited most in all.
                raw = self._own(reader_of(self._segment.descriptor).sample(self._limit))
            except ValueError as wrong:
                raise _unreadable(self.pid, wrong) from None
        return self._confirmed(self._build(raw, self._baseline, self.ending is not None), raw)

    def reset(self) -> None:
        """Count totals from now on."""
        try:
            self._baseline = self._start()
        except ValueError:
            self._baseline = self._latest

    def events(self) -> list[RawEvent]:
        """The waits that ended since the source was opened, as far as the process still knows them."""
        try:
            return self._segment.reader.events(self._first_event)
        except ValueError:
            return []

    def over(self, within_s: float = 0.0) -> bool:
        """Whether the process has ended, or does so within a time."""
        return self.ending is not None or self._segment.watch.ended(within_s)

    def close(self) -> None:
        """Let go of the process."""
        self._segment.close()

    @property
    def segment(self) -> Segment:
        """What it reads from."""
        return self._segment

    def _build(self, raw: Raw, earlier: Raw | None, over: bool) -> Snapshot:
        # The process may see other files than we do.
        naming = partial(guess, root=f"/proc/{self.pid}/root" if os.path.isdir(f"/proc/{self.pid}/root") else "")
        return build(raw, earlier, None if over else proc.Threads(self.pid).alive, naming)

    def _confirmed(self, snapshot: Snapshot, raw: Raw) -> Snapshot:
        if not snapshot.cycles:
            return snapshot
        try:
            return replace(snapshot, cycles=graph.lasting(snapshot.cycles, raw, reader_of(self._segment.descriptor).sample))
        except ValueError:
            return snapshot

    def _own(self, raw: Raw) -> Raw:
        # The process knows itself by the pid of its own namespace.
        return {**raw, "process": {**raw["process"], "pid": self.pid}}

    def _start(self) -> Raw:
        # Not by the reader of `read`, which orders locks by what they waited since its own last reading.
        return self._own(reader_of(self._segment.descriptor).sample(max(BASELINE, self._limit)))

    def _remember(self, raw: Raw) -> None:
        self._latest = raw
        for lock in raw["locks"]:
            self._known.pop(lock["id"], None)
            self._known[lock["id"]] = lock
        if len(self._known) > 2 * EVERYTHING:
            self._known = dict(list(self._known.items())[-EVERYTHING:])

    def _look_again(self) -> None:
        """The segment has gone from the open files: the process closed them all, or became another program."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_AGAIN_S:
            return
        self._looked_at = now
        try:
            found = open_segment(self.pid)
        except NotInstrumentedError:
            # What we hold is still the memory that it writes to, as long as it has that.
            if not proc.mapped(self.pid, MEMORY_FILE) and not self._segment.watch.ended():
                self.ending = "it runs another program now"
        except MonitorError as other:
            self.ending = other.cause
        else:
            if found.reader.process()["created_ns"] != self._latest["process"]["created_ns"]:
                # Another program, with locks of its own that have the same ids.
                self._known.clear()
            self._segment.close()
            self._segment = found


def _unreadable(pid: int, wrong: ValueError) -> IncompatibleError:
    return IncompatibleError(
        f"what process {pid} reports cannot be read: {wrong}",
        "use the ticketlock command of the Python environment that the process runs in",
    )
