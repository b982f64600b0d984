"""Streams of the command: colour, encoding, a reader that went away, and files that are whole or absent."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from . import glyphs
from .text import Line, to_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Width of text that nobody's terminal limits.
PIPE_WIDTH = 160


class ReaderGoneError(Exception):
    """Whoever read our output has stopped reading."""


class UsageError(Exception):
    """The command line cannot be used as it is; the text names the option, its value and what is accepted."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """What one output stream can show."""

    stream: TextIO
    interactive: bool
    colour: bool
    glyphs: glyphs.Glyphs

    @property
    def width(self) -> int:
        """Columns of the terminal; `PIPE_WIDTH` where there is none."""
        if not self.interactive:
            return PIPE_WIDTH
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):
            return 80
        return columns or 80

    def write(self, text: str) -> None:
        """Write and flush; `ReaderGoneError` if nobody reads any more."""
        try:
            self.stream.write(text)
            self.stream.flush()
        except OSError as problem:
            # EIO: the terminal was closed.
            if problem.errno in (errno.EPIPE, errno.EIO):
                raise ReaderGoneError from None
            raise

    def show(self, lines: Iterable[Line]) -> None:
        """Write lines."""
        self.write(to_text(lines, self.colour))


def terminal(stream: TextIO, color: str, ascii_only: bool, environ: Mapping[str, str] = os.environ) -> Terminal:
    """Look at a stream. Characters that it cannot carry are replaced, never an error."""
    is_tty = _isatty(stream)
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    return Terminal(
        stream=stream,
        interactive=is_tty and environ.get("TERM") != "dumb",
        colour=use_colour(color, is_tty, environ),
        glyphs=glyphs.for_encoding(getattr(stream, "encoding", None), ascii_only),
    )


def use_colour(color: str, is_tty: bool, environ: Mapping[str, str]) -> bool:
    """Option before NO_COLOR before FORCE_COLOR before what the stream is; an empty variable counts as unset."""
    if color != "auto":
        return color == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return is_tty and environ.get("TERM") != "dumb"


def _isatty(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False


def provide_streams() -> None:
    """Streams that our parent closed: what is written to them goes nowhere."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def silence(stream: TextIO) -> None:
    """Send what is still buffered, and all that follows, nowhere: a closed pipe must not complain again at exit."""
    try:
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
    except (OSError, ValueError):
        pass


def complain(command: str, message: str) -> None:
    """One line on stderr; nothing if that is impossible."""
    with contextlib.suppress(OSError, ValueError):
        print(f"{command}: {message}", file=sys.stderr, flush=True)


class OutputFile:
    """A file that appears whole or not at all. Made before the work starts, so that an unusable path is known in time."""

    def __init__(self, path: str, option: str = "-o/--output") -> None:
        self.path = path
        self._target = os.path.realpath(path)
        try:
            self._check()
        except OSError as problem:
            raise UsageError(
                f"{option}: '{path}' cannot be written ({problem.strerror or problem}); give a file in a writable folder"
            ) from None

    def _check(self) -> None:
        if os.path.isdir(self._target):
            raise IsADirectoryError("it is a folder")
        if os.path.exists(self._target):
            if not os.access(self._target, os.W_OK):
                raise PermissionError("it is write-protected")
            if not self._regular():
                return
        descriptor, name = self._temporary()
        os.close(descriptor)
        os.unlink(name)

    def _regular(self) -> bool:
        return not os.path.exists(self._target) or stat.S_ISREG(os.stat(self._target).st_mode)

    def _temporary(self) -> tuple[int, str]:
        folder, name = os.path.split(self._target)
        return tempfile.mkstemp(prefix=f".{name[:64]}.", suffix=".tmp", dir=folder)

    def write(self, content: str | bytes) -> None:
        """Replace the file. A device or a pipe cannot be replaced and is written to instead."""
        data = content.encode("utf-8") if isinstance(content, str) else content
        if not self._regular():
            with open(self._target, "wb") as device:
                device.write(data)
            return
        descriptor, name = self._temporary()
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, self._mode())
            os.replace(name, self._target)
        except BaseException:
            os.unlink(name)
            raise

    def _mode(self) -> int:
        """That of the file being replaced, else what the process gives to new files."""
        if os.path.exists(self._target):
            return stat.S_IMODE(os.stat(self._target).st_mode)
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
