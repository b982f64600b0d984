"""Where segments lie that are files: on systems without memory files, or where making one failed."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# PID-STARTTICKS.v1
NAME = re.compile(r"(\d{1,10})-(\d{1,20})\.v1", re.ASCII)

_CS_DARWIN_USER_TEMP_DIR = 65537


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file that calls itself a segment of a process."""

    folder: str
    name: str
    pid: int
    start_ticks: int


def folders(uid: int, runtime: str | None = None, root: str = "") -> list[str]:
    """Where the processes of a user put their files. `runtime`: XDG_RUNTIME_DIR of the process, `root`: its root directory."""
    found = [
        os.path.join(root + path, "ticketlock")
        for path in dict.fromkeys((runtime, os.environ.get("XDG_RUNTIME_DIR")))
        if path and path.startswith("/")
    ]
    if sys.platform == "darwin":
        with contextlib.suppress(OSError, ValueError):
            found.append(os.path.join(os.confstr(_CS_DARWIN_USER_TEMP_DIR) or "/tmp", "ticketlock"))
    else:
        found.append(f"{root}/dev/shm/ticketlock-{uid}")
    return found


def named(folder: str) -> Iterator[SegmentFile]:
    """The files of a folder that are named like segments."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in sorted(names):
        if match := NAME.fullmatch(name):
            yield SegmentFile(folder, name, int(match[1]), int(match[2]))


def is_link_to_one(link: str) -> bool:
    """Whether an open file, by the name that /proc gives it, is a segment of this kind."""
    folder, name = os.path.split(link.removesuffix(" (deleted)"))
    return NAME.fullmatch(name) is not None and os.path.basename(folder).startswith("ticketlock")


def open_one(file: SegmentFile, uids: tuple[int, ...]) -> int | None:
    """A descriptor, if folder and file belong to one of these users and to nobody else; None otherwise."""
    # Not for Windows, which has no such flags and no such files.
    directory, nofollow = getattr(os, "O_DIRECTORY", 0), getattr(os, "O_NOFOLLOW", 0)
    try:
        folder = os.open(file.folder, os.O_RDONLY | os.O_CLOEXEC | directory | nofollow)
    except OSError:
        return None
    try:
        about = os.fstat(folder)
        if about.st_uid not in uids or stat.S_IMODE(about.st_mode) & 0o077:
            return None
        return open_safely(file.name, uids, nofollow, folder)
    except OSError:
        return None
    finally:
        os.close(folder)


def open_safely(path: str, uids: tuple[int, ...], flags: int = 0, folder: int | None = None) -> int | None:
    """A descriptor for reading a regular file of one of these users, None if it is anything else. Raises OSError."""
    # A pipe in its place must not make us wait, nor a terminal become ours.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | flags, dir_fd=folder)
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode) and about.st_uid in uids:
        return descriptor
    os.close(descriptor)
    return None
