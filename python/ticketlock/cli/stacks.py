"""Python stacks of another process's threads, where its interpreter lets us ask for them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ticketlock.monitor.errors import MonitorError

from . import attach

if TYPE_CHECKING:
    from ticketlock.monitor.raw import RawProcess

# For the main thread to come to it; it does within milliseconds unless it is busy outside of Python.
PATIENCE_S = 1.5

# Runs in the process. Only what every interpreter has loaded, json apart.
_INSIDE = """\
import sys, os, json
found = {{}}
for ident, frame in sys._current_frames().items():
    frames = []
    if frame is sys._getframe():
        # This code, and the file that it came in.
        frame = frame.f_back.f_back
    while frame is not None and len(frames) < 200:
        code = frame.f_code
        frames.append((code.co_filename, frame.f_lineno or 0, code.co_qualname))
        frame = frame.f_back
    found[ident] = frames[::-1]
with open({answer!r} + ".tmp", "w", encoding="ascii") as file:
    json.dump(found, file)
os.replace({answer!r} + ".tmp", {answer!r})
"""


@dataclass(frozen=True, slots=True)
class Stacks:
    """Path, line and function of every thread by its ident, outermost first; or why there are none."""

    threads: dict[int, tuple[tuple[str, int, str], ...]]
    why_not: str | None = None


def of(process: RawProcess, main_waits: bool) -> Stacks:
    """The stacks of a process. They are asked of its main thread, so there are none while that waits for a lock."""
    if _version(process) < (3, 14):
        return Stacks({}, f"it runs on Python {process['python']}, and programs can be asked from 3.14 on")
    if main_waits:
        return Stacks({}, "its main thread, which would have to say them, waits for a lock itself")
    try:
        return Stacks(_ask(process["pid"]))
    except TimeoutError:
        return Stacks({}, f"its main thread did not answer in {PATIENCE_S:g} s")
    except (MonitorError, OSError, ValueError) as wrong:
        return Stacks({}, wrong.cause if isinstance(wrong, MonitorError) else str(wrong)[:200])


def _version(process: RawProcess) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in process["python"].split(".")[:2])


def _ask(pid: int) -> dict[int, tuple[tuple[str, int, str], ...]]:
    remote_exec = attach._remote_exec()
    attach._check_process(pid)
    folder = tempfile.mkdtemp(prefix="ticketlock-dump-")
    script, answer = os.path.join(folder, "stacks.py"), os.path.join(folder, "answer")
    _write(script, f"exec({_INSIDE.format(answer=answer)!r}, {{}})\n")
    attach._hand_over(pid, folder, script)
    try:
        attach._send(remote_exec, pid, script)
        text = attach._answer(pid, answer, PATIENCE_S)
    except TimeoutError:
        # It may still come to it: then it only clears up.
        _write(script + ".new", f"import shutil\nshutil.rmtree({folder!r}, ignore_errors=True)\n")
        attach._hand_over(pid, script + ".new")
        os.replace(script + ".new", script)
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return _checked(json.loads(text))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def _checked(found: Any) -> dict[int, tuple[tuple[str, int, str], ...]]:
    """What the process said, if it has the form that was asked for."""
    try:
        return {
            int(ident): tuple((str(path), int(line), str(function)) for path, line, function in frames)
            for ident, frames in found.items()
        }
    except (AttributeError, TypeError):
        raise ValueError("it gave an answer of an unknown form") from None
