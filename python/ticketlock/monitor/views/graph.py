"""Who waits for whom: cycles first, then every thread that others wait for with those behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticketlock.cli.text import crop, duration, plain
from ticketlock.monitor.columns import lock_name

from .parts import heading, label, note
from .threads import thread_name

if TYPE_CHECKING:
    from ticketlock.cli.glyphs import Glyphs
    from ticketlock.cli.text import Line
    from ticketlock.monitor.model import Cycle, LockRow, Snapshot, ThreadRow
    from ticketlock.monitor.state import State

# Deeper chains are cut: a line has no room for them.
DEEPEST = 20


def lines(state: State, width: int, glyphs: Glyphs) -> list[Line]:
    """The whole graph."""
    snapshot = state.shown.snapshot
    if snapshot is None:
        return []
    graph = _Graph(snapshot, glyphs)
    found: list[Line] = []
    for number, cycle in enumerate(snapshot.cycles, 1):
        found += [heading(f"cycle {number}: none of these threads can go on", width, glyphs), *graph.cycle(cycle), ()]
    forest = graph.forest()
    if forest:
        found += [heading("who waits for whom", width, glyphs), *forest]
    if not found:
        found.append(note("nobody waits at this moment", width))
    return [crop(line, width) for line in found]


class _Graph:
    """Threads and locks by number, and what hangs on each."""

    def __init__(self, snapshot: Snapshot, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._threads = {thread.ident: thread for thread in snapshot.threads}
        self._locks = {lock.id: lock for lock in snapshot.locks if lock.id is not None}
        self._in_cycle = {ident for cycle in snapshot.cycles for ident in cycle.threads}
        self._waiting: dict[int, list[ThreadRow]] = {}
        for thread in snapshot.threads:
            if thread.waiting_on is not None:
                self._waiting.setdefault(thread.waiting_on, []).append(thread)
        for threads in self._waiting.values():
            threads.sort(key=lambda thread: -(thread.waiting_ns or 0))
        self._held: dict[int, list[int]] = {}
        for lock in self._locks.values():
            if lock.owner is not None and lock.id in self._waiting:
                self._held.setdefault(lock.owner, []).append(lock.id)

    def cycle(self, cycle: Cycle) -> list[Line]:
        """A line for every edge."""
        found: list[Line] = []
        for index, (ident, lock) in enumerate(zip(cycle.threads, cycle.locks, strict=True)):
            holder = cycle.threads[(index + 1) % len(cycle.threads)]
            found.append(
                (
                    (f"  {self._thread(ident)}", "bold red"),
                    (" waits for ", ""),
                    (self._lock(lock), "cyan"),
                    (" that ", ""),
                    ("it holds itself" if holder == ident else self._thread(holder) + " holds", "bold red"),
                )
            )
        return found

    def forest(self) -> list[Line]:
        """From every thread that waits for nothing, and from every lock that nobody is known to hold, what waits behind it."""
        found: list[Line] = []
        seen: set[int] = set()
        for owner in self._held:
            thread = self._threads.get(owner)
            if thread is None or thread.waiting_on is None:
                found.append(self._line(thread, owner, 0))
                found += self._behind(owner, 1, seen)
        for lock in self._waiting:
            if lock not in self._locks or self._locks[lock].owner is None:
                found += [plain("not known to be held by anybody at this moment", "dim"), *self._lock_lines(lock, 1, seen)]
        for owner in self._held:
            if owner in self._in_cycle and owner not in seen:
                found.append(self._line(self._threads.get(owner), owner, 0))
                found += self._behind(owner, 1, seen)
        return found

    def _behind(self, owner: int, depth: int, seen: set[int]) -> list[Line]:
        if owner in seen:
            return [self._branch(depth, "(see above)", "bold red")]
        seen.add(owner)
        return [line for lock in self._held.get(owner, ()) for line in self._lock_lines(lock, depth, seen)]

    def _lock_lines(self, lock: int, depth: int, seen: set[int]) -> list[Line]:
        waiting = self._waiting[lock]
        found = [self._branch(depth, f"{self._lock(lock)}: {len(waiting)} waiting", "cyan")]
        if depth >= DEEPEST:
            return found
        for thread in waiting:
            found.append(self._line(thread, thread.ident, depth + 1))
            if self._held.get(thread.ident):
                found += self._behind(thread.ident, depth + 2, seen)
        return found

    def _branch(self, depth: int, text: str, style: str) -> Line:
        return (("  " * (depth - 1) + self._glyphs.corner + self._glyphs.horizontal, "dim"), (text, style))

    def _line(self, thread: ThreadRow | None, ident: int, depth: int) -> Line:
        text = self._thread(ident)
        cyclic = ident in self._in_cycle
        if thread is None:
            text += " (unknown thread)"
        elif thread.waiting_on is not None:
            text += f"  {thread.state} for {duration(thread.waiting_ns)}"
        else:
            text += f"  {thread.state}"
        text += "  ! in a cycle" * cyclic
        style = "bold red" if cyclic else ""
        return plain(text, style) if depth == 0 else self._branch(depth, text, style)

    def _thread(self, ident: int) -> str:
        thread = self._threads.get(ident)
        return f"thread {ident}" if thread is None else thread_name(thread)

    def _lock(self, ident: int) -> str:
        lock: LockRow | None = self._locks.get(ident)
        return f"lock {ident}" if lock is None else label(lock_name(lock))
