"""The threads, the main thread first, each with its table of tuned delays: one for each lock it waits for in line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticketlock.cli.glyphs import sparkline
from ticketlock.cli.text import duration, number

from .parts import Cell, label, note, table

if TYPE_CHECKING:
    from ticketlock.cli.glyphs import Glyphs
    from ticketlock.cli.text import Line, Span
    from ticketlock.monitor.model import DelayCell, Snapshot, ThreadRow
    from ticketlock.monitor.state import State

# Width of the sparklines: of recent waits, and of a delay.
RECENT, DELAY = 20, 30

_COLUMNS = (
    Cell("thread", 0, "<", 10, 30),
    Cell("state", 3, "<", 0, 8),
    Cell("waits for", 1, "<", 8, 24),
    Cell("since", 2, ">", 0, 8),
    Cell("waits", 4, ">", 0, 10),
    Cell("waited", 5, ">", 0, 8),
    Cell("parks", 7, ">", 0, 10),
    Cell("polls", 8, ">", 0, 10),
    Cell("latest waits", 6, "<", 12, RECENT, tail=True),
)

_DELAYS = (
    Cell("  delay for", 0, "<", 12, 30),
    Cell("units", 0, ">", 0, 8),
    Cell("hits", 3, ">", 0, 10),
    Cell("collisions", 4, ">", 0, 10),
    Cell("spinning", 2, ">", 0, 8),
    Cell("went", 1, "<", 8, DELAY, tail=True),
)

STYLES = {"running": "green", "spinning": "yellow", "parked": "dim"}


# A thread, one of its delays, or the heading of all delays.
Item = tuple["ThreadRow", "DelayCell | None"] | None


def items(snapshot: Snapshot | None) -> list[Item]:
    """What the lines below the heading show. One heading is enough for all delays: their columns are the same."""
    found: list[Item] = []
    headed = False
    for thread in () if snapshot is None else ordered(snapshot):
        found.append((thread, None))
        if thread.delays and not headed:
            found.append(None)
            headed = True
        found += [(thread, cell) for cell in thread.delays]
    return found


def lines(state: State, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The heading, and the lines that are scrolled to: there may be thousands, and only these are made."""
    snapshot = state.shown.snapshot
    rows = items(snapshot)
    if snapshot is None or not rows:
        return [note("no thread has waited yet", width)]
    start = max(0, min(state.scroll, len(rows) - (height - 1)))
    rows = rows[start : start + max(0, height - 1)]
    threads = [_spans(item[0], snapshot, glyphs) for item in rows if item and item[1] is None]
    cells = [_delay(state, item[0], item[1], glyphs) for item in rows if item and item[1] is not None]
    heading, *thread_lines = table(_COLUMNS, threads, width, glyphs)
    delay_heading, *delay_lines = table(_DELAYS, cells, width, glyphs)
    of_threads, of_delays = iter(thread_lines), iter(delay_lines)
    return [
        heading,
        *(delay_heading if item is None else next(of_threads) if item[1] is None else next(of_delays) for item in rows),
    ]


def is_main(thread: ThreadRow, snapshot: Snapshot) -> bool:
    """Whether a thread is its process's first."""
    return thread.native_id in (snapshot.process["pid"], snapshot.process["inner_pid"]) or thread.name == "MainThread"


def ordered(snapshot: Snapshot) -> list[ThreadRow]:
    """The main thread, those that wait (the longest first), then by time waited."""
    return sorted(
        snapshot.threads,
        key=lambda thread: (
            not is_main(thread, snapshot),
            thread.waiting_on is None,
            -(thread.waiting_ns or 0),
            -thread.wait_ns_sum,
            thread.ident,
        ),
    )


def thread_name(thread: ThreadRow) -> str:
    """Its name, else a number by which it can be found."""
    return label(thread.name, f"thread {thread.native_id or thread.ident}")


def _spans(thread: ThreadRow, snapshot: Snapshot, glyphs: Glyphs) -> list[Span]:
    waits = tuple(float(value) for value in thread.recent_waits_ns[-RECENT:])
    main = is_main(thread, snapshot)
    return [
        (thread_name(thread) + " (main)" * (main and thread.name != "MainThread"), "bold cyan" if main else "cyan"),
        (thread.state, STYLES[thread.state]),
        (label(thread.waiting_on_name, "-" if thread.waiting_on is None else f"lock {thread.waiting_on}"), ""),
        (duration(thread.waiting_ns), ""),
        (str(thread.waits), ""),
        (duration(thread.wait_ns_sum), ""),
        (str(thread.parks), "dim"),
        (str(thread.polls), "dim"),
        (sparkline(waits, len(waits), max(waits, default=0.0), glyphs), "magenta"),
    ]


def _delay(state: State, thread: ThreadRow, cell: DelayCell, glyphs: Glyphs) -> list[Span]:
    went = state.shown.history.delays.get((thread.ident, cell.lock), ())[-DELAY:]
    pays = "pays" if cell.spin_score > 0 else "in vain" if cell.spin_score < 0 else "-"
    return [
        ("  " + label(cell.lock_name, f"lock {cell.lock}"), ""),
        (number(cell.delay), "bold"),
        (str(cell.hits), "dim"),
        (str(cell.collisions), "dim"),
        (pays, "green" if cell.spin_score > 0 else "dim"),
        (sparkline(went, len(went), max(went, default=0.0), glyphs), "magenta"),
    ]
