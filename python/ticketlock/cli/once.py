"""A snapshot as text that is printed once: the table of locks, and above it, loudly, what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticketlock.monitor import columns

from .table import Column, Row, render
from .text import Line, clean, duration, plain, seconds, wrapped

if TYPE_CHECKING:
    from ticketlock.monitor.model import LockRow, Snapshot
    from ticketlock.monitor.options import ViewOptions

    from .glyphs import Glyphs

# Rows beyond this one are counted; JSON and CSV have all of them.
MOST_ROWS = 50

# Above these shares a lock is hot, in red and in yellow.
HOT, WARM = 0.2, 0.02


def lines(snapshot: Snapshot, options: ViewOptions, title: str, ending: str | None, width: int, glyphs: Glyphs) -> list[Line]:
    """All that is printed."""
    drawn = header(snapshot, title, width, glyphs)
    totals = snapshot.totals
    drawn += wrapped(
        glyphs.separator.join(
            (
                f"{duration(snapshot.interval_ns)} measured",
                f"{columns.percent(totals.wait_share)}% waiting",
                f"{columns.per_second(totals.contended, snapshot.interval_ns)}/s contended",
                f"{columns.per_second(totals.acquisitions, snapshot.interval_ns)}/s acquired",
                f"{totals.locks} locks",
                f"{len(snapshot.threads)} threads that waited",
            )
        ),
        width,
    )
    if ending is not None:
        drawn += wrapped(f"! {clean(ending)}: these are its last figures", width, "yellow")
    drawn += warnings(snapshot, width)
    drawn.append(plain(""))
    shown = columns.select(snapshot, options)
    drawn += _table(snapshot, shown[:MOST_ROWS], options, width, glyphs)
    left_out = len(shown) - MOST_ROWS
    if left_out > 0:
        drawn += wrapped(f"and {left_out} more; --json and --csv have all of them", width, "dim")
    internal = sum(lock.internal for lock in snapshot.locks)
    if internal and not options.internal:
        drawn += wrapped(f"{internal} internal locks are not shown; --internal shows them", width, "dim")
    return drawn


def header(snapshot: Snapshot, title: str, width: int, glyphs: Glyphs) -> list[Line]:
    """Whose locks these are."""
    process = snapshot.process
    parts = (
        clean(title),
        f"pid {process['pid']}",
        f"Python {clean(process['python'])}{' free-threaded' if process['free_threaded'] else ''}",
        f"ticketlock {clean(process['version'])}",
        f"reporting for {seconds((snapshot.at_ns - process['created_ns']) / 1e9)}",
    )
    return wrapped(glyphs.separator.join(parts), width, "bold")


def warnings(snapshot: Snapshot, width: int) -> list[Line]:
    """What must not be overlooked."""
    found = [f"! cycle: {text}" for text in cycles(snapshot)]
    found += [
        f"! {_called(lock)} is held by a thread that has ended, {columns.owner(lock)}"
        for lock in snapshot.locks
        if lock.abandoned
    ]
    dropped = ", ".join(f"{count} {clean(what)}" for what, count in snapshot.dropped.items())
    if dropped:
        found.append(f"! dropped for want of room: {dropped}; they are missing below")
    return [line for text in found for line in wrapped(text, width, "bold red", indent=2)]


def cycles(snapshot: Snapshot) -> list[str]:
    """Who waits for whom in a circle, in words."""
    threads = {thread.ident: thread for thread in snapshot.threads}
    locks = {lock.id: lock for lock in snapshot.locks}
    found = []
    for cycle in snapshot.cycles:
        steps = []
        for index, (ident, lock_id) in enumerate(zip(cycle.threads, cycle.locks, strict=True)):
            thread, lock = threads.get(ident), locks.get(lock_id)
            who = clean(thread.name) if thread is not None and thread.name else str(ident)
            what = f"lock {lock_id}" if lock is None else _called(lock)
            holder = cycle.threads[(index + 1) % len(cycle.threads)]
            other = threads.get(holder)
            whose = clean(other.name) if other is not None and other.name else str(holder)
            steps.append(f"{who} waits for {what}, which {'it' if holder == ident else whose} holds")
        found.append("; ".join(steps))
    return found


def _called(lock: LockRow) -> str:
    return columns.lock_name(lock) + (f" ({columns.site(lock)})" if lock.site else "")


def _table(snapshot: Snapshot, rows: list[LockRow], options: ViewOptions, width: int, glyphs: Glyphs) -> list[Line]:
    if not rows:
        why = "no lock passes the filter" if options.filter and snapshot.locks else "no lock has been used or waited for yet"
        return wrapped(why, width, "dim")
    chosen = [columns.COLUMNS[name] for name in options.columns or columns.DEFAULT_COLUMNS]
    heads = [Column(one.title, 0 if options.columns else one.rank, one.align) for one in chosen]
    cells: list[Row] = [tuple((one.cell(lock, snapshot.interval_ns), _style(one.name, lock)) for one in chosen) for lock in rows]
    return render(heads, cells, width, glyphs)


def _style(column: str, lock: LockRow) -> str:
    if column == "wait":
        return "red" if lock.wait_share >= HOT else "yellow" if lock.wait_share >= WARM else ""
    if column == "owner" and lock.abandoned:
        return "bold red"
    return "bold" if column == "lock" else ""
