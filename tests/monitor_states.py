"""States of the live screen, made from made-up readings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import monitor_fakes as fakes
from ticketlock.cli import glyphs
from ticketlock.monitor import state as states
from ticketlock.monitor import views
from ticketlock.monitor.build import build
from ticketlock.monitor.options import ViewOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from ticketlock.monitor.model import Snapshot
    from ticketlock.monitor.raw import Raw
    from ticketlock.monitor.state import State

TITLE = "server.py"


def state_of(make: Callable[[int], Raw] = fakes.few, ticks: int = 6, **options: Any) -> State:
    """After some readings."""
    return readings(states.start(TITLE, ViewOptions(**options)), make, range(1, ticks + 1))


def readings(state: State, make: Callable[[int], Raw], ticks: range) -> State:
    """After more readings."""
    first, former = None, None
    for tick in ticks:
        raw = make(tick)
        first = first or raw
        state = states.received(state, build(raw, former), build(raw, None))
        former = raw
    return state


def pressed(state: State, *keys: str) -> State:
    """After some keys."""
    for key in keys:
        state = states.apply(state, key)
    return state


def shown(state: State, width: int = 80, height: int = 24, drawn: glyphs.Glyphs = glyphs.UNICODE) -> list[str]:
    """The frame as text."""
    return ["".join(text for text, _ in line).rstrip() for line in views.render(state, width, height, drawn)]


def changed(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """A snapshot with other values."""
    return replace(snapshot, **changes)
