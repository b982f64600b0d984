"""What the views are made of: cells that hold foreign text, columns that fit, sparklines, windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ticketlock.cli.glyphs import sparkline
from ticketlock.cli.text import Line, Span, cell_width, clean, crop, fit, line_width, pad, plain
from ticketlock.monitor.history import levels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ticketlock.cli.glyphs import Glyphs
    from ticketlock.monitor.history import Track

GAP = "  "

# Foreign text beyond this is not even looked at.
LONGEST_LABEL = 512

# A sparkline's top: a share below it does not fill the line's height, however quiet the lock is otherwise.
LEAST_TOP = 0.01

# Selectors of how the character before them looks. Terminals disagree whether they widen it.
_SELECTORS = dict.fromkeys((*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
# More marks than this on one character come from no language.
_MOST_MARKS = 4


def label(text: str | None, missing: str = "-") -> str:
    """Foreign text in one line, safe to show, of bounded length."""
    if not text:
        return missing
    text = text[:LONGEST_LABEL]
    if text.isascii() and text.isprintable():
        return text
    return _thinned(clean(text.translate(_SELECTORS)))


def _thinned(text: str) -> str:
    kept: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if cell_width(character) == 0 else 0
        # A mark at the very beginning would land on whatever stands before the text.
        if marks <= _MOST_MARKS and (kept or not marks):
            kept.append(character)
    return "".join(kept)


def cut(text: str, width: int, glyphs: Glyphs, head: bool = False) -> str:
    """A text of at most `width` cells, with a mark where something is missing: at its end, or at its head."""
    if cell_width(text) <= width:
        return text
    if width <= 1:
        return glyphs.cut[:width]
    if not head:
        return fit(text, width - 1) + glyphs.cut
    while cell_width(text) > width - 1:
        text = text[max(1, (cell_width(text) - width + 1) // 2) :]
    return glyphs.cut + text


def short_site(site: str | None, width: int, glyphs: Glyphs) -> str:
    """The end of a site, which says more than its beginning."""
    return cut(label(site).replace("\\", "/"), width, glyphs, head=True)


def fill(lines: list[Line], width: int, height: int) -> list[Line]:
    """Exactly `height` lines of at most `width` cells."""
    return [crop(line, width) for line in padded(lines, height)]


def padded(lines: list[Line], height: int) -> list[Line]:
    """Exactly `height` lines."""
    height = max(0, height)
    return lines[:height] + [()] * (height - len(lines))


def join(parts: Sequence[Span], width: int, gap: str = GAP) -> Line:
    """Parts side by side as far as they fit, the first in any case; empty ones are left out."""
    line: list[Span] = []
    used = 0
    for text, style in parts:
        if not text:
            continue
        needed = cell_width(text) + (len(gap) if line else 0)
        if line and used + needed > width:
            break
        if line:
            line.append((gap, ""))
        line.append((text, style))
        used += needed
    return crop(tuple(line), width)


def ends(left: Line, right: Line, width: int) -> Line:
    """A line with something at both ends; the left one gives way."""
    room = max(0, width - line_width(right) - 1)
    left = crop(left, room)
    return crop((*left, (" " * max(0, width - line_width(left) - line_width(right)), ""), *right), width)


def window(count: int, cursor: int, height: int) -> tuple[int, int]:
    """Which of `count` rows to show in `height` lines, so that the one at the cursor is among them."""
    height = max(0, height)
    start = max(0, min(cursor - height // 2, count - height))
    return start, min(count, start + height)


def spark(track: Track, now: int, width: int, glyphs: Glyphs) -> str:
    """The last minute of a share, oldest first, blank where nobody watched."""
    values = levels(track, now, width)
    known = [value for value in values if value is not None]
    top = max([*known, LEAST_TOP])
    drawn = iter(sparkline(tuple(known), len(known), top, glyphs))
    return "".join(" " if value is None else next(drawn) for value in values)


def heat(share: float) -> str:
    """The style of a share of waiting."""
    return "bold red" if share >= 0.5 else "yellow" if share >= 0.05 else "dim" if share < 0.0005 else ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A column as a view wants it, `least` to `most` cells wide (0 for `least`: never cut). The highest `rank` goes first."""

    title: str
    rank: int
    align: str
    least: int
    most: int
    # Cut at its head: the end says more.
    tail: bool = False


def widths(columns: Sequence[Cell], wanted: Sequence[int], width: int) -> dict[int, int]:
    """The columns that fit and their widths: `wanted` is what their content takes. Room left over goes to those cut short."""
    shown = list(range(len(columns)))
    sizes = [max(len(column.title), column.least, min(column.most, size)) for column, size in zip(columns, wanted, strict=True)]
    small = [
        min(sizes[index], max(column.least, len(column.title))) if column.least else sizes[index]
        for index, column in enumerate(columns)
    ]
    while len(shown) > 1 and sum(small[index] + len(GAP) for index in shown) - len(GAP) > width:
        last = max(shown, key=lambda index: (columns[index].rank, index))
        if columns[last].rank == 0:
            break
        shown.remove(last)
    room = max(0, width - len(GAP) * (len(shown) - 1) - sum(small[index] for index in shown))
    given = {index: small[index] for index in shown}
    for index in sorted(shown, key=lambda index: columns[index].rank):
        more = min(room, sizes[index] - small[index])
        given[index] += more
        room -= more
    return given


def row(spans: Sequence[Span], columns: Sequence[Cell], given: dict[int, int], glyphs: Glyphs) -> Line:
    """One line of a table."""
    line: list[Span] = []
    for index, width in given.items():
        text, style = spans[index]
        if line:
            line.append((GAP, ""))
        line.append((pad(cut(text, width, glyphs, columns[index].tail), width, columns[index].align), style))
    return tuple(line)


def table(columns: Sequence[Cell], rows: Sequence[Sequence[Span]], width: int, glyphs: Glyphs) -> list[Line]:
    """A heading and rows, cut to a width."""
    wanted = [max([0, *(cell_width(spans[index][0]) for spans in rows)]) for index in range(len(columns))]
    given = widths(columns, wanted, width)
    heading = row([(column.title, "dim") for column in columns], columns, given, glyphs)
    return [heading, *(row(spans, columns, given, glyphs) for spans in rows)]


def heading(text: str, width: int, glyphs: Glyphs) -> Line:
    """A line across the screen with a word in it."""
    return crop(((text + " ", "bold"), (glyphs.horizontal * max(0, width - cell_width(text) - 1), "dim")), width)


def note(text: str, width: int) -> Line:
    """Something said in passing."""
    return crop(plain(text, "dim"), width)
