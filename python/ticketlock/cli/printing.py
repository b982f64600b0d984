"""What `ticketlock top` prints instead of the live screen: readings, files for other tools, exceeded thresholds."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .output import complain
from .text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ticketlock.monitor.conditions import Condition
    from ticketlock.monitor.model import Snapshot
    from ticketlock.monitor.options import ViewOptions
    from ticketlock.monitor.source import Live, Recorder, Replay
    from ticketlock.monitor.tree import Tree

    from .output import OutputFile, Terminal
    from .signals import Interrupts

NAME = "ticketlock top"
OK, FAILED, EXCEEDED = 0, 1, 6

# A signal is noticed within this time while we wait for the end of an interval.
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Request:
    """A command line that has been understood."""

    view: ViewOptions
    # None: the live screen.
    format: str | None
    conditions: tuple[Condition, ...]
    exports: tuple[tuple[str, OutputFile], ...]


class Printer:
    """Reads as often as asked, prints, and finds out about conditions."""

    def __init__(
        self, source: Live | Tree | Replay, request: Request, out: Terminal, recorder: Recorder | None, interrupts: Interrupts
    ) -> None:
        self._source = source
        self._request = request
        self._out = out
        self._recorder = recorder
        self._interrupts = interrupts
        self._code = OK
        self._exceeded: dict[str, str] = {}
        self._whole: Snapshot | None = None

    def run(self) -> int:
        """The exit code."""
        lines = self._request.format == "jsonl"
        for snapshot in self._readings():
            self._record(snapshot)
            if lines:
                self._check(snapshot)
                self._print(snapshot)
            if not lines or self._request.exports:
                from ticketlock.monitor.merge import merge

                self._whole = snapshot if self._whole is None else merge(self._whole, snapshot)
        if self._whole is not None:
            if not lines:
                self._check(self._whole)
            # Files first: they survive even if nobody reads our output any more.
            self._export(self._whole)
            if not lines:
                self._print(self._whole)
        if lines and self._source.ending is not None and self._request.view.count is not None:
            complain(NAME, f"{clean(self._source.title)}: {self._source.ending}")
        for condition, where in self._exceeded.items():
            complain(NAME, f"--fail-if {condition}: {where}")
        if self._recorder is not None and self._recorder.problem is not None:
            complain(NAME, self._recorder.problem)
            self._code = FAILED
        return self._interrupts.exit_code or (EXCEEDED if self._exceeded else self._code)

    def _readings(self) -> Iterator[Snapshot]:
        from ticketlock.monitor.errors import IncompatibleError
        from ticketlock.monitor.source import Replay

        replayed = isinstance(self._source, Replay)
        wanted = self._request.view.count or (None if replayed or self._request.format == "jsonl" else 1)
        done = 0
        while done != wanted and not (self._interrupts.stop() and done):
            if replayed:
                snapshot = self._awaited()
            else:
                self._pause()
                snapshot = self._source.read()
            if snapshot is None:
                break
            done += 1
            yield snapshot
        if not done and replayed and not self._interrupts.stop():
            raise IncompatibleError(f"{self._source.title} holds no snapshot", "give a file that --record or --jsonl wrote")

    def _awaited(self) -> Snapshot | None:
        """The next snapshot of a recording, which may still be on its way; None also if we are told not to wait for it."""
        try:
            with self._interrupts.breakable():
                return self._source.read()
        except KeyboardInterrupt:
            return None

    def _pause(self) -> None:
        """Until the interval is over, the process has ended, or somebody wants us to stop."""
        end = time.monotonic() + self._request.view.interval_s
        while (left := end - time.monotonic()) > 0 and not self._interrupts.stop():
            if self._source.over(min(_LOOK_S, left)):
                return

    def _record(self, snapshot: Snapshot) -> None:
        if self._recorder is not None:
            self._recorder.write(snapshot)

    def _check(self, snapshot: Snapshot) -> None:
        from ticketlock.monitor.columns import select

        locks = select(snapshot, self._request.view)
        for condition in self._request.conditions:
            where = condition.found_in(snapshot, locks)
            if where is not None:
                self._exceeded.setdefault(condition.text, where)

    def _print(self, snapshot: Snapshot) -> None:
        if self._request.format == "once":
            from . import once

            ending = None if self._source.ending == "end of recording" else self._source.ending
            self._out.show(
                once.lines(snapshot, self._request.view, self._source.title, ending, self._out.width, self._out.glyphs)
            )
            return
        from ticketlock.monitor import document

        if self._request.format in ("json", "jsonl"):
            self._out.write(document.dumps(snapshot))
        else:
            self._out.write(self._exported(str(self._request.format), snapshot).decode())

    def _export(self, snapshot: Snapshot) -> None:
        for kind, file in self._request.exports:
            try:
                file.write(self._exported(kind, snapshot))
            except OSError as wrong:
                complain(NAME, f"'{file.path}' could not be written: {wrong.strerror or wrong}")
                self._code = FAILED

    def _exported(self, kind: str, snapshot: Snapshot) -> bytes:
        from ticketlock.monitor.export import FORMATS

        wanted = FORMATS[kind]
        if wanted.needs == "total":
            snapshot = self._source.total() or snapshot
        events = self._source.events() if wanted.needs == "events" else ()
        stream = io.BytesIO()
        if wanted.binary:
            note = wanted.write(snapshot, events, stream)
        else:
            text = io.TextIOWrapper(stream, "utf-8", newline="", write_through=True)
            note = wanted.write(snapshot, events, text)
            text.detach()
        if note:
            complain(NAME, clean(note))
        return stream.getvalue()
