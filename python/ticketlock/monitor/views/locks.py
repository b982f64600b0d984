"""The table of locks: columns by their importance, or two lines a lock where there is no room for a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticketlock.cli.text import cell_width, duration
from ticketlock.monitor import state as states
from ticketlock.monitor.columns import COLUMNS, DEFAULT_COLUMNS, lock_name, owner, percent
from ticketlock.monitor.history import key_of, trend

from .frame import COMPACT
from .parts import Cell, cut, heat, label, note, row, short_site, spark, widths, window

if TYPE_CHECKING:
    from ticketlock.cli.glyphs import Glyphs
    from ticketlock.cli.text import Line, Span
    from ticketlock.monitor.model import LockRow
    from ticketlock.monitor.state import State

# Cells that columns of foreign text take at least and at most; figures take what they need.
_BOUNDS = {"lock": (12, 40), "site": (12, 32), "owner": (8, 20)}
_FIGURE = 10

# The sparkline at the end of a row.
_SPARK_LEAST, _SPARK_MOST = 10, 60


def lines(state: State, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The rows around the selected one."""
    rows = states.locks(state)
    if not rows:
        return [note(_nothing(state), width)]
    if width < COMPACT:
        return _compact(state, rows, width, height, glyphs)
    first, last = window(len(rows), state.cursor, height - 1)
    return _table(state, rows[first:last], state.cursor - first, width, glyphs)


def _nothing(state: State) -> str:
    snapshot = states.shown_snapshot(state)
    if snapshot is None or not snapshot.locks:
        return "no lock was waited for yet"
    hidden = sum(lock.internal for lock in snapshot.locks)
    return "no lock passes the filter" if state.options.filter else f"{hidden} internal locks are hidden, i shows them"


def _table(state: State, rows: list[LockRow], selected: int, width: int, glyphs: Glyphs) -> list[Line]:
    snapshot = states.shown_snapshot(state)
    interval = 0 if snapshot is None else snapshot.interval_ns
    names = state.options.columns or DEFAULT_COLUMNS
    columns = [_cell(name, state.options.sort) for name in names]
    cells = [[_span(lock, name, interval, glyphs) for name in names] for lock in rows]
    # The pointer and the arrow of the trend stand before the first column.
    edge = 2 + 2 * state.trend
    wanted = [max([0, *(cell_width(spans[index][0]) for spans in cells)]) for index in range(len(names))]
    given = widths(columns, wanted, width - edge)
    used = edge + sum(given.values()) + 2 * (len(given) - 1)
    history = state.shown.history
    room = min(_SPARK_MOST, width - used - 2)
    room = room if room >= _SPARK_LEAST else 0
    titles: list[Span] = [(COLUMNS[name].title, "bold" if name == state.options.sort else "dim") for name in names]
    heading = (((" " * edge), ""), *row(titles, columns, given, glyphs), ("  last 60 s" if room else "", "dim"))
    drawn = [heading]
    for index, (lock, spans) in enumerate(zip(rows, cells, strict=True)):
        track = history.locks.get(key_of(lock), ())
        pointer = glyphs.pointer if index == selected else " "
        line: Line = ((pointer + " ", "bold cyan"),)
        if state.trend:
            line += (_arrow(trend(track, history.now), glyphs),)
        line += row(spans, columns, given, glyphs)
        if room:
            line += (("  " + spark(track, history.now, room, glyphs), "magenta"),)
        drawn.append(_highlighted(line) if index == selected else line)
    return drawn


def _cell(name: str, sort: str) -> Cell:
    column = COLUMNS[name]
    least, most = _BOUNDS.get(name, (0, _FIGURE))
    # The column that decides the order stays.
    return Cell(column.title, 0 if name == sort else column.rank, column.align, least, most, tail=name == "site")


def _span(lock: LockRow, name: str, interval: int, glyphs: Glyphs) -> Span:
    if name == "wait":
        return percent(lock.wait_share), heat(lock.wait_share)
    if name == "lock":
        return label(lock_name(lock)), "dim" if lock.id is None else "cyan"
    if name == "site":
        return short_site(COLUMNS[name].cell(lock, interval), _BOUNDS[name][1], glyphs), "dim"
    if name == "owner":
        return label(owner(lock)), "bold red" if lock.abandoned else ""
    return COLUMNS[name].cell(lock, interval), ""


def _arrow(direction: int, glyphs: Glyphs) -> Span:
    if direction > 0:
        return glyphs.rising + " ", "red"
    return (glyphs.falling + " ", "green") if direction < 0 else ("  ", "")


def _highlighted(line: Line) -> Line:
    return tuple((text, f"bold {style}".replace("dim", "").replace("bold bold", "bold").strip()) for text, style in line)


def _compact(state: State, rows: list[LockRow], width: int, height: int, glyphs: Glyphs) -> list[Line]:
    first, last = window(len(rows), state.cursor, max(1, height // 2))
    drawn: list[Line] = []
    history = state.shown.history
    for index in range(first, last):
        lock = rows[index]
        pointer = glyphs.pointer if index == state.cursor else " "
        share = f"{percent(lock.wait_share)}%".rjust(6)
        name = cut(label(lock_name(lock)), max(1, width - 10), glyphs)
        line: Line = ((pointer + " ", "bold cyan"), (share + "  ", heat(lock.wait_share)), (name, "cyan"))
        if state.trend:
            line += ((" ", ""), _arrow(trend(history.locks.get(key_of(lock), ()), history.now), glyphs))
        drawn.append(line)
        figures = f"Q {lock.waiters}  p99 {duration(lock.waits.p99)}  max {duration(lock.waits.max)}  "
        drawn.append(((" " * 10, ""), (figures, ""), (label(owner(lock)), "bold red" if lock.abandoned else "dim")))
    return drawn
