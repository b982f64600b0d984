"""The part of `ticketlock attach` that runs inside the program: replaces its locks, and answers."""

from __future__ import annotations

import os

# What an answer begins with.
DONE, REFUSED = "done", "refused"


def begin(answer: str) -> None:
    """Replace the locks of this process and leave an answer in a file, whole or not at all."""
    try:
        words = f"{DONE}\n{_replace()}"
    except Exception as problem:  # noqa: BLE001 - it is told to the one who attaches; the program goes on
        words = f"{REFUSED}\n{type(problem).__name__}: {problem}"
    unfinished = answer + ".tmp"
    with open(unfinished, "w", encoding="utf-8") as file:
        file.write(words)
    os.replace(unfinished, answer)


def _replace() -> int:
    from . import _lab, _patch

    if _lab.own_segment() is None:
        raise RuntimeError(f"its locks report nothing: {_lab.telemetry().get('why') or 'TICKETLOCK_TELEMETRY=0'}")
    if not _patch.patch():
        raise RuntimeError("TICKETLOCK_PATCH=0 is set there")
    _lab.set_sites(True)
    return _patch.unseen()
