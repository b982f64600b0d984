"""Collapsed stacks, as flame graph tools read them: `frame;frame number` a line."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from ticketlock.cli.text import clean
from ticketlock.monitor.model import display_name

from .stacks import charges

if TYPE_CHECKING:
    from ticketlock.monitor.model import Snapshot


def write(snapshot: Snapshot, stream: IO[str]) -> None:
    """Waiting time in ns under the lock and the line that waited for it; the same stack is written once.

    The format knows no escapes: `;` in a name becomes `:`, and control characters become `?`.
    """
    stacks: dict[str, int] = {}
    for charge in charges(snapshot, "waiter"):
        line = charge.function if charge.path is None else f"{charge.function} ({charge.path}:{charge.line})"
        stack = f"{_frame(display_name(charge.lock))};{_frame(line)}"
        stacks[stack] = stacks.get(stack, 0) + charge.delay_ns
    for stack, nanoseconds in stacks.items():
        if nanoseconds:
            stream.write(f"{stack} {nanoseconds}\n")


def _frame(text: str) -> str:
    return clean(text).replace(";", ":").strip() or "?"
