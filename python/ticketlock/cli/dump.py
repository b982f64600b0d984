"""`ticketlock dump`: who holds and who waits in a process, at this moment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .options import subparser, terminal_options
from .stacks import Stacks
from .text import Line, clean, duration, plain, wrapped

if TYPE_CHECKING:
    import argparse

    from ticketlock.monitor.model import Blame, LockRow, Snapshot, ThreadRow

    from .options import Parser
    from .output import Terminal

SCHEMA = "ticketlock.dump/1"
OK, CYCLE = 0, 6


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """The options of the command."""
    dump = subparser(
        commands,
        "dump",
        "show once who holds and who waits in a process, with cycles; exit code 6 on a cycle",
        "Show every lock of a process that is held or waited for: its holder, its waiters and for how long they have waited,\n"
        "and the Python stacks of the threads where the process can be asked for them (Python 3.14 and newer).",
        "ticketlock dump 4242\n  ticketlock dump 4242 --json\n  ticketlock dump 4242 --no-stacks",
    )
    dump.add_argument("pid", metavar="PID", help="the process")
    dump.add_argument("--json", action="store_true", help="strict JSON (schema ticketlock.dump/1)")
    dump.add_argument("--no-stacks", action="store_true", help="only read; do not ask the process for stacks")
    terminal_options(dump)


def run(options: argparse.Namespace, out: Terminal, _: Terminal) -> int:
    """Look once, and print."""
    from ticketlock.monitor.source import EVERYTHING, Live

    from . import stacks
    from .top import the_pid

    source = Live(the_pid("PID", options.pid), EVERYTHING)
    try:
        snapshot = source.total()
    finally:
        source.close()
    if options.no_stacks:
        found = Stacks({}, "not asked for")
    else:
        main = next((thread for thread in snapshot.threads if thread.native_id == snapshot.process["inner_pid"]), None)
        found = stacks.of(snapshot.process, main is not None and main.waiting_on is not None)
    if options.json:
        out.write(json.dumps(_document(snapshot, found), allow_nan=False, indent=1) + "\n")
    else:
        out.show(lines(snapshot, found, source.title, out))
    return CYCLE if snapshot.cycles else OK


def busy(snapshot: Snapshot) -> list[LockRow]:
    """The locks that are held or waited for, those with most waiters first."""
    found = [lock for lock in snapshot.locks if lock.id is not None and (lock.owner is not None or lock.waiters)]
    return sorted(found, key=lambda lock: (-lock.waiters, lock.id or 0))


def lines(snapshot: Snapshot, found: Stacks, title: str, out: Terminal) -> list[Line]:
    """The text form."""
    from . import once

    locks = busy(snapshot)
    drawn = once.header(snapshot, title, out.width, out.glyphs)
    drawn += once.warnings(snapshot, out.width)
    if not locks:
        drawn += wrapped("no lock that is known is held or waited for", out.width)
    for lock in locks:
        drawn += [plain(""), *_lock(lock, snapshot)]
    drawn += [plain(""), *_stacks(snapshot, found, out.width)]
    return drawn


def _lock(lock: LockRow, snapshot: Snapshot) -> list[Line]:
    from ticketlock.monitor import columns

    place = clean(lock.site) if lock.site else "creation site unknown"
    threads = {thread.ident: thread for thread in snapshot.threads}
    drawn: list[Line] = [((columns.lock_name(lock), "bold"), (f" {clean(lock.kind)} #{lock.id}, {place}", ""))]
    if lock.owner is None:
        drawn.append(plain("  held by nobody"))
    else:
        ended = ", which has ended" if lock.abandoned else ""
        style = "bold red" if lock.abandoned else ""
        drawn.append(plain(f"  held by {_thread(lock.owner, lock.owner_name, threads.get(lock.owner))}{ended}", style))
    waiting = _waiters(lock, snapshot)
    for thread in waiting:
        known = "" if thread.waiting_ns is None else f" for {duration(thread.waiting_ns)}"
        drawn.append(plain(f"  {_thread(thread.ident, thread.name, thread)} waits{known}, {clean(thread.state)}", "yellow"))
    if lock.waiters > len(waiting):
        drawn.append(plain(f"  and {lock.waiters - len(waiting)} waiters that are not known by name", "yellow"))
    drawn += [plain(f"  waits were met at {_blame(blame)}", "dim") for blame in lock.waiter_sites[:3]]
    drawn += [plain(f"  waits were caused at {_blame(blame)}", "dim") for blame in lock.holder_sites[:3]]
    return drawn


def _waiters(lock: LockRow, snapshot: Snapshot) -> list[ThreadRow]:
    found = [thread for thread in snapshot.threads if thread.waiting_on == lock.id]
    return sorted(found, key=lambda thread: -(thread.waiting_ns or 0))


def _thread(ident: int, name: str | None, row: ThreadRow | None) -> str:
    native = f" ({row.native_id})" if row is not None and row.native_id else ""
    return (clean(name) if name else f"thread {ident}") + native


def _blame(blame: Blame) -> str:
    return f"{clean(blame.site)} in {clean(blame.function)} ({blame.share:.0%})"


def _stacks(snapshot: Snapshot, found: Stacks, width: int) -> list[Line]:
    if found.why_not is not None:
        return wrapped(f"stacks are not available: {clean(found.why_not)}", width, "dim", indent=2)
    rows = {thread.ident: thread for thread in snapshot.threads}
    names = {lock.owner: lock.owner_name for lock in snapshot.locks if lock.owner is not None}
    drawn: list[Line] = []
    for ident, frames in sorted(found.threads.items(), key=lambda item: item[0] not in rows and item[0] not in names):
        row = rows.get(ident)
        drawn.append(plain(f"stack of {_thread(ident, row.name if row is not None else names.get(ident), row)}", "bold"))
        drawn += [plain(f'  File "{clean(path)}", line {line}, in {clean(function)}') for path, line, function in frames]
    return drawn


def _document(snapshot: Snapshot, found: Stacks) -> dict[str, Any]:
    threads = {thread.ident: thread for thread in snapshot.threads}

    def thread(ident: int, name: str | None) -> dict[str, Any]:
        row = threads.get(ident)
        return {"ident": ident, "native_id": row.native_id if row is not None else None, "name": name}

    def blames(sites: tuple[Blame, ...]) -> list[dict[str, Any]]:
        return [{"site": one.site, "function": one.function, "samples": one.samples, "share": one.share} for one in sites]

    return {
        "schema": SCHEMA,
        "process": dict(snapshot.process),
        "at_ns": snapshot.at_ns,
        "locks": [
            {
                "id": lock.id,
                "name": lock.name,
                "kind": lock.kind,
                "site": lock.site,
                "owner": None if lock.owner is None else thread(lock.owner, lock.owner_name),
                "abandoned": lock.abandoned,
                "waiters": lock.waiters,
                "waiting": [
                    {**thread(one.ident, one.name), "state": one.state, "waiting_ns": one.waiting_ns}
                    for one in _waiters(lock, snapshot)
                ],
                "waiter_sites": blames(lock.waiter_sites),
                "holder_sites": blames(lock.holder_sites),
            }
            for lock in busy(snapshot)
        ],
        "cycles": [{"threads": list(cycle.threads), "locks": list(cycle.locks)} for cycle in snapshot.cycles],
        "dropped": dict(snapshot.dropped),
        "stacks": {
            "why_not": found.why_not,
            "threads": [
                {
                    "ident": ident,
                    "frames": [{"path": path, "line": line, "function": function} for path, line, function in frames],
                }
                for ident, frames in found.threads.items()
            ],
        },
    }
