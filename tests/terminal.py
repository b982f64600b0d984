"""A pseudo-terminal to run the command in, and to look at. Not for Windows, which has none of this kind."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import termios
import threading
from pathlib import Path
from typing import Any

import pyte
from conftest import FAKE, environment

# What the switches make of colour: option, NO_COLOR, FORCE_COLOR, whether there is any.
COLOUR_IN_A_PIPE = [
    ("auto", None, None, False),
    ("auto", None, "1", True),
    ("auto", "1", "1", False),
    ("auto", "", "1", True),
    ("always", "1", None, True),
    ("never", None, "1", False),
]
# Arguments, environment, whether there is any.
COLOUR_ON_A_TERMINAL: list[tuple[list[str], dict[str, str], bool]] = [
    ([], {}, True),
    ([], {"NO_COLOR": "1"}, False),
    ([], {"NO_COLOR": ""}, True),
    ([], {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    (["--color", "never"], {"FORCE_COLOR": "1"}, False),
    (["--color", "always"], {"NO_COLOR": "1"}, True),
]


class TerminalRun:
    """The command on a pseudo-terminal of `rows` by `columns`. Which of its streams are the terminal is for the caller."""

    def __init__(
        self,
        *arguments: str,
        program: list[str] = FAKE,
        rows: int = 24,
        columns: int = 80,
        stdin: Any = None,
        stdout: Any = None,
        own_group: bool = False,
        own_session: bool = False,
        **changes: str | None,
    ) -> None:
        self.rows, self.columns = rows, columns
        self.master, slave = os.openpty()
        self.resize(rows, columns)
        self.output = b""
        self.process = subprocess.Popen(
            [*program, *arguments],
            env=environment(**changes),
            stdin=slave if stdin is None else stdin,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            process_group=0 if own_group else None,
            start_new_session=own_session,
        )
        os.close(slave)
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self.master, 65536)
            except OSError:
                chunk = b""
            with self._changed:
                self.output += chunk
                self._changed.notify_all()
            if not chunk:
                return

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the terminal."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, text: bytes, timeout: float = 30.0) -> None:
        """Wait until the terminal has received a text."""
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.output, timeout), self.output[-2000:]

    def state(self) -> str:
        """The state letter of the process, T when stopped."""
        return Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    def finish(self, timeout: float = 40.0) -> int:
        """Wait for the end and return the exit code."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the command hangs: {self.output[-2000:]!r}") from None
        self._reader.join(10)
        os.close(self.master)
        return code

    def screen(self, output: bytes | None = None) -> list[str]:
        """What the terminal shows."""
        screen = pyte.Screen(self.columns, self.rows)
        stream = pyte.ByteStream(screen)
        stream.feed(self.output if output is None else output)
        return list(screen.display)

    def assert_restored(self) -> None:
        """Cursor shown, alternate screen left, nothing that went wrong on the way."""
        assert self.output.rfind(b"\x1b[?25h") >= self.output.rfind(b"\x1b[?25l"), "the cursor is hidden"
        assert self.output.count(b"\x1b[?1049h") <= self.output.count(b"\x1b[?1049l"), "the alternate screen is still shown"
        assert b"Traceback" not in self.output, self.output.decode(errors="replace")
