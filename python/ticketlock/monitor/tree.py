"""A process and those that it has forked, as one source. Locks of different processes stay apart and say whose they are."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from . import proc
from .errors import MonitorError, NotInstrumentedError
from .model import Cycle, Snapshot, Totals
from .rows import row_order
from .source import LIMIT, Live

if TYPE_CHECKING:
    from collections.abc import Callable

    from .model import LockRow, SiteRow, ThreadRow
    from .raw import RawEvent, RawProcess

# Numbers that one process has for its locks and for its threads. What a forked child inherits has the same numbers in both.
_LOCKS = 1 << 40
_IDENTS = 1 << 48


class Tree:
    """A process with its descendants. Raises `MonitorError` if none of them reports."""

    def __init__(self, pid: int, limit: int = LIMIT) -> None:
        self.ending: str | None = None
        self.pid = pid
        self._limit = limit
        self._members: dict[int, Live] = {}
        # In the order of appearance; a place is never given away again.
        self._places: dict[tuple[int, int], int] = {}
        self._process: RawProcess | None = None
        problem: MonitorError | None = None
        try:
            self._members[pid] = Live(pid, limit)
        except NotInstrumentedError as silent:
            problem = silent
        self._adopt()
        if not self._members:
            raise problem or NotInstrumentedError(f"process {pid} reports nothing", "see 'ticketlock ps'")
        self.title = f"{proc.title(pid)} and its children"

    def read(self) -> Snapshot | None:
        """What went on in all of them since the former read."""
        if self.ending is not None:
            return None
        self._adopt()
        read = self._collect(lambda member: member.read())
        # Those that have ended have said all they had to.
        for pid, member in list(self._members.items()):
            if member.ending is not None:
                if len(self._members) == 1:
                    self.ending = member.ending
                    break
                member.close()
                del self._members[pid]
        return read

    def total(self) -> Snapshot | None:
        """What went on since the baseline in those that are there."""
        return self._collect(lambda member: member.total())

    def reset(self) -> None:
        """Count totals from now on."""
        for member in self._members.values():
            member.reset()

    def events(self) -> list[RawEvent]:
        """The waits that ended since each process was found, with the numbers that their locks and threads have here."""
        found: list[RawEvent] = []
        for pid, member in self._members.items():
            place = self._places.get((pid, member.segment.start_ticks), 0)
            found += [
                {**event, "lock": event["lock"] + place * _LOCKS, "ident": event["ident"] + place * _IDENTS}
                for event in member.events()
            ]
        return sorted(found, key=lambda event: event["started_ns"])

    def over(self, within_s: float = 0.0) -> bool:
        """Whether all have ended, or the only one does so within a time."""
        members = list(self._members.values())
        return all(member.over(within_s if len(members) == 1 else 0.0) for member in members)

    def close(self) -> None:
        """Let go of all of them."""
        for member in self._members.values():
            member.close()

    def _adopt(self) -> None:
        parents = dict.fromkeys((self.pid, *self._members))
        for parent in parents:
            for pid in proc.descendants(parent):
                if pid not in self._members:
                    try:
                        self._members[pid] = Live(pid, self._limit)
                    except MonitorError:
                        continue

    def _collect(self, ask: Callable[[Live], Snapshot | None]) -> Snapshot | None:
        found = []
        for member in self._members.values():
            # One that has become unreadable has an ending now, and is left out like those that are gone.
            with contextlib.suppress(MonitorError):
                snapshot = ask(member)
                if snapshot is not None:
                    found.append(snapshot)
        if not found:
            return None
        whole = combine([(snapshot, self._place(snapshot)) for snapshot in found])
        # One process speaks for all of them, also when it has ended.
        self._process = self._process or whole.process
        return replace(whole, process=self._process)

    def _place(self, snapshot: Snapshot) -> int:
        process = snapshot.process
        return self._places.setdefault((process["pid"], process["start_ticks"]), len(self._places))


def combine(members: list[tuple[Snapshot, int]]) -> Snapshot:
    """Snapshots of different processes as one, each with its place, which tells its numbers from those of the others."""
    several = len(members) > 1
    first = members[0][0]
    marked = [_mark(snapshot, place) if several or place else snapshot for snapshot, place in members]
    dropped: dict[str, int] = {}
    for snapshot in marked:
        for what, count in snapshot.dropped.items():
            dropped[what] = dropped.get(what, 0) + count
    return replace(
        first,
        locks=tuple(sorted((lock for one in marked for lock in one.locks), key=row_order)),
        sites=tuple(sorted((site for one in marked for site in one.sites), key=row_order)),
        threads=tuple(thread for one in marked for thread in one.threads),
        cycles=tuple(cycle for one in marked for cycle in one.cycles),
        dropped=dropped,
        totals=Totals(
            locks=sum(one.totals.locks for one in marked),
            acquisitions=sum(one.totals.acquisitions for one in marked),
            contended=sum(one.totals.contended for one in marked),
            wait_share=sum(one.totals.wait_share for one in marked),
        ),
    )


def _mark(snapshot: Snapshot, place: int) -> Snapshot:
    pid = snapshot.process["pid"]

    def lock_id(number: int | None) -> int | None:
        return None if number is None else number + place * _LOCKS

    def ident(number: int | None) -> int | None:
        return None if number is None else number + place * _IDENTS

    def name(text: str | None, kind: str = "") -> str:
        return f"{text or kind} [{pid}]"

    def lock(row: LockRow) -> LockRow:
        return replace(
            row,
            id=lock_id(row.id),
            name=name(row.name, f"<{row.kind}>") if row.id is not None else row.name,
            owner=ident(row.owner),
            owner_name=None if row.owner_name is None else name(row.owner_name),
        )

    def thread(row: ThreadRow) -> ThreadRow:
        return replace(
            row,
            ident=row.ident + place * _IDENTS,
            name=name(row.name, str(row.native_id)),
            waiting_on=lock_id(row.waiting_on),
            waiting_on_name=None if row.waiting_on_name is None else name(row.waiting_on_name),
            delays=tuple(replace(cell, lock=cell.lock + place * _LOCKS) for cell in row.delays),
        )

    def site(row: SiteRow) -> SiteRow:
        return replace(row, site=f"{row.site} [{pid}]")

    return replace(
        snapshot,
        locks=tuple(lock(row) for row in snapshot.locks),
        sites=tuple(site(row) for row in snapshot.sites),
        threads=tuple(thread(row) for row in snapshot.threads),
        cycles=tuple(
            Cycle(
                tuple(number + place * _IDENTS for number in cycle.threads),
                tuple(number + place * _LOCKS for number in cycle.locks),
            )
            for cycle in snapshot.cycles
        ),
    )
