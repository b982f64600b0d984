"""Tables that drop their least important columns until they fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .text import Line, Span, cell_width, pad, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .glyphs import Glyphs

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A column. The one with the highest `rank` goes first when space is short; rank 0 always stays."""

    title: str
    rank: int = 0
    align: str = ">"


@dataclass(frozen=True, slots=True)
class Heading:
    """A line across the table, above the rows that follow."""

    text: str
    style: str = "bold"


Row = tuple[Span, ...] | Heading


def render(columns: Sequence[Column], rows: Sequence[Row], width: int, glyphs: Glyphs) -> list[Line]:
    """The table as lines. Columns of rank 0 are never cut, even if the terminal has to wrap them."""
    widths = [
        max([cell_width(column.title), *(cell_width(row[index][0]) for row in rows if not isinstance(row, Heading))])
        for index, column in enumerate(columns)
    ]
    shown = _shown(columns, widths, width)
    total = sum(widths[index] for index in shown) + len(GAP) * (len(shown) - 1)
    lines = [_line([(columns[index].title, "dim") for index in shown], columns, shown, widths)]
    if not (rows and isinstance(rows[0], Heading)):
        lines.append(plain(glyphs.horizontal * total, "dim"))
    for row in rows:
        if isinstance(row, Heading):
            rule = glyphs.horizontal * (total - cell_width(row.text) - 1)
            lines.append(((row.text, row.style), (f" {rule}", "dim")))
        else:
            lines.append(_line([row[index] for index in shown], columns, shown, widths))
    return lines


def _shown(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    shown = list(range(len(columns)))
    while sum(widths[index] + len(GAP) for index in shown) - len(GAP) > width:
        last = max(shown, key=lambda index: (columns[index].rank, index))
        if columns[last].rank == 0:
            break
        shown.remove(last)
    return shown


def _line(spans: Sequence[Span], columns: Sequence[Column], shown: Sequence[int], widths: Sequence[int]) -> Line:
    line: list[Span] = []
    for (text, style), index in zip(spans, shown, strict=True):
        if line:
            line.append((GAP, ""))
        line.append((pad(text, widths[index], columns[index].align), style))
    return tuple(line)
