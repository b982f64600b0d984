"""Lines of code that created locks, each with all of its locks together: those that are gone still count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticketlock.cli.text import duration
from ticketlock.monitor import state as states
from ticketlock.monitor.columns import per_second, percent

from .parts import Cell, heat, label, note, short_site, table, window

if TYPE_CHECKING:
    from ticketlock.cli.glyphs import Glyphs
    from ticketlock.cli.text import Line, Span
    from ticketlock.monitor.model import SiteRow
    from ticketlock.monitor.state import State

_COLUMNS = (
    Cell("wait%", 0, ">", 0, 8),
    Cell("created at", 0, "<", 20, 60, tail=True),
    Cell("function", 5, "<", 8, 24),
    Cell("locks", 1, ">", 0, 8),
    Cell("live", 4, ">", 0, 8),
    Cell("cont/s", 3, ">", 0, 8),
    Cell("acq/s", 6, ">", 0, 8),
    Cell("p50", 7, ">", 0, 8),
    Cell("p99", 2, ">", 0, 8),
    Cell("max", 8, ">", 0, 8),
)


def lines(state: State, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The rows around the selected one."""
    snapshot = states.shown_snapshot(state)
    if snapshot is None or not snapshot.sites:
        why = "no line of code is known" if snapshot is None or snapshot.process["sites"] else "creation sites are not recorded"
        return [note(f"{why} (TICKETLOCK_SITES=1 in the target's environment records them)", width)]
    rows = [site for site in snapshot.sites if state.options.internal or not site.internal]
    if not rows:
        return [note(f"{len(snapshot.sites)} internal sites are hidden, i shows them", width)]
    first, last = window(len(rows), state.cursor, height - 1)
    drawn = table(
        _COLUMNS, [_spans(site, snapshot.interval_ns, width, glyphs) for site in rows[first:last]], max(1, width - 2), glyphs
    )
    marks = [" ", *(glyphs.pointer if index == state.cursor else " " for index in range(first, last))]
    return [((mark + " ", "bold cyan"), *line) for mark, line in zip(marks, drawn, strict=True)]


def _spans(site: SiteRow, interval: int, width: int, glyphs: Glyphs) -> list[Span]:
    return [
        (percent(site.wait_share), heat(site.wait_share)),
        (short_site(site.site, max(20, min(60, width // 2)), glyphs), "cyan"),
        (label(site.function), "dim"),
        (str(site.created), ""),
        (str(site.live), "dim"),
        (per_second(site.contended, interval), ""),
        (per_second(site.acquisitions, interval), "dim"),
        (duration(site.waits.p50), ""),
        (duration(site.waits.p99), ""),
        (duration(site.waits.max), ""),
    ]
