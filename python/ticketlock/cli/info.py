"""`ticketlock info`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ticketlock import _observe

from . import describe

if TYPE_CHECKING:
    import argparse

    from .output import Terminal

SCHEMA = "ticketlock.info/1"


def run(options: argparse.Namespace, out: Terminal) -> int:
    """Print the machine."""
    machine = _observe.machine()
    if options.json:
        out.write(json.dumps({"schema": SCHEMA, **machine.to_json()}, allow_nan=False, indent=1) + "\n")
    else:
        out.show(describe.lines(describe.info(machine), out.width, out.glyphs))
    return 0
