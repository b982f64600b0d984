"""The processes that can be watched, to choose one from: what `top` shows without a PID."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ticketlock.cli.text import crop, plain, seconds

from .frame import KEYS_FROM, tiny
from .parts import Cell, fill, join, label, note, table, window

if TYPE_CHECKING:
    from ticketlock.cli.glyphs import Glyphs
    from ticketlock.cli.text import Line, Span
    from ticketlock.monitor.find import Found, Instrumented

_COLUMNS = (
    Cell("pid", 0, ">", 0, 10),
    Cell("program", 0, "<", 10, 40),
    Cell("python", 3, "<", 0, 10),
    Cell("locks", 1, ">", 0, 10),
    Cell("contended", 2, ">", 0, 12),
    Cell("up", 4, ">", 0, 12),
    Cell("command", 5, "<", 16, 200),
)


@dataclass(frozen=True, slots=True)
class Choosing:
    """What was found, and where the user is."""

    found: Found
    cursor: int = 0
    chosen: int | None = None
    quit: bool = False


def apply(state: Choosing, key: str) -> Choosing:
    """After a key."""
    count = len(state.found.processes)
    if key in ("q", "esc"):
        return replace(state, quit=True)
    if key == "enter" and count:
        return replace(state, chosen=state.found.processes[state.cursor].pid)
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -10, "pgdn": 10, "home": -count, "end": count}
    return replace(state, cursor=max(0, min(state.cursor + steps.get(key, 0), count - 1)))


def found(state: Choosing, now: Found) -> Choosing:
    """After another look: the cursor stays with its process."""
    pids = [process.pid for process in now.processes]
    before = state.found.processes
    at = pids.index(before[state.cursor].pid) if before and before[state.cursor].pid in pids else state.cursor
    return replace(state, found=now, cursor=max(0, min(at, len(pids) - 1)))


def render(state: Choosing, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The frame: exactly `height` lines of at most `width` cells."""
    processes = state.found.processes
    if tiny(width, height):
        chosen = f"{processes[state.cursor].pid} {label(processes[state.cursor].program)}" if processes else "no process"
        return fill([crop(plain(chosen, "bold"), width)], width, height)
    count = f"{len(processes)} process{'es' * (len(processes) != 1)} that can be watched"
    lines: list[Line] = [join([("ticketlock top", "bold"), (count, "")], width)]
    remarks = _remarks(state.found, width)
    room = height - len(lines) - len(remarks) - (height >= KEYS_FROM)
    if processes:
        first, last = window(len(processes), state.cursor, room - 1)
        drawn = table(_COLUMNS, [_spans(process) for process in processes[first:last]], width - 2, glyphs)
        marks = [" ", *(glyphs.pointer if index == state.cursor else " " for index in range(first, last))]
        lines += [((mark + " ", "bold cyan"), *line) for mark, line in zip(marks, drawn, strict=True)]
    else:
        lines.append(note("none yet: start a program that uses locks of ticketlock; this list looks again by itself", width))
    lines = [*fill(lines, width, height - len(remarks) - (height >= KEYS_FROM)), *remarks]
    if height >= KEYS_FROM:
        lines.append(join([(word, "dim") for word in ("enter watch", "up down choose", "q quit")], width))
    return fill(lines, width, height)


def _remarks(found: Found, width: int) -> list[Line]:
    remarks = []
    if found.unreadable:
        pid, why = found.unreadable[0]
        more = f" (and {len(found.unreadable) - 1} more)" * (len(found.unreadable) > 1)
        remarks.append(crop(plain(f"! process {pid}: {label(why)}{more}", "bold red"), width))
    if found.hidden:
        remarks.append(note(f"{found.hidden} processes of others cannot be looked into", width))
    return remarks


def _spans(process: Instrumented) -> list[Span]:
    about = process.process
    version = label(about["python"], "?") + "t" * about["free_threaded"]
    up = process.uptime_ns
    return [
        (str(process.pid), "bold"),
        (label(process.program), "cyan"),
        (version, "dim"),
        (str(process.locks), ""),
        (str(process.contended), ""),
        (seconds(None if up is None else up / 1e9), ""),
        (label(" ".join(process.command)), "dim"),
    ]
