"""The live screen: a loop around readings, keys and frames."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ticketlock.cli import glyphs
from ticketlock.cli.output import UsageError

from . import state as states
from . import views
from .collect import Collector
from .errors import MonitorError
from .session import Session
from .source import Recorder
from .views import chooser

if TYPE_CHECKING:
    from collections.abc import Callable

    from ticketlock.cli.output import Terminal
    from ticketlock.cli.text import Line

    from .collect import Reading
    from .find import Found
    from .options import ViewOptions
    from .source import Source
    from .state import State

OK = 0

# Seconds between two looks for processes to choose from.
LOOK_S = 2.0


def run(source: Source, options: ViewOptions, out: Terminal) -> int:
    """Show a source until the user quits, and return the exit code. Closes the source."""
    return _Viewer(source, options, out).run()


class _Viewer:
    def __init__(self, source: Source, options: ViewOptions, out: Terminal) -> None:
        self._state = states.start(source.title, options)
        self._glyphs = glyphs.ASCII if options.ascii else out.glyphs
        self._session = Session(out, self._frame)
        self._collector = Collector(source, options.interval_s, self._session.wake)
        self._recorder: Recorder | None = None
        # Files that this screen has recorded to.
        self._recordings = 0
        self._readings = 0
        self._code = OK

    def run(self) -> int:
        try:
            with self._session:
                self._apply_effects(replace(self._state, recording=False))
                self._collector.start()
                return self._loop()
        finally:
            self._collector.stop()
            if self._recorder is not None:
                self._recorder.close()

    def _loop(self) -> int:
        while True:
            before = self._state
            for key in self._session.pressed():
                self._state = states.apply(self._state, key)
            for reading in self._collector.take():
                self._take(reading)
            if self._session.exit_code is not None:
                return self._session.exit_code
            self._apply_effects(before)
            self._session.paint()
            if self._finished():
                return self._code

    def _finished(self) -> bool:
        count = self._state.options.count
        over = self._state.live.ended is not None
        # Without a keyboard nobody could end it; with a count nobody need be there.
        return self._state.quit or (over and (count is not None or not self._session.can_type)) or self._readings == count

    def _take(self, reading: Reading) -> None:
        if self._readings == self._state.options.count:
            return
        if reading.snapshot is not None:
            self._readings += 1
            self._record(reading)
            self._state = states.received(self._state, reading.snapshot, reading.total)
            return
        if reading.ending is None and reading.problem is None:
            self._state = states.tallied(self._state, reading.total)
            return
        why = reading.ending or "ended"
        if reading.problem is not None:
            if not self._readings or not isinstance(reading.problem, MonitorError):
                raise reading.problem
            # What was read so far is still worth looking at.
            why, self._code = str(reading.problem), reading.problem.exit_code
        self._state = states.ended(self._state, f"{why} at {time.strftime('%H:%M:%S')}", reading.total)

    def _frame(self, width: int, height: int) -> list[Line]:
        page = views.page(self._state, width, height, self._glyphs)
        self._state = states.resized(self._state, page, views.furthest(self._state, width, height, self._glyphs))
        return views.render(self._state, width, height, self._glyphs)

    def _apply_effects(self, before: State) -> None:
        """What keys ask of others than the screen."""
        if self._state.resets != before.resets:
            self._collector.reset()
        if self._state.totals != before.totals:
            self._collector.totals(self._state.totals)
        if self._state.options.interval_s != before.options.interval_s:
            self._collector.pace(self._state.options.interval_s)
        if self._state.recording != (self._recorder is not None):
            self._switch_recording()

    def _record(self, reading: Reading) -> None:
        recorder = self._recorder
        if recorder is None or reading.snapshot is None:
            return
        recorder.write(reading.snapshot)
        if recorder.problem is not None:
            self._recorder = None
            self._state = replace(self._state, recording=False, notice=recorder.problem)

    def _switch_recording(self) -> None:
        """Start a recording, or end one."""
        if self._recorder is not None:
            recorder, self._recorder = self._recorder, None
            recorder.close()
            words = recorder.problem or f"recorded {recorder.count} snapshots to '{recorder.path}'"
            self._state = replace(self._state, notice=words)
            return
        path = self._recording_path()
        try:
            self._recorder = Recorder(path)
        except (OSError, ValueError) as wrong:
            why = wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else str(wrong)
            self._state = replace(self._state, recording=False, notice=f"'{path}' cannot be recorded to: {why}")
        else:
            self._state = replace(self._state, notice=f"recording to '{path}'")

    def _recording_path(self) -> str:
        """The file that was asked for; without one, or once that is written, a new name."""
        asked = self._state.options.record
        if asked is not None and not self._recordings:
            self._recordings += 1
            return asked
        snapshot = self._state.live.snapshot
        stem = f"ticketlock-{snapshot.process['pid']}" if snapshot is not None else "ticketlock"
        if asked is not None:
            stem = asked.removesuffix(".jsonl")
        while True:
            self._recordings += 1
            path = f"{stem}-{self._recordings}.jsonl"
            if not os.path.lexists(path):
                return path


@dataclass(frozen=True, slots=True)
class Choice:
    """A process, or the exit code of a user who wanted none."""

    pid: int | None
    code: int = OK


def choose(look: Callable[[], Found], out: Terminal, ascii_only: bool = False) -> Choice:
    """Have the user choose among the processes that `look` finds, again and again."""
    drawn = glyphs.ASCII if ascii_only else out.glyphs
    state = chooser.Choosing(look())
    session = Session(out, lambda width, height: chooser.render(state, width, height, drawn))
    with session:
        looked = time.monotonic()
        session.paint()
        while True:
            for key in session.pressed():
                state = chooser.apply(state, key)
            if session.exit_code is not None:
                return Choice(None, session.exit_code)
            if state.chosen is not None or state.quit:
                return Choice(state.chosen)
            if not session.can_type:
                raise UsageError("PID: choosing needs a keyboard; give the number of a process ('ticketlock ps' lists them)")
            if time.monotonic() - looked >= LOOK_S:
                state = chooser.found(state, look())
                looked = time.monotonic()
            session.paint()
