"""`ticketlock info`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .options import subparser, terminal_options

if TYPE_CHECKING:
    import argparse

    from .options import Parser
    from .output import Terminal

SCHEMA = "ticketlock.info/1"


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """The options of the command."""
    info = subparser(
        commands,
        "info",
        "describe this machine: hypervisor, delay cap, pause cost, usable CPUs",
        "Describe this machine as the locks see it.",
        "ticketlock info\n  ticketlock info --json\n  TICKETLOCK_HYPERVISOR=none ticketlock info",
    )
    info.add_argument("--json", action="store_true", help="strict JSON (schema ticketlock.info/1)")
    terminal_options(info)


def run(options: argparse.Namespace, out: Terminal, _: Terminal) -> int:
    """Print the machine."""
    from ticketlock import _observe

    from . import describe

    machine = _observe.machine()
    if options.json:
        out.write(json.dumps({"schema": SCHEMA, **machine.to_json()}, allow_nan=False, indent=1) + "\n")
    else:
        out.show(describe.lines(describe.info(machine), out.width, out.glyphs))
    return 0
