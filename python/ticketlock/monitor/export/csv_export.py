"""CSV: a row for every lock of every snapshot."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from ticketlock.monitor.model import display_name

from .stacks import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ticketlock.monitor.model import Blame, LockRow, Snapshot

_OF_LOCK = (
    "id",
    "name",
    "kind",
    "site",
    "internal",
    "retired",
    "acquisitions",
    "contended",
    "contended_share",
    "wait_share",
)
_OF_WAITS = ("count", "sum", "max", "p50", "p90", "p99", "p999")
_MORE_OF_LOCK = ("parks", "timeouts", "hand_overs", "owner", "owner_name", "abandoned", "waiters", "waiters_max")

COLUMNS = (
    "at_ns",
    "interval_ns",
    "pid",
    "label",
    *_OF_LOCK,
    *(f"wait_ns_{name}" for name in _OF_WAITS),
    *_MORE_OF_LOCK,
    *(f"{role}_{part}" for role in ("holder", "waiter") for part in ("site", "function", "share")),
)


def write(snapshots: Iterable[Snapshot], stream: IO[str], header: bool = True) -> None:
    """Rows under one header line; what is not known is an empty field, true and false are 1 and 0.

    Texts are the program's own and quoted, not changed: a spreadsheet may take one that begins with `=` for a formula. Of
    the sampled lines the heaviest of each role is shown.
    """
    if header:
        stream.write(",".join(COLUMNS) + "\n")
    for snapshot in snapshots:
        for lock in snapshot.locks:
            row = _row(snapshot, lock)
            stream.write(",".join(_field(row.get(name)) for name in COLUMNS) + "\n")


def _row(snapshot: Snapshot, lock: LockRow) -> dict[str, Any]:
    return {
        "at_ns": snapshot.at_ns,
        "interval_ns": snapshot.interval_ns,
        "pid": snapshot.process["pid"],
        "label": display_name(lock),
        **{name: getattr(lock, name) for name in (*_OF_LOCK, *_MORE_OF_LOCK)},
        **{f"wait_ns_{name}": getattr(lock.waits, name) for name in _OF_WAITS},
        **_heaviest("holder", lock.holder_sites),
        **_heaviest("waiter", lock.waiter_sites),
    }


def _heaviest(role: str, blames: tuple[Blame, ...]) -> dict[str, Any]:
    if not blames:
        return {}
    return {f"{role}_{part}": getattr(blames[0], part) for part in ("site", "function", "share")}


def _field(value: Any) -> str:
    """A field, quoted where it must be. (The standard writer of Python 3.11 leaves a lone carriage return unquoted.)"""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    text = encodable(str(value))
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text
