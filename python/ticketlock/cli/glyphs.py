"""Characters for drawing: a rich set, and one that any encoding can carry."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of drawing characters. `braille` tells whether dots of two by four a cell can be drawn."""

    braille: bool
    horizontal: str
    vertical: str
    corner: str
    tick: str
    full: str
    empty: str
    levels: str
    separator: str
    live: str
    stale: str
    best: str
    tie: str
    rising: str
    falling: str
    cut: str
    pointer: str


UNICODE = Glyphs(
    braille=True,
    horizontal="─",
    vertical="│",
    corner="└",
    tick="┤",
    full="█",
    empty="░",
    levels=" ▁▂▃▄▅▆▇█",
    separator=" · ",
    live="●",
    stale="○",
    best="*",
    tie="~",
    rising="▲",
    falling="▼",
    cut="…",
    pointer="▶",
)

ASCII = Glyphs(
    braille=False,
    horizontal="-",
    vertical="|",
    corner="+",
    tick="+",
    full="#",
    empty=".",
    levels=" .:-=+*#%",
    separator=", ",
    live="*",
    stale="o",
    best="*",
    tie="~",
    rising="^",
    falling="v",
    cut="~",
    pointer=">",
)


def for_encoding(encoding: str | None, ascii_only: bool) -> Glyphs:
    """The rich set if the stream's encoding can carry all of it."""
    if ascii_only or not encoding:
        return ASCII
    try:
        "─│└┤█░▁▂▃▄▅▆▇·●○▲▼…▶⣿⠁".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def bar(share: float, width: int, glyphs: Glyphs) -> str:
    """A bar of `width` cells, filled for `share` of it (0 to 1)."""
    filled = round(max(0.0, min(1.0, share)) * width)
    return glyphs.full * filled + glyphs.empty * (width - filled)


def sparkline(values: tuple[float, ...], width: int, top: float, glyphs: Glyphs) -> str:
    """The last `width` values as levels from 0 to `top`, padded on the left."""
    steps = len(glyphs.levels) - 1
    shown = values[-width:] if width > 0 else ()
    drawn = "".join(
        glyphs.levels[max(1, min(steps, round(value / top * steps)))] if top > 0 else glyphs.levels[1] for value in shown
    )
    return drawn.rjust(max(0, width))
