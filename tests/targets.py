"""Processes to be watched, and viewers that are another user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from conftest import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent

# A user that has nothing, as most systems number it.
NOBODY = 65534

# Waits for a line before it ends, and exits with what the line says.
WAIT = "import sys; print('ready', flush=True); line = sys.stdin.readline(); sys.exit(int(line or 0))"

# Three threads that quarrel about one lock, created on the fourth line, and another lock that is at rest.
BUSY = f"""\
import threading, time, ticketlock
from ticketlock import _lab
_lab.set_sites(True)
hot = ticketlock.Lock()
idle = ticketlock.Lock()
def work():
    while True:
        with hot:
            time.sleep(0.002)
        time.sleep(0.0005)
for number in range(3):
    threading.Thread(target=work, name=f"worker-{{number}}", daemon=True).start()
time.sleep(0.05)
{WAIT}
"""

# Two threads, each of which holds what the other one waits for.
DEADLOCK = f"""\
import threading, time, ticketlock
from ticketlock import _lab
_lab.set_sites(True)
first, second = ticketlock.Lock(), ticketlock.Lock()
both = threading.Barrier(2)
def embrace(one, other):
    with one:
        both.wait()
        with other:
            pass
threading.Thread(target=embrace, args=(first, second), name="left", daemon=True).start()
threading.Thread(target=embrace, args=(second, first), name="right", daemon=True).start()
time.sleep(0.3)
{WAIT}
"""


class Target:
    """A program that runs until the context ends, and has said that it is ready."""

    def __init__(self, source: str, *options: str, prefix: Sequence[str] = (), **changes: str | None) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, *options, "-c", source],
            env=environment(**changes),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()
        if self.said != "ready":
            self.process.kill()
            self.process.communicate()
            raise AssertionError(f"the target said {self.said!r}")

    def end(self, code: int = 0) -> None:
        """Have it exit."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{code}\n")
        self.process.stdin.close()
        assert self.process.wait(20) == code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.kill()
        self.process.wait(20)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()


def needs_root() -> None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("becoming another user needs root")


def as_user(uid: int, *arguments: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
    """The `ticketlock` command as another user, who need not be able to read this checkout or its interpreter."""
    needs_root()
    return subprocess.run(
        [sys.executable, str(HERE / "as_user.py"), str(uid), *arguments],
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
    )


def ran(*arguments: str, stdin: Any = subprocess.DEVNULL, **changes: str | None) -> subprocess.CompletedProcess[str]:
    """The `ticketlock` command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "ticketlock", *arguments],
        env=environment(**changes),
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=50,
    )
