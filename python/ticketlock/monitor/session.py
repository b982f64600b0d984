"""The terminal while it is ours: frames out, keys in, signals heeded, and everything given back in the end."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Self

from ticketlock.cli.output import ReaderGoneError, UsageError
from ticketlock.cli.screen import Screen
from ticketlock.cli.signals import Interrupts

from .keys import keyboard

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from ticketlock.cli.output import Terminal
    from ticketlock.cli.screen import Frame

# As a shell reports the end by SIGHUP.
HUNG_UP = 129

# Signals are noticed at once; this is for the case that one gets lost.
_LOOK_S = 1.0


class Session:
    """A terminal in full-screen mode, as long as the context is open."""

    def __init__(self, out: Terminal, frame: Frame) -> None:
        if not out.interactive:
            raise UsageError("the live screen needs a terminal to draw on; --once prints what it would show")
        self._screen = Screen(out, frame, full=True)
        self._interrupts = Interrupts()
        self._previous: dict[int, Any] = {}
        self._continued = False
        self._suspensions = 0

    def __enter__(self) -> Self:
        self._keyboard = keyboard()
        self.can_type = self._keyboard.alive
        self._interrupts.__enter__()
        try:
            # Handlers that do nothing much: what matters is that waiting for keys ends.
            self._install("SIGWINCH", lambda _, __: None)
            self._install("SIGCONT", self._went_on)
            self._interrupts.around_suspension = (self._leave, self._return)
            with self._interrupts.shielded():
                self._keyboard.take()
                self._screen.open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        try:
            # A second signal must not come between any two of these.
            with self._interrupts.shielded():
                self._interrupts.around_suspension = None
                try:
                    self._screen.close()
                finally:
                    self._keyboard.close()
                    for signum, handler in self._previous.items():
                        signal.signal(signum, handler)
        finally:
            self._interrupts.__exit__(None, None, None)

    @property
    def exit_code(self) -> int | None:
        """That of a signal that wants us to end, or of a terminal that is gone."""
        if self._interrupts.exit_code is not None:
            return self._interrupts.exit_code
        return HUNG_UP if self.can_type and not self._keyboard.alive else None

    def pressed(self) -> list[str]:
        """Wait for something to happen; the keys pressed, if that is what it was."""
        found = self._keyboard.wait(_LOOK_S)
        if self._continued:
            self._continued = False
            # Ctrl-Z was dealt with already; a stop that could not be caught left the terminal to others.
            if self._interrupts.suspensions == self._suspensions:
                with self._interrupts.shielded():
                    self._leave()
                    self._return()
            self._suspensions = self._interrupts.suspensions
        return found

    def wake(self) -> None:
        """Have `pressed` return."""
        self._keyboard.wake()

    def paint(self) -> None:
        """Draw the present frame."""
        with self._interrupts.shielded():
            self._screen.paint()
        if self._screen.failed:
            raise ReaderGoneError

    def _install(self, name: str, handler: Any) -> None:
        signum = getattr(signal, name, None)
        if signum is not None:
            self._previous[signum] = signal.signal(signum, handler)

    def _went_on(self, _: int, __: FrameType | None) -> None:
        self._continued = True

    def _leave(self) -> None:
        self._screen.suspend()
        self._keyboard.release()

    def _return(self) -> None:
        self._keyboard.take()
        self._screen.resume()
