"""Frames of the live screen: pure functions of a state, a size and a set of glyphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticketlock.cli.text import plain

from . import detail as detail
from . import frame as frame
from . import graph as graph
from . import locks as locks
from . import manual as manual
from . import sites as sites
from . import threads as threads
from .parts import fill, padded

if TYPE_CHECKING:
    from collections.abc import Callable

    from ticketlock.cli.glyphs import Glyphs
    from ticketlock.cli.text import Line
    from ticketlock.monitor.state import State

# Views that are made as a whole and scrolled in. The others make only the rows that fit.
_TEXTS: dict[str, Callable[[State, int, Glyphs], list[Line]]] = {
    "detail": detail.lines,
    "graph": graph.lines,
    "help": manual.lines,
}


def render(state: State, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The frame: exactly `height` lines of at most `width` cells."""
    if frame.tiny(width, height):
        return fill([frame.status_line(state, width)], width, height)
    top, bottom = frame.top(state, width, height, glyphs), frame.bottom(state, width, height, glyphs)
    room = max(0, height - len(top) - len(bottom))
    return fill([*top, *padded(_body(state, width, room, glyphs), room), *bottom], width, height)


def furthest(state: State, width: int, height: int, glyphs: Glyphs) -> int:
    """How far the present view can be scrolled, in lines."""
    if frame.tiny(width, height) or state.view in ("locks", "sites"):
        return 0
    room = page(state, width, height, glyphs)
    if state.view == "threads":
        return max(0, len(threads.items(state.shown.snapshot)) - (room - 1))
    return max(0, len(_TEXTS[state.view](state, width, glyphs)) - room)


def page(state: State, width: int, height: int, glyphs: Glyphs) -> int:
    """Lines of the body."""
    if frame.tiny(width, height):
        return 1
    return max(1, height - len(frame.top(state, width, height, glyphs)) - len(frame.bottom(state, width, height, glyphs)))


def _body(state: State, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    if state.shown.snapshot is None and state.view != "help":
        return [plain("no reading yet", "dim")]
    if state.view == "sites":
        return sites.lines(state, width, height, glyphs)
    if state.view == "threads":
        return threads.lines(state, width, height, glyphs)
    if state.view == "locks":
        return locks.lines(state, width, height, glyphs)
    text = _TEXTS[state.view](state, width, glyphs)
    start = max(0, min(state.scroll, len(text) - height))
    return text[start : start + height]
