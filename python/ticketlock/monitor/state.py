"""What the live screen shows and what each key does to it: a pure reducer, without clock, terminal or source."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from .columns import SORTS, lock_name, matcher, select
from .history import History, Key, key_of, observe

if TYPE_CHECKING:
    from collections.abc import Callable

    from .model import LockRow, Snapshot
    from .options import ViewOptions

View = Literal["locks", "detail", "threads", "sites", "graph", "help"]

# Seconds between readings that + and - step through.
INTERVALS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

# Characters of a filter, and of a name that a filter looks at.
LONGEST_FILTER = 200


@dataclass(frozen=True, slots=True)
class Data:
    """What is known of the target at one moment."""

    snapshot: Snapshot | None = None
    # Since the baseline; None while nobody asks for it, or where the source cannot tell.
    total: Snapshot | None = None
    history: History = field(default_factory=History)
    # The lock of the detail view as it was last reported: it may have gone since.
    detail: LockRow | None = None
    # Why nothing more comes, and when that was, in words.
    ended: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    """All that a frame depends on, size and glyphs apart."""

    title: str
    options: ViewOptions
    view: View = "locks"
    # The view that help, and detail, were opened from.
    back: tuple[View, ...] = ()
    # What comes in, and what is shown: the same unless paused.
    live: Data = field(default_factory=Data)
    shown: Data = field(default_factory=Data)
    paused: bool = False
    # Which row is selected, by what it is (None: the first one, whatever that is), and where it stood last.
    selected: Key | None = None
    cursor: int = 0
    # First line shown of a view that is text.
    scroll: int = 0
    # Rows of the terminal that PgUp and PgDn go by.
    page: int = 10
    # Figures since the baseline, not of the latest interval.
    totals: bool = False
    trend: bool = False
    # The filter while it is being typed; None when it is not.
    draft: str | None = None
    # One message, until the next key.
    notice: str = ""
    # Whether snapshots go to a file.
    recording: bool = False
    # How often the baseline was asked to be now.
    resets: int = 0
    quit: bool = False


def start(title: str, options: ViewOptions) -> State:
    """Before anything was read."""
    return State(title=title, options=options, recording=options.record is not None)


def received(state: State, snapshot: Snapshot, total: Snapshot | None) -> State:
    """With one more reading. A paused screen stays as it is while history goes on."""
    detail = state.live.detail
    if detail is not None:
        detail = next((lock for lock in snapshot.locks if lock.id == detail.id), detail)
    return _shown(replace(state, live=Data(snapshot, total, observe(state.live.history, snapshot), detail)))


def tallied(state: State, total: Snapshot | None) -> State:
    """With the totals that were asked for, which a paused screen shows too."""
    if total is None:
        return replace(state, totals=False, notice="there are no totals yet")
    return _followed(replace(state, live=replace(state.live, total=total), shown=replace(state.shown, total=total)))


def ended(state: State, why: str, total: Snapshot | None = None) -> State:
    """Nothing more will come: the last reading stays."""
    return _shown(replace(state, live=replace(state.live, total=total or state.live.total, ended=why)))


def _shown(state: State) -> State:
    if state.paused:
        return state
    return _followed(replace(state, shown=state.live))


def shown_snapshot(state: State) -> Snapshot | None:
    """The one whose figures are shown."""
    return state.shown.total if state.totals and state.shown.total is not None else state.shown.snapshot


def locks(state: State) -> list[LockRow]:
    """The locks that pass the filter, sorted. A filter that is no valid expression lets everything pass."""
    snapshot = shown_snapshot(state)
    if snapshot is None:
        return []
    options = state.options if filter_mistake(state) is None else replace(state.options, filter="")
    return select(snapshot, options)


def filter_mistake(state: State) -> str | None:
    """What is wrong with the filter."""
    try:
        matcher(state.options.filter)
    except ValueError as mistake:
        return str(mistake)
    return None


def keys(state: State) -> list[Key]:
    """What can be selected in the present view, in its order."""
    if state.view == "locks":
        return [key_of(lock) for lock in locks(state)]
    if state.view == "sites":
        snapshot = shown_snapshot(state)
        return [] if snapshot is None else [site.site for site in snapshot.sites if state.options.internal or not site.internal]
    return []


def _followed(state: State) -> State:
    """The selection stays with its row as rows move; where the row is gone, it stays at its place."""
    if state.view not in ("locks", "sites"):
        return state
    rows = keys(state)
    if state.selected is None:
        return replace(state, cursor=0)
    if state.selected in rows:
        return replace(state, cursor=rows.index(state.selected))
    return replace(state, cursor=max(0, min(state.cursor, len(rows) - 1)))


def apply(state: State, key: str) -> State:
    """After a key, named as `keys.Decoder` does."""
    state = replace(state, notice="")
    if state.draft is not None:
        return _typed(state, state.draft, key)
    action = _ACTIONS.get(key)
    return state if action is None else action(state)


def resized(state: State, page: int, furthest: int) -> State:
    """Fitted to the terminal: how many rows a page has, and how far the text can be scrolled."""
    return replace(state, page=max(1, page), scroll=max(0, min(state.scroll, furthest)))


def _typed(state: State, draft: str, key: str) -> State:
    if key == "enter":
        return replace(state, draft=None)
    if key == "esc":
        return _filtered(replace(state, draft=None), "")
    if key == "backspace":
        return _filtered(state, draft[:-1], typing=True)
    if key == "ctrl-u":
        return _filtered(state, "", typing=True)
    if len(key) == 1 and key.isprintable() and len(draft) < LONGEST_FILTER:
        return _filtered(state, draft + key, typing=True)
    return state


def _filtered(state: State, text: str, typing: bool = False) -> State:
    options = replace(state.options, filter=text)
    return _followed(replace(state, options=options, draft=text if typing else None))


def _opened(view: View) -> Callable[[State], State]:
    """Show a view; asked for again, the one before."""

    def action(state: State) -> State:
        if state.view == view:
            return _back(state)
        back = (*(kept for kept in state.back if kept != view), state.view)[-3:]
        return _at(state, view, back)

    return action


def _at(state: State, view: View, back: tuple[View, ...]) -> State:
    if {state.view, view} <= {"locks", "detail", "help"}:
        return _followed(replace(state, view=view, back=back, scroll=0))
    return replace(state, view=view, back=back, scroll=0, selected=None, cursor=0)


def _back(state: State) -> State:
    if state.back:
        return _at(state, state.back[-1], state.back[:-1])
    return _at(state, "locks", ())


def _escape(state: State) -> State:
    if state.view == "locks" and state.options.filter:
        return _filtered(state, "")
    return _back(state)


def _enter(state: State) -> State:
    if state.view == "locks":
        return _detail(state)
    if state.view == "sites":
        rows = keys(state)
        if not rows:
            return state
        at = _at(state, "locks", (*state.back, "sites"))
        return _filtered(at, str(rows[state.cursor]))
    return state


def _detail(state: State) -> State:
    rows = locks(state)
    if not rows:
        return state
    lock = rows[min(state.cursor, len(rows) - 1)]
    if lock.id is None:
        return replace(state, notice=f"{lock_name(lock)}: only locks that are still there have details")
    back: tuple[View, ...] = (*state.back, "locks")
    return replace(
        state,
        view="detail",
        back=back[-3:],
        scroll=0,
        selected=lock.id,
        live=replace(state.live, detail=lock),
        shown=replace(state.shown, detail=lock),
    )


def _moved(by: Callable[[State], int]) -> Callable[[State], State]:
    def action(state: State) -> State:
        if state.view not in ("locks", "sites"):
            return replace(state, scroll=max(0, state.scroll + by(state)))
        rows = keys(state)
        if not rows:
            return state
        cursor = max(0, min(state.cursor + by(state), len(rows) - 1))
        return replace(state, cursor=cursor, selected=rows[cursor])

    return action


def _first(state: State) -> State:
    return replace(state, cursor=0, selected=None if state.view in ("locks", "sites") else state.selected, scroll=0)


def _sorted(step: int) -> Callable[[State], State]:
    def action(state: State) -> State:
        names = list(SORTS)
        sort = names[(names.index(state.options.sort) + step) % len(names)]
        return _followed(replace(state, options=replace(state.options, sort=sort), notice=f"sorted by {sort}"))

    return action


def _faster(step: int) -> Callable[[State], State]:
    def action(state: State) -> State:
        present = state.options.interval_s
        further = [value for value in INTERVALS_S if (value < present if step < 0 else value > present)]
        if not further:
            return state
        interval = max(further) if step < 0 else min(further)
        return replace(state, options=replace(state.options, interval_s=interval), notice=f"a reading every {interval:g} s")

    return action


def _pause(state: State) -> State:
    return _shown(replace(state, paused=not state.paused))


def _internal(state: State) -> State:
    internal = not state.options.internal
    notice = "internal locks shown" if internal else "internal locks hidden"
    return _followed(replace(state, options=replace(state.options, internal=internal), notice=notice))


def _totals(state: State) -> State:
    if state.shown.ended is not None and state.shown.total is None:
        return replace(state, notice="there are no totals")
    return _followed(replace(state, totals=not state.totals))


def _reset(state: State) -> State:
    return replace(state, resets=state.resets + 1, notice="totals count from now")


def _record(state: State) -> State:
    return replace(state, recording=not state.recording)


_ACTIONS: dict[str, Callable[[State], State]] = {
    "q": lambda state: replace(state, quit=True),
    "s": _sorted(1),
    "S": _sorted(-1),
    "/": lambda state: replace(_at(state, "locks", ()) if state.view != "locks" else state, draft=state.options.filter),
    " ": _pause,
    "enter": _enter,
    "esc": _escape,
    "up": _moved(lambda _: -1),
    "k": _moved(lambda _: -1),
    "down": _moved(lambda _: 1),
    "j": _moved(lambda _: 1),
    "pgup": _moved(lambda state: -state.page),
    "pgdn": _moved(lambda state: state.page),
    "home": _first,
    "end": _moved(lambda _: 1_000_000),
    "l": lambda state: _at(state, "locks", ()),
    "t": _opened("threads"),
    "c": _opened("sites"),
    "g": _opened("graph"),
    "?": _opened("help"),
    "h": _opened("help"),
    "i": _internal,
    "d": _totals,
    "r": _reset,
    "+": _faster(-1),
    "=": _faster(-1),
    "-": _faster(1),
    "x": lambda state: replace(state, trend=not state.trend),
    "w": _record,
}

# Every key that does something outside of the filter's line.
ACTIVE_KEYS = frozenset(_ACTIONS)
