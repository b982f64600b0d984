"""Frames of the running display, as pure functions of a snapshot and a size."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .glyphs import Glyphs, bar, sparkline
from .text import Line, clean, crop, millions, number, pad, plain, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ticketlock.bench.engine import DelayTuple
    from ticketlock.bench.plan import PlannedCell
    from ticketlock.bench.runner import Progress

# Samples kept for a sparkline.
HISTORY = 60

# Widths of the delay table's columns: thread, lock and slot; delay; hits and collisions (left out where space is short).
THREAD, LOCK, SLOT, DELAY, COUNTERS = 12, 15, 5, 8, 23
IDENTITY = THREAD + LOCK + SLOT

# Ids that locks carry count from 1; a lock without one goes by its address, which lies beyond these.
LARGEST_COUNTED_ID = 1 << 32

# Below this width a frame is one status line.
NARROW = 32


@dataclass(frozen=True, slots=True)
class DelayLine:
    """One delay on the display. `thread` counts the threads of the round from 1; a shared delay has no lock and slot."""

    thread: int
    native_id: int
    name: str
    lock: int | None
    slot: int | None
    delay: float
    hits: int
    collisions: int
    history: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a frame shows. `current` is false when the delays are those last seen, of `seen_in`."""

    preset: str
    progress: Progress | None
    delays: tuple[DelayLine, ...]
    cap: int
    current: bool
    seen_in: str


def cell_name(cell: PlannedCell) -> str:
    """A cell in a few words."""
    cap = "" if cell.cap is None else f" cap {cell.cap}"
    return f"{cell.lock}{cap}, {cell.threads} thread{'s' * (cell.threads > 1)}"


def status(progress: Progress | None) -> tuple[float, str]:
    """Share done, and the status in words, the important ones first."""
    if progress is None:
        return 0.0, "starting"
    share = progress.done / progress.total if progress.total else 1.0
    words = f"{share:4.0%} ETA {seconds(progress.eta_s)}"
    if progress.cell is not None:
        kind = "waits round" if progress.mode == "waits" else "round"
        words += f"  {cell_name(progress.cell)}, {kind} {progress.round}/{progress.rounds}"
    if progress.latest_per_s is not None:
        words += f"  {millions(progress.latest_per_s)} M op/s"
    return share, words


def progress_frame(snapshot: Snapshot, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """One line with a bar, or without one where there is no room."""
    if width <= 0 or height <= 0:
        return []
    share, words = status(snapshot.progress)
    drawn = bar(share, min(30, width // 4), glyphs) if width >= NARROW else ""
    return [crop(((drawn, "cyan"), (f" {words}" if drawn else words.strip(), "")), width)]


def live_frame(snapshot: Snapshot, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Progress, then the delay tables: at most `height` lines of at most `width` cells."""
    top = progress_frame(snapshot, width, height, glyphs)
    if width < NARROW or height < 5:
        return top[:height]
    lines = [crop(plain(f"ticketlock bench {snapshot.preset}", "bold"), width), *top]
    mark = glyphs.live if snapshot.current else glyphs.stale
    state = "delay tables of" if snapshot.current else "delay tables last seen in"
    if snapshot.delays:
        lines.append(
            crop(
                plain(f"{mark} {state} {snapshot.seen_in} (cap {snapshot.cap} units)", "green" if snapshot.current else "dim"),
                width,
            )
        )
        lines += _delay_table(snapshot, width, height - len(lines), glyphs)
    else:
        lines.append(crop(plain(f"{glyphs.stale} no delay table yet: only auto locks that wait have one", "dim"), width))
    return lines[:height]


def _delay_table(snapshot: Snapshot, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    counters = COUNTERS if width >= IDENTITY + DELAY + COUNTERS + 12 else 0
    room = max(0, width - IDENTITY - DELAY - counters - 2)
    gauge, spark = min(30, room // 2), min(HISTORY, room - room // 2)
    lines = [crop(plain(_heading(gauge, spark, counters), "dim"), width)]
    rows = snapshot.delays
    if len(rows) > max(0, height - 1):
        rows = rows[: max(0, height - 2)]
    lines += [crop(_delay_line(row, snapshot.cap, gauge, spark, counters, glyphs), width) for row in rows]
    hidden = len(snapshot.delays) - len(rows)
    if hidden and height > 1:
        lines.append(crop(plain(f"and {hidden} more", "dim"), width))
    return lines


def lock_name(lock: int | None) -> str:
    """A lock's id as people read it: counted ids as numbers, addresses in hexadecimal, a delay of all locks as such."""
    if lock is None:
        return "all"
    return str(lock) if lock < LARGEST_COUNTED_ID else f"{lock:#x}"


def _heading(gauge: int, spark: int, counters: int) -> str:
    identity = pad("thread", THREAD) + pad("lock", LOCK, ">") + pad("slot", SLOT, ">")
    tail = pad("hits", counters // 2, ">") + pad("collisions", counters - counters // 2, ">")
    return identity + pad("delay", DELAY, ">") + " " * (gauge + 1) + " " + pad("history", spark) + tail


def _delay_line(row: DelayLine, cap: int, gauge: int, spark: int, counters: int, glyphs: Glyphs) -> Line:
    identity = pad(f"{row.thread} {clean(row.name)}", THREAD)
    identity += pad(lock_name(row.lock), LOCK, ">")
    identity += pad("-" if row.slot is None else str(row.slot), SLOT, ">")
    # A delay lives between 1 and the cap and moves by factors, so the bar is logarithmic.
    share = math.log(max(1.0, row.delay)) / math.log(cap) if cap > 1 else 1.0
    top = max(row.history, default=1.0)
    tail = pad(str(row.hits), counters // 2, ">") + pad(str(row.collisions), counters - counters // 2, ">")
    return (
        (identity, ""),
        (pad(number(row.delay), DELAY, ">") + " ", "bold"),
        (bar(share, gauge, glyphs) + " ", "cyan"),
        (sparkline(row.history, spark, top, glyphs), "magenta"),
        (tail, "dim"),
    )


class Feed:
    """Collects what the frames show: progress from the run, delays from a source. Safe to use from several threads."""

    def __init__(self, preset: str, cap: int, source: Callable[[], Sequence[DelayTuple]]) -> None:
        self._source = source
        self._guard = threading.Lock()
        self._cap = cap
        self._history: dict[tuple[str, int, int], tuple[float, ...]] = {}
        self._snapshot = Snapshot(preset, None, (), cap, False, "")

    def progress(self, event: Progress) -> None:
        """Take note of where the run stands."""
        with self._guard:
            self._snapshot = replace(self._snapshot, progress=event)

    def snapshot(self) -> Snapshot:
        """The latest state."""
        with self._guard:
            return self._snapshot

    def poll(self) -> None:
        """Read the delays. Without any, those last seen stay."""
        rows = sorted(self._source())
        with self._guard:
            progress = self._snapshot.progress
            cell = None if progress is None else progress.cell
            if not rows or cell is None:
                self._snapshot = replace(self._snapshot, current=False)
                return
            name = cell_name(cell)
            threads = {native_id: index + 1 for index, native_id in enumerate(dict.fromkeys(row[0] for row in rows))}
            order = {lock: index for index, lock in enumerate(dict.fromkeys(row[1] for row in rows))}
            self._snapshot = replace(
                self._snapshot,
                delays=tuple(self._line(row, name, threads[row[0]], order[row[1]]) for row in rows),
                cap=self._cap if cell.cap is None else cell.cap,
                current=True,
                seen_in=name,
            )

    def _line(self, row: DelayTuple, cell: str, thread: int, lock_index: int) -> DelayLine:
        native_id, lock, _, slot, delay, hits, collisions = row
        # Threads and locks are new in every round: the history belongs to their places in the cell.
        key = (cell, thread, lock_index)
        self._history[key] = (*self._history.get(key, ()), delay)[-HISTORY:]
        shared = slot < 0
        return DelayLine(
            thread=thread,
            native_id=native_id,
            name=f"({native_id})",
            lock=None if shared else lock,
            slot=None if shared else slot,
            delay=delay,
            hits=hits,
            collisions=collisions,
            history=self._history[key],
        )
