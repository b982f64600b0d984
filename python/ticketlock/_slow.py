"""Reports of slow waits."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _core, _lab
from ._watch import Watch

# Locks whose names are read and remembered: those with most waiting.
LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class SlowWait:
    """A wait for a lock that took `wait_ms`.

    `name` is the lock's name, `thread` that of the thread with this `ident`, both None where there is none (any more). `site`
    is the line that waited, `path:line`; None if it was not looked at, which happens to waits beyond a thousand a second.
    """

    lock: int
    name: str | None
    wait_ms: float
    ident: int
    thread: str | None
    site: str | None


SlowWaitCallback = Callable[[SlowWait], object]

_WATCH: Watch[SlowWait] = Watch("ticketlock-slow-wait")


def on_slow_wait(ms: float | None, callback: SlowWaitCallback | None) -> SlowWaitCallback | None:
    """Call `callback` with every wait of `ms` milliseconds or more that got its lock; None switches that off.

    A wait is told when the thread that waited has released the lock. The callback runs in a thread of its own
    (`ticketlock-slow-wait`), never with a lock of ours held, so a slow one delays no waiter; what it raises goes to
    `threading.excepthook`, and what it waits for itself is not told. Returns the callback that was set before. A forked child
    goes on telling.

    Raises ValueError for `ms` that is not above 0 or not finite, TypeError for what is no number or no callable. To switch
    off, `ms` may be None.
    """
    if callback is not None and not callable(callback):
        raise TypeError(f"on_slow_wait: expected a callable or None, got {type(callback).__name__}")
    if ms is None and callback is None:
        from_ns = 1
    elif not isinstance(ms, (int, float)):
        raise TypeError(f"on_slow_wait: ms must be a number of milliseconds above 0, got {type(ms).__name__}")
    elif not (ms > 0 and math.isfinite(ms)):
        raise ValueError(f"on_slow_wait: ms must be a number of milliseconds above 0, got {ms!r}")
    else:
        # 35 years stand for all longer ones, which the native number does not hold.
        from_ns = max(1, round(min(ms, 2**40) * 1e6))
    return _WATCH.set(callback, _event, lambda report: _core._set_slow_wait(from_ns, report))


def _event(report: Mapping[str, Any]) -> SlowWait:
    lock, ident = report["lock"], report["ident"]
    # First, since a thread may end meanwhile.
    thread = next((thread.name for thread in threading.enumerate() if thread.ident == ident), None)
    name, site = _DIRECTORY.look_up(lock, report["site"])
    return SlowWait(lock, name, report["wait_ns"] / 1e6, ident, thread, site)


class _Directory:
    """Names of locks and places of sites, as the segment has them: read when one is asked for that was not there before."""

    def __init__(self) -> None:
        self._names: dict[int, str | None] = {}
        self._sites: dict[int, str] = {}

    def look_up(self, lock: int, site: int) -> tuple[str | None, str | None]:
        """Name of a lock, and `path:line` of a site, whose number is one more than its index; 0 is no site."""
        if lock not in self._names or (site and site not in self._sites):
            self._read()
            # Likewise if it is gone.
            self._names.setdefault(lock, None)
        return self._names.get(lock), self._sites.get(site)

    def _read(self) -> None:
        self._names.clear()
        if (segment := _lab.own_segment()) is not None:
            raw = segment.sample(LIMIT)
            self._names.update((lock["id"], lock["name"]) for lock in raw["locks"])
            known = ((number, site) for number, site in enumerate(raw["sites"], 1) if site["path"] != "?")
            self._sites.update((number, f"{site['path']}:{site['line']}") for number, site in known)


_DIRECTORY = _Directory()
