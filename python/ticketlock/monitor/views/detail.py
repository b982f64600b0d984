"""One lock: its figures, when it was waited for, how long the waits were, and which lines they are charged to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticketlock.cli.glyphs import bar
from ticketlock.cli.text import crop, duration, number, pad, plain
from ticketlock.monitor import state as states
from ticketlock.monitor.columns import lock_name, owner, per_second, percent
from ticketlock.monitor.history import SECONDS, levels

from .parts import LEAST_TOP, cut, heading, join, label, note, short_site

if TYPE_CHECKING:
    from ticketlock.cli.glyphs import Glyphs
    from ticketlock.cli.text import Line, Span
    from ticketlock.monitor.model import Blame, LockRow
    from ticketlock.monitor.state import State

TIMELINE_ROWS = 4
_BAR = 40


def lines(state: State, width: int, glyphs: Glyphs) -> list[Line]:
    """All of it, for as many lines as it takes."""
    lock, there = _lock(state)
    if lock is None:
        return [note("no lock is selected", width)]
    found: list[Line] = [_title(lock, width, glyphs)]
    if not there:
        found.append(crop(plain("not reported any more: gone, or not among those waited for most", "yellow"), width))
    snapshot = states.shown_snapshot(state)
    found += _figures(lock, 0 if snapshot is None else snapshot.interval_ns, width)
    found += [(), heading(f"share of the last {SECONDS} s that was waited", width, glyphs)]
    found += _timeline(state, lock, width, glyphs)
    found += [(), heading("how long waits were", width, glyphs), *_histogram(lock, width, glyphs)]
    found += [(), heading("lines that made others wait (holders)", width, glyphs), *_blames(lock.holder_sites, width, glyphs)]
    found += [(), heading("lines that waited", width, glyphs), *_blames(lock.waiter_sites, width, glyphs)]
    found += [(), heading("threads that wait now", width, glyphs), *_waiters(state, lock, width, glyphs)]
    return found


def _lock(state: State) -> tuple[LockRow | None, bool]:
    """The lock as it is shown, and whether it is still reported."""
    wanted, snapshot = state.shown.detail, states.shown_snapshot(state)
    if wanted is None or snapshot is None:
        return wanted, False
    present = next((lock for lock in snapshot.locks if lock.id == wanted.id), None)
    return (wanted, False) if present is None else (present, True)


def _title(lock: LockRow, width: int, glyphs: Glyphs) -> Line:
    name = cut(label(lock_name(lock)), max(8, width // 2), glyphs)
    parts: list[Span] = [
        (name, "bold cyan"),
        (f"{lock.kind} {lock.id}", ""),
        ("internal" if lock.internal else "", "dim"),
        (short_site(lock.site, max(8, width - 30), glyphs) if lock.site else "site unknown", "dim"),
    ]
    return join(parts, width)


def _figures(lock: LockRow, interval: int, width: int) -> list[Line]:
    waits = lock.waits
    holder: Span = (f"held by {label(owner(lock))}" if lock.owner is not None else "free", "bold red" if lock.abandoned else "")
    rows: list[list[Span]] = [
        [
            (f"wait {percent(lock.wait_share)}%", "bold"),
            holder,
            (f"waiting now {lock.waiters}", ""),
            (f"most at one time {lock.waiters_max}", ""),
        ],
        [
            (f"acquisitions {_count(lock.acquisitions)} ({per_second(lock.acquisitions, interval)}/s)", ""),
            (f"contended {lock.contended} ({percent(lock.contended_share)}%)", ""),
            (f"parks {lock.parks}", ""),
            (f"timeouts {lock.timeouts}", ""),
            (f"hand-overs {lock.hand_overs}", ""),
        ],
        [
            (f"waits {waits.count}", ""),
            (f"sum {duration(waits.sum)}", ""),
            (f"p50 {duration(waits.p50)}", ""),
            (f"p90 {duration(waits.p90)}", ""),
            (f"p99 {duration(waits.p99)}", ""),
            (f"p99.9 {duration(waits.p999)}", ""),
            (f"max {duration(waits.max)}", ""),
        ],
    ]
    return [line for row in rows for line in _flowed(row, width)]


def _flowed(parts: list[Span], width: int) -> list[Line]:
    """Parts side by side, on as many lines as they need."""
    found: list[Line] = []
    while parts:
        line = join(parts, width)
        taken = max(1, (len(line) + 1) // 2)
        found.append(line)
        parts = parts[taken:]
    return found


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _timeline(state: State, lock: LockRow, width: int, glyphs: Glyphs) -> list[Line]:
    history = state.shown.history
    track = history.locks.get(lock.id if lock.id is not None else "", ())
    margin = 8
    cells = min(2 * SECONDS, width - margin)
    values = levels(track, history.now, cells)
    known = [value for value in values if value is not None]
    if not known or cells < 10:
        return [note("no waits in the last minute", width)]
    top = max([*known, LEAST_TOP])
    steps = len(glyphs.levels) - 1
    found: list[Line] = []
    for index in range(TIMELINE_ROWS):
        below = TIMELINE_ROWS - 1 - index
        drawn = ""
        for value in values:
            level = 0 if value is None else round((value / top * TIMELINE_ROWS - below) * steps)
            drawn += glyphs.levels[max(0, min(steps, level))]
        axis = f"{percent(top)}%" if index == 0 else "0%" if below == 0 else ""
        found.append(((pad(axis, margin - 1, ">") + " ", "dim"), (drawn, "magenta")))
    return found


def _histogram(lock: LockRow, width: int, glyphs: Glyphs) -> list[Line]:
    counts = lock.waits.log2
    used = [index for index, count in enumerate(counts) if count > 0]
    if not used:
        return [note("no waits", width)]
    most, total = max(counts), sum(counts)
    found: list[Line] = []
    for index in range(used[0], used[-1] + 1):
        count = counts[index]
        limits = f"{duration(2.0**index):>7} - {duration(2.0 ** (index + 1)):<7}"
        figure = f"{number(count, 9):>10} {percent(count / total):>5}% "
        found.append(((limits, "dim"), (figure, ""), (bar(count / most, min(_BAR, max(0, width - 37)), glyphs), "cyan")))
    return found


def _blames(blames: tuple[Blame, ...], width: int, glyphs: Glyphs) -> list[Line]:
    if not blames:
        return [note("none was sampled", width)]
    gauge = min(20, width // 4)
    return [
        (
            (f"{percent(blame.share):>5}% ", "bold" if blame.share >= 0.5 else ""),
            (bar(blame.share, gauge, glyphs) + " ", "cyan"),
            (short_site(blame.site, max(8, width // 2 - 6), glyphs), ""),
            (f"  {cut(label(blame.function), 40, glyphs)}", "dim"),
            (f"  {blame.samples} sampled", "dim"),
        )
        for blame in blames
    ]


def _waiters(state: State, lock: LockRow, width: int, glyphs: Glyphs) -> list[Line]:
    snapshot = state.shown.snapshot
    threads = () if snapshot is None else snapshot.threads
    waiting = [thread for thread in threads if thread.waiting_on is not None and thread.waiting_on == lock.id]
    if not waiting:
        return [note("none", width)]
    waiting.sort(key=lambda thread: -(thread.waiting_ns or 0))
    return [
        (
            (f"{duration(thread.waiting_ns):>8}  ", ""),
            (cut(label(thread.name, str(thread.ident)), max(8, width // 2), glyphs), "cyan"),
            (f"  {thread.state}", "dim"),
        )
        for thread in waiting
    ]
