"""What locks report, as tests look at it: from inside, and through the open files of another process."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from threads import JOIN_S, join, spawn
from ticketlock import _lab

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from ticketlock.monitor.raw import Raw, RawLock, RawSite, RawThread

needs_memfd = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a memfd is Linux's")
needs_segment = pytest.mark.skipif(_lab.own_segment() is None, reason="locks report to nobody here")


def descriptors(pid: int | str = "self") -> list[str]:
    """Paths of the open descriptors of a process that are segments."""
    folder = f"/proc/{pid}/fd"
    found = []
    for number in os.listdir(folder):
        try:
            link = os.readlink(f"{folder}/{number}")
        except FileNotFoundError:  # the one that lists
            continue
        if link.startswith("/memfd:ticketlock"):
            found.append(f"{folder}/{number}")
    return found


@contextmanager
def reader_of(pid: int) -> Iterator[_lab.SegmentReader]:
    """A reader of another process's only segment."""
    (path,) = descriptors(pid)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield _lab.SegmentReader(descriptor)
    finally:
        os.close(descriptor)


def start_ticks(pid: int | str = "self") -> int:
    """When a process started, as the system has it."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
        return int(stat.read().rpartition(")")[2].split()[19])


def own() -> _lab.SegmentReader:
    reader = _lab.own_segment()
    assert reader is not None
    return reader


def reading() -> Raw:
    return own().sample(100_000)


def row_of(lock: Any, raw: Raw | None = None) -> RawLock:
    """The row of a lock of this process."""
    (row,) = (row for row in (raw or reading())["locks"] if row["id"] == lock.id)
    return row


def thread_rows(ident: int) -> list[RawThread]:
    return [row for row in reading()["threads"] if row["ident"] == ident]


def site_at(line: int, path: str) -> tuple[int, RawSite]:
    """Number and row of a line."""
    ((number, row),) = (
        (number, row) for number, row in enumerate(reading()["sites"]) if (row["path"], row["line"]) == (path, line)
    )
    return number, row


def line_here() -> int:
    """The line that calls this."""
    return sys._getframe(1).f_lineno


def eventually(condition: Callable[[], Any], what: str = "it") -> Any:
    """What `condition` gives once that is true. For what another thread or process is about to do."""
    deadline = time.monotonic() + JOIN_S
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what} does not come"
        time.sleep(0.002)
    return answer


@contextmanager
def waiting_for(lock: Any, count: int = 1, name: str | None = None) -> Iterator[list[threading.Thread]]:
    """That many threads that wait for a lock, which somebody holds, and take it one after the other when it is free."""

    def wait() -> None:
        lock.acquire()
        lock.release()

    waiters = [spawn(wait) for _ in range(count)]
    if name is not None:
        for waiter in waiters:
            waiter.name = name
    eventually(lambda: row_of(lock)["waiters"] == count if known(lock) else False, "a waiter")
    try:
        yield waiters
    finally:
        if lock.locked():
            lock.release()
        join(waiters)


def known(lock: Any) -> bool:
    """Whether the lock has a row."""
    return any(row["id"] == lock.id for row in reading()["locks"])


def contend(lock: Any, seconds: float = 0.01, waiters: int = 1) -> None:
    """Hold a lock for so long while so many wait for it."""
    lock.acquire()
    with waiting_for(lock, waiters):
        time.sleep(seconds)
