"""`ticketlock top` on real processes, in a pseudo-terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import REAL, environment
from test_monitor_terminal import BACK, PATIENCE_S, Viewer, until, viewer
from ticketlock import _lab

__all__ = ["viewer"]

pytestmark = [
    pytest.mark.skipif(not hasattr(_lab, "SegmentReader"), reason="this build reads no segments"),
    pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="processes are found through /proc"),
]

# Four threads that hold one lock for a millisecond each, and say when they do.
BUSY = """
    import os, sys, threading, time, ticketlock
    hot, idle = ticketlock.Lock(), ticketlock.RLock()
    def work():
        while True:
            with hot:
                time.sleep(0.001)
            with idle:
                pass
    def start():
        for number in range(4):
            threading.Thread(target=work, name=f"worker-{number}", daemon=True).start()
"""


class Target:
    """A program whose locks report. It runs until it is told to go on, by a line on its stdin, to whatever `then` says."""

    def __init__(self, program: str = "", then: str = "", **changes: str) -> None:
        code = (
            textwrap.dedent(BUSY) + textwrap.dedent(program or "start()") + "\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code + textwrap.dedent(then)],
            env=environment(TICKETLOCK_SITES="1", **changes),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self.pid = self.process.pid

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def target() -> Any:
    started: list[Target] = []

    def start(*arguments: str, **changes: str) -> Target:
        started.append(Target(*arguments, **changes))
        return started[-1]

    yield start
    for one in started:
        one.end()


def top(viewer: Any, pid: int | str, *arguments: str, **more: Any) -> Viewer:
    one: Viewer = viewer("top", *([str(pid)] if pid else []), "--interval", "0.1", *arguments, program=REAL, columns=120, **more)
    return one


# Between two holders nobody has it.
HOT = r"▶ +\d{2,3}\.\d  <Lock> +<string>:3 +(worker-\d|-) +\d"


def test_it_names_the_hot_lock_its_line_and_its_owner(viewer: Any, target: Any) -> None:
    one = top(viewer, target().pid)
    one.until(HOT)
    one.press("\r")
    one.until(r"lines that made others wait[\s\S]*:\d+ +work +\d+ sampled")
    one.press("\x1b")
    one.until("cont%")
    one.press("t")
    one.until(r"worker-\d +(running|parked|spinning) +<Lock>")
    one.leave()


def test_row_7_kill_9_of_the_target_keeps_the_last_frame(viewer: Any, target: Any) -> None:
    process = target()
    one = top(viewer, process.pid)
    one.until(HOT)
    process.process.kill()
    shown = one.until(r"(killed by .*9|exited).* the last reading stays")
    assert "<Lock>" in shown
    one.leave(0)


@pytest.mark.parametrize("code", [0, 3])
def test_row_7_the_exit_code_of_the_target_is_told(viewer: Any, target: Any, code: int) -> None:
    process = target("start()", f"os._exit({code})")
    one = top(viewer, process.pid)
    one.until(HOT)
    process.go_on()
    process.process.wait(PATIENCE_S)
    one.until(r"the last reading stays")
    one.leave(0)


def test_row_7_no_such_process_is_one_message(viewer: Any, target: Any) -> None:
    process = target()
    process.end()
    one = top(viewer, process.pid)
    one.ended(3)
    assert one.output.count(b"there is no process") == 1
    assert BACK not in one.output


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_row_6_signals_restore_the_screen(viewer: Any, target: Any, signum: int, code: int) -> None:
    one = top(viewer, target().pid)
    one.until(HOT)
    one.kill(signum)
    one.ended(code)


def test_row_9_suspended_for_a_while(viewer: Any, target: Any) -> None:
    one = top(viewer, target().pid)
    one.until(HOT)
    one.kill(signal.SIGSTOP)
    until(one.stopped)
    time.sleep(0.5)
    one.fresh()
    one.kill(signal.SIGCONT)
    one.until(HOT)
    one.leave()


def test_row_12_threads_and_locks_that_come_and_go(viewer: Any, target: Any) -> None:
    process = target("""
        start()
        def churn():
            while True:
                locks = [ticketlock.Lock() for _ in range(200)]
                threads = [threading.Thread(target=lock.acquire) for lock in locks[:20]]
                for thread in threads: thread.start()
                for thread in threads: thread.join()
        threading.Thread(target=churn, daemon=True).start()
    """)
    one = top(viewer, process.pid)
    one.until(r"worker-\d")
    for key in "tcgl":
        one.press(key)
        time.sleep(0.3)
    one.until(r"worker-\d")
    one.leave()


def test_row_13_hostile_names_in_a_real_process(viewer: Any, target: Any) -> None:
    process = target("""
        names = ["\\x1b]0;owned\\x07", "[/]", "\\u202ertl", "\\u9396" * 30]
        def named():
            while True:
                with hot: time.sleep(0.001)
        for name in names: threading.Thread(target=named, name=name, daemon=True).start()
    """)
    one = top(viewer, process.pid)
    one.until(r"▶ +\d")
    one.press("t")
    one.until(r"\[/\]")
    one.leave()
    assert b"\x1b]" not in one.output
    assert "\u202e".encode() not in one.output


def test_row_14_a_lock_that_was_never_used(viewer: Any, target: Any) -> None:
    one = top(viewer, target("hot.acquire(); hot.release()").pid)
    one.until(r"no lock was waited for yet|<Lock> .* - +- +-")
    one.leave()


def test_row_17_the_file_is_truncated_under_the_viewer(viewer: Any, target: Any, tmp_path: Path) -> None:
    process = target(TICKETLOCK_TELEMETRY="file", XDG_RUNTIME_DIR=str(tmp_path))
    files = [Path(link.resolve()) for link in Path(f"/proc/{process.pid}/fd").iterdir() if "ticketlock" in os.readlink(link)]
    if not files or not files[0].exists():
        pytest.skip("no file was made")
    one = top(viewer, process.pid, XDG_RUNTIME_DIR=str(tmp_path))
    one.until(HOT)
    os.kill(process.pid, signal.SIGSTOP)
    os.truncate(files[0], 100)
    shown = one.until(r"the last reading stays|cannot be read")
    assert "<Lock>" in shown, "what was read before stays"
    one.leave(5)


def test_row_19_a_forked_child_has_figures_of_its_own(viewer: Any, target: Any) -> None:
    process = target(
        """
        child = os.fork()
        if not child:
            start()
            time.sleep(60)
            os._exit(0)
        """
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    try:
        one = top(viewer, children[0])
        one.until(HOT)
        one.leave()
        parent = top(viewer, process.pid)
        parent.until("no lock was waited for yet|<Lock>")
        assert not re.search(HOT, parent.now()), "what the child does is not the parent's"
        parent.leave()
    finally:
        for child in children:
            os.kill(int(child), signal.SIGKILL)


def test_row_19_a_daemon_that_closes_its_files_stays_in_view(viewer: Any, target: Any) -> None:
    process = target("start()", "os.closerange(3, 4096)\ntime.sleep(60)")
    one = top(viewer, process.pid)
    one.until(HOT)
    process.go_on()
    until(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) <= 5)
    time.sleep(0.5)
    one.fresh()
    one.until(HOT)
    one.leave()


def test_row_20_a_recording_through_stdin_and_keys_from_the_terminal(viewer: Any, target: Any, tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    recording = subprocess.run(
        [*REAL, "top", str(target().pid), "--jsonl", "-n", "5", "--interval", "0.1"],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert recording.returncode == 0
    path.write_bytes(recording.stdout)
    with path.open("rb") as file:
        one = top(viewer, "", "--replay", "-", stdin=file)
    shown = one.until("end of recording")
    assert re.search(r"▶ +\d{2,3}\.\d  <Lock> +<string>:3", shown)
    one.press("t")
    one.until(r"worker-\d")
    one.leave(0)


def test_row_20_a_recording_that_goes_on_for_ever_holds_nothing_up(viewer: Any, target: Any) -> None:
    line = subprocess.run(
        [*REAL, "top", str(target().pid), "--json", "--interval", "0.1"],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
    ).stdout
    for leave in ("q", signal.SIGTERM):
        reading, writing = os.pipe()
        one = top(viewer, "", "--replay", "-", stdin=reading)
        os.close(reading)
        os.write(writing, line.replace(b"\n", b"") + b"\n")
        one.until(HOT)
        one.press("t")
        one.until(r"worker-\d")
        if leave == "q":
            one.leave(0)
        else:
            one.kill(signal.SIGTERM)
            one.ended(143)
        os.close(writing)
        assert b"Fatal" not in one.output


def test_choosing_among_real_processes(viewer: Any, target: Any) -> None:
    first, second = target(), target()
    one = top(viewer, "")
    one.until(rf"{first.pid} [\s\S]*{second.pid} ")
    for _ in range(50):
        if re.search(rf"▶ *{second.pid} ", one.now()):
            break
        one.press("j")
        time.sleep(0.1)
    one.press("\r")
    one.until(HOT)
    one.leave()
