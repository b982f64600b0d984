"""What the system says about other processes: Linux's /proc, and next to nothing elsewhere.

Every value comes from a process that may be somebody else's, and may be gone a moment later: None or nothing then.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

PROC = Path("/proc")

# A kernel thread, in field 9 of /proc/PID/stat: it has no files to look at.
_KERNEL_THREAD = 0x0020_0000
# Of a command line; the rest is not shown anyway.
_COMMAND_BYTES = 4096

# PIDFD_GET_INFO (Linux 6.13) with its first, 64-byte structure; since 6.15 it knows how a process ended.
_PIDFD_GET_INFO = (3 << 30) | (64 << 16) | (0xFF << 8) | 11
_PIDFD_INFO_EXIT = 1 << 3


@dataclass(frozen=True, slots=True)
class Stat:
    """Part of /proc/PID/stat."""

    parent: int
    state: str
    kernel: bool
    # Since the machine's start, in clock ticks: with the pid it names a process for good.
    start_ticks: int

    @property
    def ended(self) -> bool:
        """Nothing of it runs any more; its parent has not asked for its exit code yet."""
        return self.state in ("Z", "X", "x")


def there() -> bool:
    """Whether this system has the files that we read."""
    return (PROC / "self" / "stat").exists()


def pids() -> Iterator[int]:
    """All processes that we may know of."""
    with contextlib.suppress(OSError):
        yield from (int(name) for name in os.listdir(PROC) if name.isascii() and name.isdigit())


def stat(pid: int, proc: Path = PROC) -> Stat | None:
    """None if there is no such process."""
    try:
        text = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name in parentheses may itself hold blanks and parentheses.
    fields = text[text.rfind(b")") + 2 :].split()
    try:
        return Stat(int(fields[1]), fields[0].decode("ascii"), bool(int(fields[6]) & _KERNEL_THREAD), int(fields[19]))
    except (ValueError, IndexError):
        return None


def _status(pid: int, key: str, proc: Path = PROC) -> list[int]:
    try:
        lines = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
    for line in lines:
        if line.startswith(key + ":"):
            with contextlib.suppress(ValueError):
                return [int(word) for word in line.split()[1:]]
    return []


def inner_pid(pid: int, proc: Path = PROC) -> int:
    """The pid that a process has in the innermost of its namespaces: the one that it knows itself by."""
    known = _status(pid, "NSpid", proc)
    return known[-1] if known else pid


def leader(pid: int, proc: Path = PROC) -> int | None:
    """The process that a pid or a thread's id belongs to."""
    return next(iter(_status(pid, "Tgid", proc)), None)


def uids(pid: int, proc: Path = PROC) -> tuple[int, ...]:
    """Real, effective, saved and file system user."""
    return tuple(_status(pid, "Uid", proc))


def command(pid: int, proc: Path = PROC) -> list[str]:
    """The command line, its beginning at least."""
    try:
        with open(proc / str(pid) / "cmdline", "rb") as file:
            text = file.read(_COMMAND_BYTES)
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in text.split(b"\0")[: -1 if text.endswith(b"\0") else None]]


def variable(pid: int, name: str, proc: Path = PROC) -> str | None:
    """A variable of the environment that a process was started with."""
    try:
        entries = (proc / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    start = name.encode() + b"="
    return next((entry[len(start) :].decode("utf-8", "replace") for entry in entries if entry.startswith(start)), None)


def mapped(pid: int, part: str, proc: Path = PROC) -> bool:
    """Whether a process has mapped a file whose name holds `part`."""
    try:
        return part.encode() in (proc / str(pid) / "maps").read_bytes()
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """The processes that a process has started and that are still there."""
    found: list[int] = []
    try:
        for thread in os.listdir(PROC / str(pid) / "task"):
            found += [int(word) for word in (PROC / str(pid) / "task" / thread / "children").read_bytes().split()]
    except FileNotFoundError:
        # Gone, or a kernel without these lists.
        return [other for other in pids() if (seen := stat(other)) is not None and seen.parent == pid]
    except (OSError, ValueError):
        return []
    return found


def descendants(pid: int) -> list[int]:
    """Children, their children and so on, in the order of generations."""
    found: dict[int, None] = {}
    generation = [pid]
    while generation:
        generation = [child for parent in generation for child in children(parent) if child not in found and child != pid]
        found.update(dict.fromkeys(generation))
    return list(found)


class Threads:
    """Tells which threads of a process still run, by the ids that they have in the process's own namespace."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._same_ids = inner_pid(pid) == pid
        self._inner: set[int] | None = None

    def alive(self, native_id: int) -> bool:
        """True also if nobody can say."""
        if native_id <= 0 or not there():
            return True
        if self._same_ids:
            return (PROC / str(self._pid) / "task" / str(native_id)).exists()
        if self._inner is None:
            self._inner = self._inner_ids()
        return not self._inner or native_id in self._inner

    def _inner_ids(self) -> set[int]:
        tasks = PROC / str(self._pid) / "task"
        try:
            return {inner_pid(int(name), tasks) for name in os.listdir(tasks)}
        except OSError:
            return set()


def uptime_ns(start_ticks: int) -> int | None:
    """For how long a process has been there, time in suspend included; None if nobody can say."""
    if start_ticks <= 0 or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    started = start_ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return max(0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - started)


def program(command: list[str]) -> str:
    """What people call a process: the script or module that its interpreter runs, else the name of the program."""
    if not command:
        return "?"
    name = os.path.basename(command[0])
    if not name.lower().startswith(("python", "pypy")):
        return name or "?"
    words = iter(command[1:])
    for word in words:
        if word.startswith("-") and len(word) > 1 and not word.startswith("--"):
            # Letters may be joined; the rest of the word, or the next one, is the value of the first that takes one.
            for place, letter in enumerate(word[1:], 1):
                if letter in "mcWX":
                    value = word[place + 1 :] or next(words, "")
                    if letter == "m":
                        return value or name
                    if letter == "c":
                        return f"{name} -c"
                    break
        elif not word.startswith("--"):
            return os.path.basename(word) or word
    return name


def title(pid: int) -> str:
    """The same for a process, which goes by its number where nobody knows more."""
    words = command(pid)
    return program(words) if words else f"process {pid}"


class Watch:
    """Knows when a process has ended, however often its pid is given away again."""

    def __init__(self, pid: int, start_ticks: int) -> None:
        self._pid = pid
        self._start_ticks = start_ticks
        self._descriptor: int | None = None
        # Older kernels and filters of system calls have no descriptors of processes; then the start tells.
        with contextlib.suppress(AttributeError, OSError):
            self._descriptor = os.pidfd_open(pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def ended(self, within_s: float = 0.0) -> bool:
        """Whether it has ended, or does so within a time."""
        if self._descriptor is not None:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            return bool(poll.poll(within_s * 1000))
        if not there():
            if within_s:
                time.sleep(within_s)
            return not signalable(self._pid)
        now = stat(self._pid)
        gone = now is None or now.start_ticks != self._start_ticks or now.ended
        if not gone and within_s:
            time.sleep(within_s)
            return self.ended()
        return gone

    def ending(self) -> str:
        """How it ended, as far as the system tells."""
        status = None if self._descriptor is None else _exit_status(self._descriptor)
        if status is None:
            return "exited"
        code = os.waitstatus_to_exitcode(status)
        return f"exited ({code})" if code >= 0 else f"killed by signal {-code}"

    def close(self) -> None:
        """Forget the process."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _exit_status(descriptor: int) -> int | None:
    import fcntl

    query = struct.pack("<QQ11Ii", _PIDFD_INFO_EXIT, 0, *[0] * 11, 0)
    try:
        answer = struct.unpack("<QQ11Ii", fcntl.ioctl(descriptor, _PIDFD_GET_INFO, query))
    except OSError:
        return None
    return answer[-1] if answer[0] & _PIDFD_INFO_EXIT else None


def signalable(pid: int) -> bool:
    """Whether a process is there, asked without /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
