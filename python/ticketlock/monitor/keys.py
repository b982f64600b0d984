"""Keys from the terminal that the user sits at, whatever stdin is."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
import time
from typing import Any, Protocol

# How long a lone ESC may be the beginning of a sequence.
ESCAPE_S = 0.05

# Longest sequence that is waited for; what goes on beyond it is dropped.
LONGEST_SEQUENCE = 64

# By the byte that ends a sequence of CSI or SS3, and by the number before a `~`.
_FINAL = {b"A": "up", b"B": "down", b"C": "right", b"D": "left", b"H": "home", b"F": "end", b"M": "enter"}
_NUMBER = {b"1": "home", b"4": "end", b"5": "pgup", b"6": "pgdn", b"7": "home", b"8": "end"}
_CONTROL = {0x0D: "enter", 0x0A: "enter", 0x08: "backspace", 0x7F: "backspace", 0x15: "ctrl-u", 0x09: "tab"}

ESC = 0x1B
# What follows ESC where a text up to a terminator comes: answers of terminals, titles.
_STRINGS = b"]PX^_"


class Decoder:
    """Bytes to names of keys: characters as they are, the rest by name. Unknown sequences give nothing."""

    def __init__(self) -> None:
        self._waiting = b""
        self._text = codecs.getincrementaldecoder("utf-8")("ignore")

    @property
    def unfinished(self) -> bool:
        """Whether a sequence has begun that `flush` would end."""
        return bool(self._waiting)

    def feed(self, data: bytes) -> list[str]:
        """The keys that these bytes complete."""
        data = self._waiting + data
        self._waiting = b""
        found: list[str] = []
        position = 0
        while position < len(data):
            if data[position] != ESC:
                found += self._plain(data[position])
                position += 1
                continue
            length, name = _sequence(data[position:])
            if length == 0:
                rest = data[position:]
                self._waiting = rest if len(rest) < LONGEST_SEQUENCE else b""
                break
            if name:
                found.append(name)
            position += length
        return found

    def flush(self) -> list[str]:
        """Nothing followed: an ESC alone was the key, anything longer was cut off."""
        alone = self._waiting == b"\x1b"
        self._waiting = b""
        return ["esc"] if alone else []

    def _plain(self, byte: int) -> list[str]:
        if byte in _CONTROL:
            return [_CONTROL[byte]]
        if byte < 0x20:
            return []
        return [character for character in self._text.decode(bytes((byte,))) if character.isprintable()]


def _sequence(data: bytes) -> tuple[int, str | None]:
    """Length and key of the sequence at the beginning of `data`; length 0 while it is not complete."""
    if len(data) < 2:
        return 0, None
    kind = data[1]
    if kind == ESC:
        # ESC pressed before a sequence began.
        return 1, "esc"
    if kind == ord("["):
        return _csi(data)
    if kind == ord("O"):
        return (3, _FINAL.get(data[2:3])) if len(data) > 2 else (0, None)
    if kind in _STRINGS:
        ends = [data.find(mark) + len(mark) for mark in (b"\x07", b"\x1b\\") if mark in data[1:]]
        return (min(ends), None) if ends else (0, None)
    return 2, None


def _csi(data: bytes) -> tuple[int, str | None]:
    if data[2:3] == b"[":
        # Function keys of the Linux console have a second bracket.
        return (4, None) if len(data) > 3 else (0, None)
    if data[2:3] == b"M":
        # A mouse report of the old kind: three bytes follow.
        return (6, None) if len(data) > 5 else (0, None)
    for index in range(2, len(data)):
        if 0x40 <= data[index] <= 0x7E:
            parameters = data[2:index]
            final = data[index : index + 1]
            if final == b"~":
                return index + 1, _NUMBER.get(parameters.split(b";")[0])
            return index + 1, None if final == b"M" else _FINAL.get(final)
        if not 0x20 <= data[index] <= 0x3F:
            # No sequence contains this byte: what came before it is dropped.
            return index, None
    return 0, None


class Keyboard(Protocol):
    """Where keys come from."""

    # False when nothing will ever come (any more).
    alive: bool

    def take(self) -> None:
        """Have keys delivered one by one and unseen."""

    def release(self) -> None:
        """Give the terminal back as it was."""

    def close(self) -> None:
        """Release all."""

    def wait(self, timeout: float) -> list[str]:
        """The keys pressed until now; waits up to `timeout` seconds for the first, or for `wake`."""

    def wake(self) -> None:
        """Have `wait` return: from any thread, and from signals."""


if sys.platform == "win32":
    import msvcrt
    import threading

    _SPECIAL = {"H": "up", "P": "down", "K": "left", "M": "right", "G": "home", "O": "end", "I": "pgup", "Q": "pgdn"}
    _LOOK_S = 0.02

    class WindowsKeyboard:
        """Keys of the console."""

        def __init__(self) -> None:
            self.alive = True
            self._woken = threading.Event()

        def take(self) -> None:
            """Nothing to do: the console delivers keys one by one."""

        def release(self) -> None:
            """Nothing to do."""

        def close(self) -> None:
            """Nothing to do."""

        def wait(self, timeout: float) -> list[str]:
            """Look again and again: nothing waits for a key and for other threads alike."""
            end = time.monotonic() + timeout
            while not msvcrt.kbhit() and not self._woken.is_set() and time.monotonic() < end:
                self._woken.wait(_LOOK_S)
            self._woken.clear()
            found = []
            while msvcrt.kbhit():
                character = msvcrt.getwch()
                if character in "\x00\xe0":
                    found.append(_SPECIAL.get(msvcrt.getwch(), ""))
                elif character == "\x03":
                    raise KeyboardInterrupt
                elif character == "\x1b":
                    found.append("esc")
                else:
                    found.append(_CONTROL.get(ord(character), character if character.isprintable() else ""))
            return [key for key in found if key]

        def wake(self) -> None:
            """Have `wait` return."""
            self._woken.set()

    def keyboard() -> Keyboard:
        """The keyboard of this system."""
        return WindowsKeyboard()

else:
    import select
    import signal
    import termios

    class PosixKeyboard:
        """Keys from the controlling terminal, or from stdin if that is one.

        The terminal is never made non-blocking: that would hold for everybody who has it open, our own output included.
        """

        def __init__(self) -> None:
            self._terminal = _open_terminal()
            self.alive = self._terminal is not None
            self._decoder = Decoder()
            self._saved: list[Any] | None = None
            self._reading, self._writing = os.pipe()
            os.set_blocking(self._reading, False)
            os.set_blocking(self._writing, False)
            self._woken_by_signals = _wake_on_signals(self._writing)

        def take(self) -> None:
            """Switch off echo and lines. Keys that were typed before stay."""
            if self._terminal is None:
                return
            try:
                present = termios.tcgetattr(self._terminal)
                if self._saved is None:
                    self._saved = list(present)
                present[3] &= ~(termios.ECHO | termios.ICANON)
                present[6] = [*present[6]]
                present[6][termios.VMIN], present[6][termios.VTIME] = 1, 0
                termios.tcsetattr(self._terminal, termios.TCSANOW, present)
            except termios.error:
                self.alive = False

        def release(self) -> None:
            """Give the terminal back as `take` first found it. Keys that nobody read are dropped: the shell must not get them."""
            saved, self._saved = self._saved, None
            if self._terminal is None or saved is None:
                return
            with contextlib.suppress(termios.error):
                termios.tcflush(self._terminal, termios.TCIFLUSH)
                termios.tcsetattr(self._terminal, termios.TCSANOW, saved)

        def close(self) -> None:
            """Release all."""
            self.release()
            if self._woken_by_signals:
                signal.set_wakeup_fd(-1)
            for descriptor in (self._terminal, self._reading, self._writing):
                if descriptor is not None:
                    os.close(descriptor)
            self._terminal = None
            self.alive = False

        def wait(self, timeout: float) -> list[str]:
            """As `Keyboard.wait`."""
            found = self._read(timeout)
            while not found and self._decoder.unfinished:
                more = self._read(ESCAPE_S)
                found = more or self._decoder.flush()
                if not more:
                    break
            return found

        def wake(self) -> None:
            """Have `wait` return. A full pipe does that too."""
            with contextlib.suppress(OSError):
                os.write(self._writing, b"\0")

        def _read(self, timeout: float) -> list[str]:
            watched = [self._reading]
            if self.alive and self._terminal is not None:
                watched.append(self._terminal)
            ready, _, _ = select.select(watched, [], [], timeout)
            if self._reading in ready:
                with contextlib.suppress(BlockingIOError):
                    while os.read(self._reading, 4096):
                        pass
            if self._terminal is None or self._terminal not in ready:
                return []
            try:
                data = os.read(self._terminal, 4096)
            except OSError:
                data = b""
            if not data:
                # The terminal is gone.
                self.alive = False
            return self._decoder.feed(data)

    def _open_terminal() -> int | None:
        try:
            return os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            pass
        try:
            return os.dup(0) if os.isatty(0) else None
        except OSError:
            return None

    def _wake_on_signals(descriptor: int) -> bool:
        try:
            signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
        except ValueError:
            # Not the main thread: signals go there.
            return False
        return True

    def keyboard() -> Keyboard:
        """The keyboard of this system."""
        return PosixKeyboard()
