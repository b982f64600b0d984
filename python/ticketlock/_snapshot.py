"""What this process's locks report, from inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _lab

if TYPE_CHECKING:
    from .monitor.model import Snapshot
    from .monitor.raw import Raw, RawEvent

# Locks with a row of their own; the others are in their sites' rows and in the totals.
LIMIT = 10_000


def snapshot() -> Snapshot:
    """All that the locks of this process have counted since it began to report, and how they stand now.

    Raises RuntimeError, with the reason, if they do not report.
    """
    # First, so that what is imported here does not count.
    raw = reading()
    from dataclasses import replace

    from .monitor import graph
    from .monitor.build import build
    from .monitor.names import guess

    found = build(raw, None, naming=guess)
    return replace(found, cycles=graph.lasting(found.cycles, raw, reading))


def reading() -> Raw:
    """One raw reading of this process's segment. Raises RuntimeError, with the reason, if there is none."""
    return _segment().sample(LIMIT)


def events() -> list[RawEvent]:
    """The latest waits that ended. Raises RuntimeError, with the reason, if the locks do not report."""
    return _segment().events(0)


def _segment() -> _lab.SegmentReader:
    reader = _lab.own_segment()
    if reader is None:
        raise RuntimeError(f"locks of this process do not report: {_lab.telemetry().get('why') or 'telemetry is off'}")
    return reader
