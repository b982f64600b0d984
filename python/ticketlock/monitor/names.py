"""What a lock without a name is called in the source: the target of the assignment that made it."""

from __future__ import annotations

import os
import re
import stat
from functools import lru_cache

# `self.lock = ...`, `lock: Lock = ...`, `_cache.lock = ...`; not `a, b = ...`, where nobody knows which.
_TARGET = re.compile(r"\s*((?:[^\W\d]\w*\.)*[^\W\d]\w*)\s*(?::[^=]+)?=(?!=)")
# Longer files and lines are nobody's handwriting.
_LARGEST_FILE = 4 << 20
_LONGEST_LINE = 1_000


def guess(path: str, line: int, function: str, root: str = "") -> str | None:
    """`Cache.lock` for a line `self.lock = threading.Lock()` in `Cache.__init__`; None if the line does not tell.

    `root` goes before the path: where another process sees its files. What the path leads to may be anything.
    """
    text = _line(root + path, line)
    found = _TARGET.match(text) if text else None
    if found is None:
        return None
    target = found[1]
    first, dot, rest = target.partition(".")
    owner = function.rpartition(".")[0].rpartition(">.")[2]
    if dot and first in ("self", "cls") and owner:
        return f"{owner}.{rest}"
    if not dot and function and not function.startswith("<") and owner == "" and function[:1].isupper():
        return f"{function}.{target}"  # in the body of a class
    return target


def _line(path: str, line: int) -> str | None:
    lines = _lines(path)
    return lines[line - 1] if 0 < line <= len(lines) else None


@lru_cache(maxsize=256)
def _lines(path: str) -> tuple[str, ...]:
    try:
        # Not to wait for whoever writes to a pipe of that name.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with open(descriptor, encoding="utf-8", errors="replace") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_FILE:
                return ()
            return tuple(text[:_LONGEST_LINE] for text in file.read(_LARGEST_FILE).split("\n"))
    except (OSError, ValueError):
        return ()
