"""What stands around every view: who is watched, how much waiting there is, what went wrong, and the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticketlock.cli.text import cell_width, clean, crop, fit, line_width, plain, seconds
from ticketlock.monitor.columns import per_second, percent
from ticketlock.monitor.state import filter_mistake, shown_snapshot

from .parts import cut, ends, join, label, spark

if TYPE_CHECKING:
    from ticketlock.cli.glyphs import Glyphs
    from ticketlock.cli.text import Line, Span
    from ticketlock.monitor.model import Snapshot
    from ticketlock.monitor.state import State

# Below this a frame is one status line; below `COMPACT` columns a lock takes two lines instead of a table's row.
LEAST_WIDTH, LEAST_HEIGHT = 20, 5
COMPACT = 60

# Cells beside the mode from which there is room for our own name.
LEAST_WITH_NAME = 55

# Rows of the terminal from which there is room for the line of keys, and for a second line on top.
KEYS_FROM, FIGURES_FROM = 8, 6

# A lock is hot if so much of the time was waited for it.
HOT = 0.01

_SPARK = 20


def tiny(width: int, height: int) -> bool:
    """Whether there is room for one status line only."""
    return width < LEAST_WIDTH or height < LEAST_HEIGHT


def alerts(snapshot: Snapshot | None) -> list[Span]:
    """What must not be overlooked: lost data, cycles, locks whose holder has ended."""
    if snapshot is None:
        return []
    found = [(f"! {count} {what} dropped", "bold red") for what, count in snapshot.dropped.items() if count]
    if snapshot.cycles:
        found.append((f"! {len(snapshot.cycles)} wait cycle{'s' * (len(snapshot.cycles) > 1)}", "bold red"))
    abandoned = sum(lock.abandoned for lock in snapshot.locks)
    if abandoned:
        found.append((f"! {abandoned} lock{'s' * (abandoned > 1)} abandoned", "bold red"))
    return found


def status_line(state: State, width: int) -> Line:
    """All that fits into one short line, the important first."""
    snapshot = state.shown.snapshot
    if snapshot is None:
        return crop(plain(label(state.shown.ended, "starting")), width)
    lost = sum(snapshot.dropped.values())
    parts: list[Span] = [
        ("!", "bold red") if lost or snapshot.cycles else ("", ""),
        (percent(snapshot.totals.wait_share) + "%", "bold"),
        (label(state.shown.ended, ""), "bold red"),
        ("paused" if state.paused else "", "yellow"),
        (f"{snapshot.totals.locks} locks", ""),
    ]
    return join(parts, width, " ")


def top(state: State, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The lines above the view."""
    snapshot = shown_snapshot(state)
    mode = _mode(state, width, glyphs)
    lines = [ends(_who(state, snapshot, width - line_width(mode) - 1, glyphs), mode, width)]
    if height >= FIGURES_FROM or alerts(snapshot):
        lines.append(_figures(state, snapshot, width, glyphs))
    if state.shown.ended is not None:
        why = label(state.shown.ended)
        hint = "  the last reading stays, q quits"
        words = why + hint if cell_width(why + hint) <= width else cut(why, width, glyphs)
        lines.append(plain(words, "bold red"))
    return lines


def _who(state: State, snapshot: Snapshot | None, width: int, glyphs: Glyphs) -> Line:
    parts: list[Span] = [
        ("ticketlock top" if width >= LEAST_WITH_NAME else "", "bold"),
        (cut(label(state.title), max(8, width // 3), glyphs), "bold cyan"),
    ]
    if snapshot is None:
        return join(parts, width)
    process = snapshot.process
    hot = sum(lock.wait_share >= HOT for lock in snapshot.locks)
    python = ".".join(label(process["python"], "?").split(".")[:2]) + "t" * process["free_threaded"]
    reported = sum(lock.id is not None for lock in snapshot.locks)
    left_out = f", {reported} reported" * (reported < snapshot.totals.locks)
    waiting = sum(thread.waiting_on is not None for thread in snapshot.threads)
    parts += [
        (f"locks {snapshot.totals.locks} ({hot} hot{left_out})", ""),
        (f"threads {len(snapshot.threads)} ({waiting} waiting)", ""),
        (f"up {seconds(max(0, snapshot.at_ns - process['created_ns']) / 1e9)}", "dim"),
        (f"py{python}", "dim"),
    ]
    return join(parts, width)


def _mode(state: State, width: int, glyphs: Glyphs) -> Line:
    rate = f" {1 / state.options.interval_s:.3g}/s" if width >= COMPACT else ""
    if state.shown.ended is not None:
        mode = (f"{glyphs.stale} ended", "bold red")
    elif state.paused:
        mode = (f"{glyphs.stale} paused", "bold yellow")
    else:
        mode = (f"{glyphs.live} live{rate}", "green")
    span = ("totals  " if state.totals else "", "bold")
    return (span, ("rec " if state.recording else "", "bold red"), mode)


def _figures(state: State, snapshot: Snapshot | None, width: int, glyphs: Glyphs) -> Line:
    if snapshot is None:
        return ()
    totals, history = snapshot.totals, state.shown.history
    parts: list[Span] = [
        *alerts(snapshot),
        (f"wait {percent(totals.wait_share)}%", "bold"),
        (spark(history.overall, history.now, min(_SPARK, width // 5), glyphs) if width >= 40 else "", "magenta"),
        (f"contended {per_second(totals.contended, snapshot.interval_ns)}/s", ""),
        (f"acq {per_second(totals.acquisitions, snapshot.interval_ns)}/s", ""),
        (f"over {seconds(snapshot.interval_ns / 1e9)}" if state.totals else "", "dim"),
    ]
    return join(parts, width)


def bottom(state: State, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The line of the filter, of a message, or of keys: the first two are always shown, the last where there is room."""
    if state.draft is not None:
        mistake = filter_mistake(state)
        shown = cut(clean(state.draft), max(1, width - 12), glyphs, head=True)
        return [crop((("filter: ", "bold"), (shown, ""), ("_", "bold"), (f"  {mistake}" if mistake else "", "bold red")), width)]
    if state.notice:
        return [crop(plain(cut(label(state.notice), width, glyphs), "yellow"), width)]
    if height < KEYS_FROM:
        return []
    if state.options.filter and state.view in ("locks", "detail"):
        mistake = filter_mistake(state)
        words = f"filter {clean(state.options.filter)!s}" + (f" is {mistake}" if mistake else "  (esc clears it)")
        return [crop(plain(fit(words, width), "bold red" if mistake else "yellow"), width)]
    return [join([*_keys(state)], width)]


def _keys(state: State) -> list[Span]:
    leave = "esc back" if state.view != "locks" else "enter detail"
    words = (
        "q quit",
        "? help",
        leave,
        "space pause",
        "s sort",
        "/ filter",
        "t threads",
        "c sites",
        "g graph",
        "d totals",
        "w record",
    )
    return [(word, "dim") for word in words]
