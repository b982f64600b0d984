"""Snapshots in files: one JSON document a line, as `--json` prints it."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from typing import IO, TYPE_CHECKING

from .document import dumps, from_json
from .errors import IncompatibleError
from .merge import merge

if TYPE_CHECKING:
    from .model import Snapshot
    from .raw import RawEvent

# A line that is longer is none of ours: 1,000 locks with all their figures take less than 2 MB.
_LONGEST_LINE = 64 << 20
# How every recording starts.
_START = b'{"schema": "ticketlock.snapshot/'


class Recorder:
    """Writes every snapshot that it is given to a file. A failure ends the recording, and `problem` says so."""

    def __init__(self, path: str) -> None:
        """Start a recording. Raises OSError if it cannot be written, or would replace a file that is no recording."""
        self.path = path
        self.count = 0
        self.problem: str | None = None
        self._file: IO[bytes] | None = _created(path)

    def write(self, snapshot: Snapshot) -> None:
        """Append a snapshot."""
        if self._file is None:
            return
        try:
            self._file.write(dumps(snapshot).encode())
        except (OSError, ValueError) as wrong:
            self._fail(wrong)
        else:
            self.count += 1

    def close(self) -> None:
        """End the recording."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as wrong:
                self._fail(wrong)

    def _fail(self, wrong: Exception) -> None:
        why = wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else str(wrong)
        self.problem = f"recording to '{self.path}' stopped after {self.count} snapshots: {why}"
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()


def _created(path: str) -> IO[bytes]:
    """The file, empty. Unbuffered: what was written is there whatever happens next."""
    # Not every system has all of these.
    flags = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOCTTY", "O_BINARY"))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
    try:
        about = os.fstat(descriptor)
        if stat.S_ISREG(about.st_mode):
            if about.st_size and os.read(descriptor, len(_START)) != _START:
                raise FileExistsError("it is there and is no recording")
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.ftruncate(descriptor, 0)
        return open(descriptor, "wb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


class Replay:
    """A recording, snapshot by snapshot. A last line that was not finished is left out."""

    def __init__(self, path: str) -> None:
        """Open a file, or standard input for `-`. Raises OSError."""
        self.title = "standard input" if path == "-" else os.path.basename(path) or path
        self.ending: str | None = None
        self._path = "standard input" if path == "-" else f"'{path}'"
        self._file: IO[bytes] = _standard_input() if path == "-" else open(path, "rb")  # noqa: SIM115 - `close` closes it
        self._owned = path != "-"
        self._line = 0
        self._total: Snapshot | None = None

    def read(self) -> Snapshot | None:
        """The next snapshot. Raises `IncompatibleError` for a line that is none."""
        while self.ending is None:
            line = self._file.readline(_LONGEST_LINE)
            self._line += 1
            if not line:
                self.ending = "end of recording"
            elif line.strip():
                snapshot = self._parsed(line)
                if snapshot is not None:
                    self._total = snapshot if self._total is None else merge(self._total, snapshot)
                return snapshot
        return None

    def total(self) -> Snapshot | None:
        """All that was read since the baseline, in one; None before anything was."""
        return self._total

    def reset(self) -> None:
        """Count totals from the next snapshot on."""
        self._total = None

    def events(self) -> list[RawEvent]:
        """A recording has none."""
        return []

    def over(self, _: float = 0.0) -> bool:
        """Whether all was read. A recording does not make anybody wait."""
        return self.ending is not None

    def close(self) -> None:
        """Close the file."""
        if self._owned:
            self._file.close()

    def _parsed(self, line: bytes) -> Snapshot | None:
        try:
            return from_json(json.loads(line))
        except (ValueError, RecursionError) as wrong:
            if not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
                self.ending = "end of recording (its last line is incomplete)"
                return None
            # Long input must not come back in the message.
            why = str(wrong)[:200]
            self.ending = f"line {self._line} is no snapshot"
            raise IncompatibleError(
                f"line {self._line} of {self._path} is no snapshot: {why}", "give a file that --record or --jsonl wrote"
            ) from None


def _standard_input() -> IO[bytes]:
    """A reader of its own: the interpreter cannot end while a thread waits in that of `sys.stdin`. It leaves stdin open."""
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:
        # Not a file at all.
        return sys.stdin.buffer
