"""The help: every key and every column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticketlock.cli.text import pad, wrapped
from ticketlock.monitor.columns import COLUMNS

from .parts import heading

if TYPE_CHECKING:
    from ticketlock.cli.glyphs import Glyphs
    from ticketlock.cli.text import Line
    from ticketlock.monitor.state import State

# Keys as people read them, what the decoder calls them, and what they do.
KEYS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("q", ("q",), "quit (so does Ctrl-C)"),
    ("? h", ("?", "h"), "this help, and back"),
    ("up down j k", ("up", "down", "j", "k"), "select a row, or scroll"),
    ("PgUp PgDn", ("pgup", "pgdn"), "by a page"),
    ("Home End", ("home", "end"), "to the first row, to the last"),
    ("Enter", ("enter",), "details of the selected lock; the locks of the selected site"),
    ("Esc", ("esc",), "back; clears the filter"),
    ("l", ("l",), "locks"),
    ("t", ("t",), "threads with their tuned delays, and back"),
    ("c", ("c",), "creation sites, and back"),
    ("g", ("g",), "who waits for whom, and back"),
    ("s S", ("s", "S"), "sort by the next column, by the one before"),
    ("/", ("/",), "filter by part of a name, kind, site or owner; re:EXPR for an expression; Enter keeps it, Esc drops it"),
    ("space", (" ",), "pause what is shown; counting and recording go on"),
    ("d", ("d",), "figures of the latest interval, or totals since the baseline"),
    ("r", ("r",), "count totals from now (the target's own counters are not touched)"),
    ("i", ("i",), "show locks that the standard library and ticketlock itself made"),
    ("+ -", ("+", "=", "-"), "read more often, less often (0.1 to 5 s)"),
    ("x", ("x",), "arrows: the share of the last 3 s against that of the 12 s before"),
    ("w", ("w",), "record to a file, and stop"),
)

# What is not a column of the table of locks.
_MORE = (
    ("last 60 s", "share of waiting over the last minute, scaled to the lock's own maximum"),
    ("units", "a tuned delay, in units of 4 ns for each waiter ahead"),
    ("hits", "times that the delay was found in the thread's table; collisions: times that another lock had its slot"),
    ("spinning", "whether spinning for this lock has paid for the thread, or was in vain"),
    ("dropped", "what found no room in the target's tables: it is missing from this screen"),
    ("abandoned", "a lock whose holder has ended without releasing it"),
    ("cycle", "threads each of which waits for the next: a deadlock if it stays"),
)

_NAME = 13


def lines(state: State, width: int, glyphs: Glyphs) -> list[Line]:
    """All of it."""
    del state
    found = [heading("keys", width, glyphs)]
    for name, _, about in KEYS:
        found += _entry(name, about, width)
    found += [(), heading("columns", width, glyphs)]
    for column in COLUMNS.values():
        found += _entry(column.title, column.about, width)
    for name, about in _MORE:
        found += _entry(name, about, width)
    return found


def _entry(name: str, about: str, width: int) -> list[Line]:
    room = max(20, width - _NAME)
    rows = wrapped(about, room)
    return [((pad(name if index == 0 else "", _NAME), "bold"), *row) for index, row in enumerate(rows)]
