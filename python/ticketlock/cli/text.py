"""Styled text without a toolkit: lines of spans, widths, numbers and durations."""

from __future__ import annotations

import functools
import textwrap
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Span = tuple[str, str]
Line = tuple[Span, ...]

_SGR = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
    "bright_red": "91",
    "bright_green": "92",
    "bright_yellow": "93",
    "bright_blue": "94",
    "bright_magenta": "95",
    "bright_cyan": "96",
}


def plain(text: str, style: str = "") -> Line:
    """A line of one span."""
    return ((text, style),)


def clean(text: str) -> str:
    """Foreign text made safe to show: control, format, bidirectional and unpaired characters become `?`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("?" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") else c for c in text)


def cell_width(text: str) -> int:
    """Terminal cells that a text takes."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


@functools.lru_cache(maxsize=4096)
def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def fit(text: str, width: int) -> str:
    """The beginning of a text that takes at most `width` cells."""
    if cell_width(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += _cells(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept)


def pad(text: str, width: int, align: str = "<") -> str:
    """A text cut or filled to exactly `width` cells, aligned left (`<`) or right (`>`)."""
    text = fit(text, width)
    blank = " " * (width - cell_width(text))
    return blank + text if align == ">" else text + blank


def crop(line: Line, width: int) -> Line:
    """A line cut to `width` cells."""
    kept: list[Span] = []
    left = max(0, width)
    for text, style in line:
        if left <= 0:
            break
        shown = fit(text, left)
        left -= cell_width(shown)
        kept.append((shown, style))
    return tuple(kept)


def line_width(line: Line) -> int:
    """Terminal cells that a line takes."""
    return sum(cell_width(text) for text, _ in line)


def wrapped(text: str, width: int, style: str = "", indent: int = 0) -> list[Line]:
    """A text as lines of whole words, the ones after the first indented. Words are not broken in narrow terminals."""
    lines = textwrap.wrap(
        text, max(width, indent + 20), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return [plain(line, style) for line in lines]


def to_text(lines: Iterable[Line], colour: bool) -> str:
    """Lines as text, with escapes only if `colour`; trailing blanks are dropped."""
    return "".join(_rendered(line, colour) + "\n" for line in lines)


def _rendered(line: Line, colour: bool) -> str:
    if not colour:
        return "".join(text for text, _ in line).rstrip()
    out = []
    for text, style in line:
        codes = ";".join(_SGR[word] for word in style.split())
        out.append(f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text)
    return "".join(out).rstrip()


def number(value: float | None, digits: int = 3) -> str:
    """A number with some significant digits and no exponent below a billion; `-` where it is unknown."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:.0f}" if abs(value) < 1e9 else f"{value:.{digits - 1}e}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.1e}"


def millions(value: float | None) -> str:
    """A rate in millions."""
    return "-" if value is None else number(value / 1e6)


def duration(nanoseconds: float | None) -> str:
    """A duration with the unit that suits it; `-` where it is unknown."""
    if nanoseconds is None:
        return "-"
    for limit, unit, size in ((1e3, "ns", 1.0), (1e6, "us", 1e3), (1e9, "ms", 1e6)):
        if nanoseconds < limit * 0.9995:
            return number(nanoseconds / size) + unit
    return number(nanoseconds / 1e9) + "s"


def seconds(value: float | None) -> str:
    """A running time such as `1:05`; `-:--` where it is unknown."""
    if value is None:
        return "-:--"
    whole = max(0, round(value))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}" if whole >= 3600 else f"{whole // 60}:{whole % 60:02}"
