"""`ticketlock ps`: the processes whose locks report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .options import subparser, terminal_options
from .table import Column, Row, render
from .text import clean, seconds, wrapped

if TYPE_CHECKING:
    import argparse

    from ticketlock.monitor.find import Found, Instrumented

    from .options import Parser
    from .output import Terminal

SCHEMA = "ticketlock.ps/1"
OK = 0


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """The options of the command."""
    ps = subparser(
        commands,
        "ps",
        "list the processes whose locks can be watched",
        "List the running processes that use ticketlock and that you may look into.",
        "ticketlock ps\n  ticketlock ps --json",
    )
    ps.add_argument("--json", action="store_true", help="strict JSON (schema ticketlock.ps/1)")
    terminal_options(ps)


def run(options: argparse.Namespace, out: Terminal, _: Terminal) -> int:
    """Print them."""
    from ticketlock.monitor.find import instrumented

    found = instrumented()
    if options.json:
        out.write(json.dumps(_document(found), allow_nan=False, indent=1) + "\n")
        return OK
    columns = (
        Column("pid"),
        Column("program", align="<"),
        Column("python", 2, "<"),
        Column("locks", 1),
        Column("contended", 1),
        Column("up", 3),
    )
    rows: list[Row] = [
        (
            (str(one.pid), "bold"),
            (clean(one.program), ""),
            (_python(one), ""),
            (str(one.locks), ""),
            (str(one.contended), ""),
            ("-" if one.uptime_ns is None else seconds(one.uptime_ns / 1e9), ""),
        )
        for one in found.processes
    ]
    out.show(render(columns, rows, out.width, out.glyphs) if rows else wrapped("no process reports", out.width))
    for pid, why in found.unreadable:
        out.show(wrapped(f"{pid}: {clean(why)}", out.width, "yellow", indent=2))
    if found.hidden:
        one = found.hidden == 1
        note = f"{found.hidden} process{'' if one else 'es'} cannot be looked into and may report or not; "
        note += f"'ticketlock top' with the PID of {'it' if one else 'one'} says why"
        out.show(wrapped(note, out.width, "dim"))
    return OK


def _python(one: Instrumented) -> str:
    return clean(one.process["python"]) + ("t" if one.process["free_threaded"] else "")


def _document(found: Found) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "processes": [
            {
                "pid": one.pid,
                "program": one.program,
                "command": list(one.command),
                "python": one.process["python"],
                "free_threaded": one.process["free_threaded"],
                "version": one.process["version"],
                "locks": one.locks,
                "contended": one.contended,
                "uptime_ns": one.uptime_ns,
            }
            for one in found.processes
        ],
        "hidden": found.hidden,
        "unreadable": [{"pid": pid, "why": why} for pid, why in found.unreadable],
    }
