"""Paints frames on a terminal with rich, and always gives the terminal back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .text import Line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from .output import Terminal

# Frames a second of a display that moves by itself.
FRAMES_PER_SECOND = 10.0

Frame = Callable[[int, int], list[Line]]


class Screen:
    """A display on one terminal. `full` takes the whole (alternate) screen, otherwise it is a line that goes at the end."""

    def __init__(self, terminal: Terminal, frame: Frame, full: bool, tick: Callable[[], None] | None = None) -> None:
        self._frame = frame
        self._tick = tick
        self._full = full
        self._console = _console(terminal)
        self._live: Live | None = None
        self._failed = False
        self._over = threading.Event()
        self._ticker: threading.Thread | None = None

    @property
    def failed(self) -> bool:
        """Whether the terminal went away."""
        return self._failed

    def open(self) -> None:
        """Take the terminal and start drawing."""
        self.resume()
        if self._tick is not None:
            self._ticker = threading.Thread(target=self._run, name="ticketlock-display", daemon=True)
            self._ticker.start()

    def close(self) -> None:
        """Stop drawing and give the terminal back."""
        self._over.set()
        try:
            if self._ticker is not None:
                self._ticker.join(timeout=2.0)
        finally:
            self.suspend()

    def paint(self) -> None:
        """Draw the present frame."""
        live = self._live
        if live is None or self._failed:
            return
        try:
            live.refresh()
        except (OSError, ValueError):
            # The terminal went away; the run goes on without it.
            self._failed = True

    def suspend(self) -> None:
        """Give the terminal back."""
        live, self._live = self._live, None
        if live is None:
            return
        try:
            live.stop()
        except (OSError, ValueError):
            self._failed = True

    def resume(self) -> None:
        """Take the terminal."""
        from rich.live import Live

        if self._failed or self._live is not None:
            return
        live = Live(
            console=self._console,
            screen=self._full,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
            get_renderable=self._renderable,
        )
        # Known before it starts, so that a signal in the middle of starting still gives the terminal back.
        self._live = live
        try:
            live.start(refresh=True)
        except (OSError, ValueError):
            self._failed = True

    def _run(self) -> None:
        while not self._over.wait(1 / FRAMES_PER_SECOND):
            if self._tick is not None:
                self._tick()
            self.paint()

    def _renderable(self) -> Text:
        from rich.text import Text

        width, height = self._console.size
        # One row stays free below a line display: writing into the last one scrolls.
        lines = self._frame(width, height if self._full else max(1, height - 1))
        text = Text(no_wrap=True, overflow="crop", end="")
        for index, line in enumerate(lines):
            if index:
                text.append("\n")
            for part, style in line:
                text.append(part, style or None)
        return text


def _console(terminal: Terminal) -> Console:
    from rich.console import Console

    class Quiet(Console):
        """A console that does not end the program when its reader is gone."""

        def on_broken_pipe(self) -> None:
            self.quiet = True

    return Quiet(
        file=terminal.stream,
        force_terminal=True,
        force_interactive=True,
        color_system="standard" if terminal.colour else None,
        no_color=not terminal.colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
