"""A line plot for terminals: braille where the encoding has it, ASCII elsewhere."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .text import Line, cell_width, crop, fit, pad, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .glyphs import Glyphs

PALETTE = ("cyan", "magenta", "yellow", "green", "blue", "red", "bright_cyan", "bright_magenta", "bright_yellow")

# Largest over smallest value from which a logarithmic axis shows more than a linear one.
LOG_FROM = 20.0

MIN_WIDTH, MIN_HEIGHT = 24, 5

# Bits of the braille dots, by row, left and right column (Unicode chart of the Braille patterns block).
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


@dataclass(frozen=True, slots=True)
class Series:
    """One line: a value, or None, for every tick of the horizontal axis."""

    label: str
    values: tuple[float | None, ...]


def line_plot(series: Sequence[Series], ticks: Sequence[str], title: str, size: tuple[int, int], glyphs: Glyphs) -> list[Line]:
    """Draw series over ticks in `size` (columns, rows of the drawing area). Nothing if nothing can be drawn.

    Ticks are evenly spaced. Data points carry the letter that the legend gives to their series, so that the plot can be
    read without colour.
    """
    known = [value for one in series for value in one.values if value is not None and value > 0]
    columns, rows = size
    if not known or not ticks or columns < MIN_WIDTH or rows < MIN_HEIGHT:
        return []
    low, high = min(known), max(known)
    logarithmic = high / low > LOG_FROM
    scale = _Scale(low, high, logarithmic)
    labels = [_axis_label(scale.value(1 - row / (rows - 1))) for row in range(rows)]
    margin = max(cell_width(label) for label in labels)
    canvas = _Canvas(columns - margin - 2, rows, glyphs.braille)
    spacing = canvas.width / len(ticks)
    xs = [int(spacing * (index + 0.5)) for index in range(len(ticks))]
    for index, one in enumerate(series):
        points = [(x, scale.share(value)) for x, value in zip(xs, one.values, strict=True) if value is not None and value > 0]
        canvas.polyline(points, index)
    for index, one in enumerate(series):
        for x, value in zip(xs, one.values, strict=True):
            if value is not None and value > 0:
                canvas.mark(x, scale.share(value), chr(ord("A") + index % 26), index)
    lines = [plain(fit(title + (" (logarithmic axis)" if logarithmic else ""), columns), "bold")]
    for row in range(rows):
        labelled = row % 3 == 0 or row == rows - 1
        head = pad(labels[row] if labelled else "", margin, ">") + " " + (glyphs.tick if labelled else glyphs.vertical)
        lines.append(((head, "dim"), *canvas.row(row)))
    lines.append(plain(" " * (margin + 1) + glyphs.corner + glyphs.horizontal * canvas.width, "dim"))
    lines.append(plain(_tick_line(ticks, xs, margin + 2, columns), "dim"))
    lines += _legend(series, columns)
    return [crop(line, columns) for line in lines]


def _axis_label(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def _tick_line(ticks: Sequence[str], xs: Sequence[int], offset: int, width: int) -> str:
    line = ""
    for tick, x in zip(ticks, xs, strict=True):
        start = offset + x - len(tick) // 2
        if start > len(line) or not line:
            line = line.ljust(max(0, start)) + tick
    return line[:width]


def _legend(series: Sequence[Series], width: int) -> list[Line]:
    lines: list[Line] = []
    current: list[tuple[str, str]] = []
    used = 0
    for index, one in enumerate(series):
        item = f"  {chr(ord('A') + index % 26)} {one.label}"
        if used and used + cell_width(item) > width:
            lines.append(tuple(current))
            current, used = [], 0
        current.append((item, PALETTE[index % len(PALETTE)]))
        used += cell_width(item)
    return [*lines, tuple(current)] if current else lines


@dataclass(frozen=True, slots=True)
class _Scale:
    """Values to shares of the height, 0 at the bottom."""

    low: float
    high: float
    logarithmic: bool

    def share(self, value: float) -> float:
        """0 to 1."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return value / self.high

    def value(self, share: float) -> float:
        """The value at a share."""
        if self.logarithmic:
            return float(self.low * (self.high / self.low) ** share)
        return share * self.high


class _Canvas:
    """Cells of dots with the series that drew last, and letters on top."""

    def __init__(self, width: int, height: int, braille: bool) -> None:
        self.width = width
        self.height = height
        self.braille = braille
        self._across, self._down = (2, 4) if braille else (1, 1)
        self._dots: dict[tuple[int, int], tuple[int, int]] = {}
        self._marks: dict[tuple[int, int], tuple[str, int]] = {}

    def polyline(self, points: Sequence[tuple[int, float]], owner: int) -> None:
        """Straight lines between points given as (cell column, share of the height)."""
        dots = [(x * self._across, self._dot_row(share)) for x, share in points]
        for (x0, y0), (x1, y1) in itertools.pairwise(dots):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            for step in range(steps + 1):
                self._dot(round(x0 + (x1 - x0) * step / steps), round(y0 + (y1 - y0) * step / steps), owner)

    def mark(self, x: int, share: float, letter: str, owner: int) -> None:
        """A letter at a point; to the right of it where another letter stands."""
        y = self._dot_row(share) // self._down
        for column in range(x, self.width):
            if (column, y) not in self._marks:
                self._marks[column, y] = (letter, owner)
                return

    def row(self, y: int) -> Line:
        """One row of cells."""
        spans: list[tuple[str, str]] = []
        for x in range(self.width):
            text, style = self._cell(x, y)
            if spans and spans[-1][1] == style:
                spans[-1] = (spans[-1][0] + text, style)
            else:
                spans.append((text, style))
        return tuple(spans)

    def _dot_row(self, share: float) -> int:
        return round((1 - share) * (self.height * self._down - 1))

    def _dot(self, x: int, y: int, owner: int) -> None:
        cell = (x // self._across, y // self._down)
        bits = self._dots.get(cell, (0, owner))[0] | _DOTS[y % self._down][x % self._across]
        self._dots[cell] = (bits, owner)

    def _cell(self, x: int, y: int) -> tuple[str, str]:
        if (x, y) in self._marks:
            letter, owner = self._marks[x, y]
            return letter, "bold " + PALETTE[owner % len(PALETTE)]
        if (x, y) in self._dots:
            bits, owner = self._dots[x, y]
            return (chr(0x2800 + bits) if self.braille else "."), PALETTE[owner % len(PALETTE)]
        return " ", ""
