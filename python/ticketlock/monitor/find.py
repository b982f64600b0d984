"""Finds the processes whose locks report, and opens what they report; says what is in the way where that fails."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from . import files, proc
from .errors import IncompatibleError, MonitorError, NotFoundError, NotInstrumentedError, NotPermittedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .raw import Raw, RawEvent, RawProcess

__all__ = [
    "Found",
    "IncompatibleError",
    "Instrumented",
    "MonitorError",
    "NotFoundError",
    "NotInstrumentedError",
    "NotPermittedError",
    "Segment",
    "instrumented",
    "open_segment",
]

# As /proc/PID/fd and /proc/PID/maps name it.
MEMORY_FILE = "/memfd:ticketlock"
LIBRARY = "ticketlock/_core"

# A segment that is just being made has no header yet.
_RETRY_S = 0.05

_PTRACE = "run ticketlock as root or, in a container, inside the same container"
_INSIDE = "from inside the process, ticketlock.snapshot() tells the same"


class Reader(Protocol):
    """`ticketlock._lab.SegmentReader`."""

    def process(self) -> RawProcess:
        """Who reports."""
        ...

    def sample(self, limit: int = 1000) -> Raw:
        """One reading."""
        ...

    def events(self, since: int, limit: int = 65536) -> list[RawEvent]:
        """The latest waits that ended."""
        ...


@dataclass(slots=True)
class Segment:
    """An open segment of a process that runs, or ran when it was opened."""

    pid: int
    start_ticks: int
    reader: Reader
    watch: proc.Watch
    descriptor: int
    # How it was found.
    path: str

    def still_named(self) -> bool:
        """Whether it is still where it was found: not after an exec, nor where the process closes all its files."""
        try:
            now = os.stat(self.path)
        except OSError:
            return False
        ours = os.fstat(self.descriptor)
        return (now.st_dev, now.st_ino) == (ours.st_dev, ours.st_ino)

    def close(self) -> None:
        """Give up the descriptors."""
        self.watch.close()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass(frozen=True, slots=True)
class Instrumented:
    """A process whose locks report."""

    pid: int
    command: tuple[str, ...]
    process: RawProcess
    locks: int
    # Since the process started.
    contended: int
    uptime_ns: int | None

    @property
    def program(self) -> str:
        """The script, module or program that it runs."""
        return proc.program(list(self.command))


@dataclass(frozen=True, slots=True)
class Found:
    """All that was found. `hidden` counts processes that the system does not let us look into; they may report or not."""

    processes: tuple[Instrumented, ...]
    hidden: int
    # Those with a segment that cannot be read, and why.
    unreadable: tuple[tuple[int, str], ...]


def reader_of(descriptor: int) -> Reader:
    """A reader of an open segment. Raises ValueError if it is none, or one of another major version."""
    from ticketlock import _lab

    # Looked up late: not every build has it.
    reader: Any = getattr(_lab, "SegmentReader", None)
    if reader is None:
        raise ValueError("this build of ticketlock reads no segments")
    found: Reader = reader(descriptor)
    return found


def open_segment(pid: int) -> Segment:
    """What a process reports. Raises `MonitorError`, saying why there is nothing to read and what can be done."""
    _check_platform()
    try:
        return _open(pid)
    except IncompatibleError:
        time.sleep(_RETRY_S)
        return _open(pid)


def _check_platform() -> None:
    if sys.platform == "win32":
        raise NotFoundError("processes cannot be watched from outside on Windows", _INSIDE)


def _open(pid: int) -> Segment:
    watch, start_ticks = _identify(pid)
    opened = False
    try:
        refused: str | None = None
        for path, descriptor in _candidates(pid):
            try:
                reader = reader_of(descriptor)
                fits = _fits(reader.process(), pid, start_ticks)
            except ValueError as wrong:
                refused, fits = str(wrong), False
            except BaseException:
                os.close(descriptor)
                raise
            if fits:
                opened = True
                return Segment(pid, start_ticks, reader, watch, descriptor, path)
            os.close(descriptor)
        if watch.ended():
            raise _not_found(pid)
        if refused is not None:
            raise IncompatibleError(
                f"what process {pid} reports cannot be read: {refused}",
                "use the ticketlock command of the Python environment that the process runs in",
            )
        raise _not_instrumented(pid)
    finally:
        if not opened:
            watch.close()


def _identify(pid: int) -> tuple[proc.Watch, int]:
    """Hold on to a process before anything of it is read, so that nothing is read of one that took its pid over."""
    if not proc.there():
        if not proc.signalable(pid):
            raise _not_found(pid)
        return proc.Watch(pid, 0), 0
    seen = proc.stat(pid)
    if seen is None and pid > 0 and proc.signalable(pid):
        raise NotPermittedError(f"process {pid} is there, and /proc hides it from you (hidepid)", _PTRACE)
    if seen is None:
        raise _not_found(pid)
    group = proc.leader(pid)
    if group not in (None, pid):
        raise NotFoundError(f"{pid} is a thread of process {group}", f"give {group}")
    watch = proc.Watch(pid, seen.start_ticks)
    again = proc.stat(pid)
    if seen.ended or again is None or again.start_ticks != seen.start_ticks:
        watch.close()
        raise _not_found(pid)
    return watch, seen.start_ticks


def _not_found(pid: int) -> NotFoundError:
    return NotFoundError(f"there is no process {pid}", "'ticketlock ps' lists those that can be watched")


def _fits(process: RawProcess, pid: int, start_ticks: int) -> bool:
    """Whether a segment is this process's own: an inherited one, or one of a process that had the pid before, is not."""
    known = (pid,) if not proc.there() else (pid, proc.inner_pid(pid))
    started = process["start_ticks"]
    return process["inner_pid"] in known and (started == 0 or start_ticks in (0, started))


def _candidates(pid: int) -> Iterator[tuple[str, int]]:
    """Paths and descriptors of all that may be the segment of a process."""
    owners = _owners(pid)
    if proc.there():
        try:
            for path in _named_files(pid):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    descriptor = files.open_safely(path, owners)
                    if descriptor is not None:
                        yield path, descriptor
        except PermissionError:
            raise _not_permitted(pid) from None
    root = f"/proc/{pid}/root" if proc.there() else ""
    wanted = (pid, proc.inner_pid(pid))
    for folder in files.folders(owners[0], proc.variable(pid, "XDG_RUNTIME_DIR"), root):
        for file in files.named(folder):
            if file.pid in wanted and (descriptor := files.open_one(file, owners)) is not None:
                yield os.path.join(folder, file.name), descriptor


def _owners(pid: int) -> tuple[int, ...]:
    """Who a process's segment may belong to: its users, or root, who it may have been before."""
    users = proc.uids(pid) if proc.there() else ()
    return (*users, 0) if users else (os.geteuid(),)


def _named_files(pid: int) -> Iterator[str]:
    """Paths of the open files of a process that are named like segments. Raises PermissionError."""
    folder = f"/proc/{pid}/fd"
    try:
        numbers = os.listdir(folder)
    except (FileNotFoundError, ProcessLookupError):
        return
    for number in numbers:
        path = f"{folder}/{number}"
        try:
            link = os.readlink(path)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if link.split(" ")[0] == MEMORY_FILE or files.is_link_to_one(link):
            yield path


def _not_permitted(pid: int) -> MonitorError:
    users = proc.uids(pid)
    if not users:
        return _not_found(pid)
    me = os.geteuid()
    if me not in users:
        return NotPermittedError(
            f"process {pid} belongs to {_user(users[0])}, and you are {_user(me)}", "run ticketlock as that user or as root"
        )
    if me == 0:
        return NotPermittedError(f"the system does not let you look into process {pid} (CAP_SYS_PTRACE is missing)", _PTRACE)
    return NotPermittedError(
        f"process {pid} lets nobody look into it (PR_SET_DUMPABLE is 0, as after a change of user or with a set-uid program)",
        f"{_PTRACE}; {_INSIDE}",
    )


def _user(uid: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except (KeyError, OSError):
        return f"user {uid}"


def _not_instrumented(pid: int) -> NotInstrumentedError:
    command = proc.command(pid)
    name = f"process {pid} ({proc.program(command)})" if command else f"process {pid}"
    if proc.mapped(pid, MEMORY_FILE):
        return NotInstrumentedError(
            f"{name} uses ticketlock and has closed the file that it reports in, as daemons do with all their files",
            "try again: it makes a new one soon after a thread has had to wait",
        )
    if proc.there() and not proc.mapped(pid, LIBRARY):
        return NotInstrumentedError(
            f"{name} does not use ticketlock", "start it with locks of ticketlock; 'ticketlock ps' lists processes that have them"
        )
    if proc.variable(pid, "TICKETLOCK_TELEMETRY") == "0":
        return NotInstrumentedError(
            f"{name} uses ticketlock and was started with TICKETLOCK_TELEMETRY=0", "start it without that variable"
        )
    return NotInstrumentedError(
        f"{name} reports nothing: it has made no lock of ticketlock yet, or could not make the file to report in",
        "try again once it uses its locks; inside it, ticketlock._lab.telemetry() says what went wrong",
    )


def instrumented() -> Found:
    """All processes whose locks report and that we may look into; not this one."""
    _check_platform()
    processes: list[Instrumented] = []
    unreadable: list[tuple[int, str]] = []
    hidden = 0
    for pid in _all_pids():
        try:
            if not _may_report(pid):
                continue
            segment = _open(pid)
        except (PermissionError, NotPermittedError):
            hidden += 1
        except IncompatibleError as wrong:
            unreadable.append((pid, wrong.cause))
        except MonitorError:
            continue
        else:
            try:
                processes.append(_describe(segment))
            finally:
                segment.close()
    return Found(tuple(processes), hidden, tuple(unreadable))


def _all_pids() -> list[int]:
    if proc.there():
        found = set(proc.pids())
    else:
        found = {file.pid for folder in files.folders(os.geteuid()) for file in files.named(folder)}
    return sorted(found - {os.getpid()})


def _may_report(pid: int) -> bool:
    """Cheap look at a process. Raises PermissionError."""
    if not proc.there():
        return True
    seen = proc.stat(pid)
    if seen is None or seen.kernel or seen.ended:
        return False
    if next(_named_files(pid), None) is not None:
        return True
    uid = _owners(pid)[0]
    return any(file.pid in (pid, proc.inner_pid(pid)) for folder in files.folders(uid) for file in files.named(folder))


def _describe(segment: Segment) -> Instrumented:
    reading = segment.reader.sample(0)
    process: RawProcess = {**reading["process"], "pid": segment.pid}
    uptime = proc.uptime_ns(segment.start_ticks)
    return Instrumented(
        pid=segment.pid,
        command=tuple(proc.command(segment.pid)),
        process=process,
        locks=reading["totals"]["locks"],
        contended=reading["totals"]["contended"],
        uptime_ns=uptime if uptime is not None else max(0, reading["at_ns"] - process["created_ns"]),
    )
