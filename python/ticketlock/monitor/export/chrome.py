"""Chrome trace events, which Perfetto opens: waits by thread, and the length of each lock's line."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import count, groupby
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ticketlock.monitor.model import display_name, lock_name_of_id

from .stacks import encodable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ticketlock.monitor.model import Snapshot
    from ticketlock.monitor.raw import RawEvent

# Entries of a trace, of all sorts: what viewers still open without trouble.
MAX_ENTRIES = 200_000

# A wait is one entry for its thread, and two changes of its lock's line.
_PER_WAIT = 3

# Threads without a native id are numbered from here on.
_FIRST_NUMBER = 1_000_000_000


class _Wait(NamedTuple):
    lock: int
    thread: int
    started_ns: int
    duration_ns: int
    outcome: str
    sequence: int | None


def write(snapshot: Snapshot, events: Sequence[RawEvent], stream: IO[str]) -> str | None:
    """Waits that ended (`events`) and, from the snapshot, those that go on; what is over the cap is left out, oldest first.

    Times are microseconds of the system's monotonic clock. What is left out or was lost is returned as text for the user, and
    stands under `otherData`.
    """
    trace = _Trace(snapshot, events)
    left_out, lost = trace.left_out, _lost(events)
    other = {
        "program": encodable(f"ticketlock {snapshot.process['version']}"),
        "clock": "monotonic",
        "waits": len(trace.waits),
        "capped": bool(left_out),
        "waits_left_out": left_out,
        "waits_lost": lost,
    }
    stream.write('{"displayTimeUnit": "ns", "otherData": ' + json.dumps(other, allow_nan=False) + ', "traceEvents": [')
    separator = "\n"
    for entry in trace.entries():
        stream.write(separator + json.dumps(entry, allow_nan=False))
        separator = ",\n"
    stream.write("\n]}\n")
    notes = []
    if left_out:
        notes.append(f"the trace is capped at {MAX_ENTRIES:,} entries: the {left_out:,} oldest waits are left out")
    if lost:
        notes.append(f"{lost:,} waits are missing: they ended faster than they were read")
    return "; ".join(notes) or None


class _Trace:
    def __init__(self, snapshot: Snapshot, events: Sequence[RawEvent]) -> None:
        self._pid = snapshot.process["pid"]
        self._locks = {lock.id: encodable(display_name(lock)) for lock in snapshot.locks if lock.id is not None}
        self._threads = {thread.ident: thread for thread in snapshot.threads}
        waits = [
            _Wait(one["lock"], one["ident"], one["started_ns"], one["duration_ns"], one["outcome"], one["sequence"])
            for one in events
        ]
        waits.sort(key=lambda wait: wait.started_ns + wait.duration_ns)
        waits += [
            _Wait(thread.waiting_on, thread.ident, snapshot.at_ns - thread.waiting_ns, thread.waiting_ns, "waiting", None)
            for thread in snapshot.threads
            if thread.waiting_on is not None and thread.waiting_ns is not None
        ]
        # One entry names the process; a thread is named for each of its waits at most.
        names = len({wait.thread for wait in waits}) + 1
        room = max(0, (MAX_ENTRIES - names) // _PER_WAIT)
        self.left_out = max(0, len(waits) - room)
        self.waits = waits[self.left_out :]

    def entries(self) -> Iterator[dict[str, Any]]:
        yield self._name("process_name", 0, f"ticketlock: pid {self._pid}")
        numbers = self._numbers()
        for ident, number in numbers.items():
            thread = self._threads.get(ident)
            yield self._name("thread_name", number, (thread and thread.name) or f"thread {ident:#x}")
        for wait in self.waits:
            args: dict[str, Any] = {"lock": wait.lock, "outcome": wait.outcome}
            if wait.sequence is not None:
                args["sequence"] = wait.sequence
            yield {
                "ph": "X",
                "cat": "wait",
                "name": self._lock(wait.lock),
                "pid": self._pid,
                "tid": numbers[wait.thread],
                "ts": wait.started_ns / 1000,
                "dur": wait.duration_ns / 1000,
                "args": args,
            }
        yield from self._lines()

    def _lines(self) -> Iterator[dict[str, Any]]:
        """How many wait for each lock, at every change."""
        changes: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for wait in self.waits:
            changes[wait.lock] += ((wait.started_ns, 1), (wait.started_ns + wait.duration_ns, -1))
        for lock, steps in changes.items():
            waiting = 0
            for at_ns, together in groupby(sorted(steps), key=lambda step: step[0]):
                waiting += sum(step for _, step in together)
                yield {
                    "ph": "C",
                    "cat": "line",
                    "name": f"waiting for {self._lock(lock)}",
                    "id": lock,
                    "pid": self._pid,
                    "ts": at_ns / 1000,
                    "args": {"threads": waiting},
                }

    def _lock(self, lock: int) -> str:
        return self._locks.get(lock) or lock_name_of_id(lock)

    def _numbers(self) -> dict[int, int]:
        unnumbered = count(_FIRST_NUMBER)
        numbers: dict[int, int] = {}
        for wait in self.waits:
            if wait.thread not in numbers:
                thread = self._threads.get(wait.thread)
                numbers[wait.thread] = (thread and thread.native_id) or next(unnumbered)
        return numbers

    def _name(self, what: str, tid: int, name: str) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": self._pid, "tid": tid, "ts": 0, "args": {"name": encodable(name)}}


def _lost(events: Sequence[RawEvent]) -> int:
    """Numbers that are missing in between."""
    if not events:
        return 0
    numbers = {event["sequence"] for event in events}
    return max(numbers) - min(numbers) + 1 - len(numbers)
