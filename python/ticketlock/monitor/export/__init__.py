"""What others' tools read: one module a format, each with a `write` that puts snapshots or events into a stream.

Text goes to text streams (UTF-8, newline `\\n`), pprof to a binary one. All but CSV and pprof label locks with `display_name`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal

from . import chrome, collapsed, csv_export, pprof, prometheus, speedscope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ticketlock.monitor.model import Snapshot
    from ticketlock.monitor.raw import RawEvent

# What a format is made of: the snapshot of an interval, the one since the process's creation (built without an earlier
# reading), or the latest events beside a snapshot.
Needs = Literal["interval", "total", "events"]


@dataclass(frozen=True, slots=True)
class Format:
    """One format. `write` returns what the user must be told about the output, None if nothing."""

    title: str
    suffix: str
    binary: bool
    needs: Needs
    write: Callable[[Snapshot, Sequence[RawEvent], IO[Any]], str | None]


FORMATS: Mapping[str, Format] = {
    "pprof": Format("pprof profile, gzip", ".pb.gz", True, "interval", lambda snapshot, _, out: pprof.write(snapshot, out)),
    "speedscope": Format(
        "speedscope profile", ".speedscope.json", False, "interval", lambda snapshot, _, out: speedscope.write(snapshot, out)
    ),
    "collapsed": Format(
        "collapsed stacks", ".folded", False, "interval", lambda snapshot, _, out: collapsed.write(snapshot, out)
    ),
    "chrome": Format("Chrome trace events", ".trace.json", False, "events", chrome.write),
    "prometheus": Format(
        "Prometheus text format 0.0.4", ".prom", False, "total", lambda snapshot, _, out: prometheus.write(snapshot, out)
    ),
    "csv": Format("CSV, a row a lock", ".csv", False, "interval", lambda snapshot, _, out: csv_export.write([snapshot], out)),
}
