"""The live screen on a pseudo-terminal: keys, sizes, signals, a terminal that is always given back.

The source is made up (`viewer_program.py`); the viewer is the job in the foreground of its own terminal (`job.py`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyte
import pytest
from conftest import environment
from terminal import COLOUR_ON_A_TERMINAL, TerminalRun
from ticketlock.monitor.recording import Replay

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).parent
PROGRAM = [sys.executable, str(TESTS / "viewer_program.py")]

ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"
SHOW, HIDE = b"\x1b[?25h", b"\x1b[?25l"
HOME = b"\x1b[H"

# How long something may take to show on a busy machine.
PATIENCE_S = 30.0


class Viewer(TerminalRun):
    """The viewer, in the foreground of a terminal of its own, with the screen kept up to date."""

    def __init__(self, folder: Path, *arguments: str, program: list[str] = PROGRAM, **more: Any) -> None:
        self._pid_file = folder / "pid"
        self._fed = 0
        job = [sys.executable, str(TESTS / "job.py"), str(self._pid_file)]
        super().__init__(*arguments, program=[*job, *program], own_session=True, **more)
        self.fresh()

    @property
    def pid(self) -> int:
        """That of the viewer itself."""
        until(self._pid_file.exists)
        return int(self._pid_file.read_text())

    def press(self, keys: str | bytes) -> None:
        """Type."""
        os.write(self.master, keys.encode() if isinstance(keys, str) else keys)

    def kill(self, signum: int) -> None:
        """Send the viewer a signal."""
        os.kill(self.pid, signum)

    def fresh(self) -> int:
        """Forget what the screen shows: what is there from now on was drawn from now on. Where the output stands."""
        self._fed = len(self.output)
        self._screen = pyte.Screen(self.columns or 80, self.rows or 24)
        self._stream = pyte.ByteStream(self._screen)
        return self._fed

    def now(self, all_frames: bool = False) -> str:
        """The screen as it is."""
        output = self.output[self._fed :]
        self._fed += len(output)
        # Every frame draws all of the screen: the last two are enough.
        start = output.rfind(HOME, 0, max(0, output.rfind(HOME)))
        self._stream.feed(output if all_frames or start < 0 else output[start:])
        return "\n".join(line.rstrip() for line in self._screen.display)

    def until(self, text: str) -> str:
        """Wait until the screen shows something that fits the expression; the screen."""
        end = time.monotonic() + PATIENCE_S
        while not re.search(text, shown := self.now()):
            assert time.monotonic() < end, f"{text!r} never shows:\n{shown}"
            over = self.process.poll() is not None
            assert not over or re.search(text, self.now()), f"ended without {text!r}:\n{shown}"
            time.sleep(0.02)
        return shown

    def modes(self) -> tuple[bool, bool]:
        """Whether the terminal echoes and collects lines, as shells want it."""
        flags = termios.tcgetattr(self.master)[3]
        return bool(flags & termios.ECHO), bool(flags & termios.ICANON)

    def stopped(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"

    def leave(self, code: int = 0) -> None:
        """Quit, and look whether all is as before."""
        self.press("q")
        self.ended(code)

    def ended(self, code: int) -> None:
        """It has ended, or does so at once, and left the terminal as it was."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        modes = self.modes() if self.process.poll() is not None else None
        assert self.finish() == code, self.output[-3000:].decode(errors="replace")
        assert modes == (True, True), "the terminal is left without echo or lines"
        self.assert_restored()


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


@pytest.fixture
def viewer(tmp_path: Path) -> Any:
    """Starts viewers, and sees to it that none is left."""
    started: list[Viewer] = []

    def start(*arguments: str, **more: Any) -> Viewer:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Viewer(folder, *arguments, **more))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_it_shows_locks_and_leaves(viewer: Any) -> None:
    one = viewer(columns=100)
    shown = one.until(r"cache\.lock +cache\.py:88 +worker-7 +2")
    assert re.search(r"server\.py  locks 5 \(1 hot\)", shown)
    assert one.modes() == (False, False)
    one.leave()
    assert b"left with 0" in one.output[one.output.rindex(BACK) :]


def test_every_view_by_its_key(viewer: Any) -> None:
    one = viewer(rows=40, columns=120)
    one.until("cache.lock")
    for key, text in (
        ("t", r"MainThread +parked"),
        ("c", r"created at +function"),
        ("g", r"who waits for whom"),
        ("?", r"quit \(so does Ctrl-C\)"),
        ("l", r"native\.table"),
        ("\r", r"how long waits were"),
        ("\x1b", r"native\.table"),
        ("x", r"▲|▼|last 60 s"),
        ("s", r"sorted by p99"),
        ("S", r"sorted by wait"),
        ("i", r"internal locks shown"),
        ("d", r"totals"),
        ("r", r"totals count from now"),
        ("-", r"a reading every 0\.1 s"),
        ("\x1b[B", r"▶ +0\.0"),
    ):
        one.press(key)
        one.until(text)
    one.leave()


def test_the_filter(viewer: Any) -> None:
    one = viewer()
    one.until("fresh")
    one.press("/nat")
    shown = one.until("filter: nat")
    assert "native.table" in shown
    assert "fresh" not in shown
    one.press("q")
    one.until("filter: natq")
    one.press("\x7f\r")
    one.until(r"filter nat  \(esc")
    one.press("\x1b")
    one.until("fresh")
    one.leave()


def test_pause_stands_still(viewer: Any) -> None:
    one = viewer(columns=120)
    one.until(r"\(5\d gone\)")
    one.press(" ")
    one.until("paused")
    seen = set(re.findall(r"\((\d+) gone\)", one.now()))
    mark = len(one.output)
    one.press("x")
    until(lambda: len(one.output) > mark)
    assert set(re.findall(r"\((\d+) gone\)", one.until("paused"))) == seen
    one.press(" ")
    one.until("live")
    until(lambda: set(re.findall(r"\((\d+) gone\)", one.now())) not in (seen, set()))
    one.leave()


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_row_1_a_terminal_that_is_not_unicode_gets_ascii(viewer: Any, encoding: str) -> None:
    one = viewer("--make", "few", PYTHONUTF8="0", PYTHONIOENCODING=encoding, LC_ALL="C")
    one.until(r"> +37\.7  cache\.lock")
    for key, text in (("t", "MainThread"), ("g", "worker-7"), ("?", "Ctrl-C")):
        one.press(key)
        one.until(text)
    one.leave()
    one.output.decode("ascii")


def test_row_1_hostile_names_on_an_ascii_terminal(viewer: Any) -> None:
    one = viewer("--make", "hostile", PYTHONUTF8="0", PYTHONIOENCODING="ascii", LC_ALL="C")
    one.until("locks dropped")
    one.leave()
    one.output.decode("ascii")


def test_row_1_ascii_by_option(viewer: Any) -> None:
    one = viewer("--ascii")
    one.until(r"> +37\.7  cache\.lock")
    one.leave()
    one.output.decode("ascii")


@pytest.mark.parametrize(("rows", "columns"), [(3, 8), (1, 1), (0, 0), (2, 300), (200, 20), (10, 40)])
def test_row_2_terminals_of_any_size(viewer: Any, rows: int, columns: int) -> None:
    one = viewer(rows=rows, columns=columns)
    one.wait_for(ALTERNATE)
    one.wait_for(b"3")
    one.press("t")
    one.press("?")
    one.leave()


def test_row_2_a_tiny_terminal_has_one_status_line(viewer: Any) -> None:
    one = viewer(rows=3, columns=8)
    one.until(r"37\.7%")
    assert one.now().split("\n")[1:] == ["", ""]
    one.leave()


def test_row_2_resizing_down_to_one_cell_and_back(viewer: Any) -> None:
    one = viewer("--interval", "5", rows=24, columns=100)
    one.until("cache.lock")
    for rows, columns, text in (
        (1, 1, "^3"),
        (3, 8, r"37\.7%"),
        (10, 40, "cache.lock"),
        (60, 200, "last 60 s"),
        (24, 100, "fresh"),
    ):
        one.rows, one.columns = rows, columns
        one.fresh()
        # The terminal tells its foreground group by itself: no reading is due for seconds.
        one.resize(rows, columns)
        one.until(text)
    one.leave()


def test_row_3_more_locks_than_the_screen_has_rows(viewer: Any) -> None:
    one = viewer("--make", "many", "--interval", "0.02", rows=10, columns=80)
    one.until(r"lock-\d{4}")
    for _ in range(30):
        one.press("\x1b[B" * 7)
        lines = one.now(all_frames=True).split("\n")
        assert [index for index, line in enumerate(lines) if "ticketlock top" in line] == [0], "nothing scrolls"
        assert all(re.search("ock|gone", line) for line in lines[3:9])
        time.sleep(0.02)
    one.until(r"▶.*lock-0")
    one.leave()


def test_row_4_not_a_terminal_is_refused_without_an_escape() -> None:
    for changes in ({}, {"FORCE_COLOR": "1"}):
        run = subprocess.run(
            PROGRAM, env=environment(**changes), stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False
        )
        assert run.returncode == 2
        assert b"--once" in run.stderr
        assert b"\x1b" not in run.stdout + run.stderr


def test_row_4_without_a_keyboard_it_shows_and_ends_by_itself(viewer: Any) -> None:
    """No controlling terminal, stdin from nowhere."""
    run = TerminalRun("--count", "8", program=PROGRAM, own_session=True, stdin=subprocess.DEVNULL)
    run.wait_for(b"cache.lock")
    assert run.finish() == 0
    run.assert_restored()
    run = TerminalRun("--end-at", "5", program=PROGRAM, own_session=True, stdin=subprocess.DEVNULL)
    assert run.finish() == 0, "nobody could press q"
    run.assert_restored()


def test_row_5_ctrl_c_at_100_random_moments(viewer: Any) -> None:
    one = viewer("--times", "100", "--interval", "0.01")
    one.wait_for(b"of 100", 55)
    one.ended(0)
    assert re.search(rb"codes \['130'(, 'early')?\] of 100", one.output), one.output[-300:]


def test_row_5_ctrl_c_from_the_keyboard(viewer: Any) -> None:
    for _ in range(5):
        one = viewer("--interval", "0.01")
        one.wait_for(HIDE)
        one.press(b"\x03")
        one.ended(130)


def test_row_5_two_ctrl_c_in_a_row(viewer: Any) -> None:
    for pause in (0, 0, 0.001, 0.003, 0.005, 0.01, 0.02, 0.04):
        one = viewer("--interval", "0.01")
        one.until("cache.lock")
        one.press(b"\x03")
        time.sleep(pause)
        one.press(b"\x03")
        one.ended(130)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
@pytest.mark.parametrize("view", ["", "t", "?", "/ab", " "])
def test_row_6_a_signal_restores_the_screen(viewer: Any, signum: int, code: int, view: str) -> None:
    one = viewer()
    one.until("cache.lock")
    one.press(view)
    one.kill(signum)
    one.ended(code)


def test_row_6_sigterm_while_the_source_waits_for_ever(viewer: Any) -> None:
    one = viewer("--block-at", "3")
    one.until("cache.lock")
    one.press("t")
    one.until("MainThread")
    one.kill(signal.SIGTERM)
    one.ended(143)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="asks /proc whether the process is stopped")
@pytest.mark.parametrize("how", ["key", "SIGTSTP", "SIGSTOP"])
def test_row_6_stopped_and_continued(viewer: Any, how: str) -> None:
    one = viewer("--interval", "5")
    one.until("cache.lock")
    for _ in range(2):
        one.press(b"\x1a") if how == "key" else one.kill(getattr(signal, how))
        until(one.stopped)
        if how != "SIGSTOP":
            assert one.modes() == (True, True)
            until(lambda: one.output.rfind(SHOW) > one.output.rfind(HIDE))
            one.assert_restored()
        mark = one.fresh()
        one.kill(signal.SIGCONT)
        # Redrawn at once, though no reading is due.
        one.until("cache.lock")
        assert ALTERNATE in one.output[mark:]
        until(lambda: one.modes() == (False, False))
        one.press("t")
        one.until("MainThread")
        one.press("t")
        one.until("native.table")
    one.leave()


def test_row_6_stopped_while_paused_and_filtered_shows_the_same_again(viewer: Any) -> None:
    one = viewer()
    one.until("cache.lock")
    one.press("/cache\r ")
    one.until("paused")
    one.press(b"\x1a")
    until(one.stopped)
    one.fresh()
    one.kill(signal.SIGCONT)
    one.until(r"paused[\s\S]*filter cache")
    one.leave()


@pytest.mark.parametrize("ending", ["exited (0)", "killed by SIGKILL"])
def test_row_7_the_end_of_the_target_freezes_the_last_frame(viewer: Any, ending: str) -> None:
    one = viewer("--end-at", "4", "--ending", ending, rows=24, columns=100)
    one.until(re.escape(ending) + r" at \d\d:\d\d:\d\d +the last reading stays")
    mark = one.now()
    assert re.search(r"\(44 gone\)", mark), "the fourth reading"
    assert mark.count(ending) == 1
    one.press("t")
    one.until("MainThread")
    one.press("l")
    one.until("native.table")
    one.press("?")
    one.until("Ctrl-C")
    one.leave(0)
    assert one.output[one.output.rindex(BACK) :].count(ending.encode()) == 0, "and nothing is printed twice"


def test_row_7_with_a_count_the_end_of_the_target_ends_it(viewer: Any) -> None:
    one = viewer("--end-at", "3", "--count", "50")
    one.ended(0)


def test_a_count_of_readings(viewer: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    one = viewer("--count", "5", "--log", str(log))
    one.ended(0)
    assert json.loads(log.read_text())["tick"] in (5, 6)
    assert log.read_text().count("closed") == 1


def test_row_8_a_source_that_may_not_be_read(viewer: Any) -> None:
    one = viewer("--fail-at", "1", "--failure", "forbidden")
    one.ended(4)
    assert one.output.count(b"you may not look; ask for it") == 1


def test_row_9_the_clock_is_set_back(viewer: Any) -> None:
    one = viewer("--steps-back", "--interval", "0.02")
    one.until(r"\(7\d gone\)")
    one.leave()


def test_row_10_the_terminal_is_closed(viewer: Any) -> None:
    one = viewer("--interval", "0.02")
    one.until("cache.lock")
    os.close(one.master)
    # Hung up by the kernel, or told so by a failing write, whichever comes first.
    assert one.process.wait(PATIENCE_S) in (129, 141)


def test_row_10_only_the_output_is_closed() -> None:
    master, slave = os.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "--interval", "0.02"],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(slave)
    assert os.read(master, 1)
    os.close(master)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode in (129, 141)
    assert errors == b""


@pytest.mark.parametrize(
    ("arguments", "changes", "colour"),
    COLOUR_ON_A_TERMINAL,
)
def test_row_11_colour_switches(viewer: Any, arguments: list[str], changes: dict[str, str], colour: bool) -> None:
    one = viewer(*arguments, **changes)
    one.until("cache.lock")
    one.leave()
    assert bool(re.search(rb"\x1b\[[\d;]*\dm", one.output.replace(b"\x1b[0m", b""))) == colour
    one.screen()


def test_row_11_a_dumb_terminal_has_no_live_screen(viewer: Any) -> None:
    one = viewer(TERM="dumb")
    one.ended(2)
    assert b"\x1b" not in one.output


def test_row_11_colour_forced_into_a_pipe_starts_no_live_screen() -> None:
    run = subprocess.run(PROGRAM, env=environment(FORCE_COLOR="1"), stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    assert run.returncode == 2
    assert ALTERNATE not in run.stdout


def test_row_12_lost_data_is_red(viewer: Any) -> None:
    one = viewer("--dropped", "3", rows=10, columns=80)
    one.until("! 3 locks dropped")
    one.press("t")
    one.until(r"! 3 locks dropped[\s\S]*MainThread")
    one.leave()
    assert re.search(rb"\x1b\[1;31m! 3 locks dropped", one.output)


def test_row_12_500_locks_are_drawn_fast_enough(viewer: Any) -> None:
    one = viewer("--make", "many", "--interval", "0.05", "--count", "40", rows=50, columns=200)
    one.ended(0)
    assert one.output.count(b"lock-0130") >= 10


def test_row_13_hostile_names_on_the_screen(viewer: Any) -> None:
    one = viewer("--make", "hostile", "--title", "\x1b]0;owned\x07[/]", rows=40, columns=120)
    one.until(r"a\[0\]\[b")
    for key, text in (("t", r"\[/\]"), ("c", "created at"), ("g", "who waits"), ("l", "cont%"), ("\r", "how long waits")):
        one.press(key)
        one.until(text)
    assert len(one.now().split("\n")) == 40
    one.leave()
    assert b"\x1b]" not in one.output
    assert b"\x07" not in one.output
    assert b"\x9b" not in re.sub(rb"[\xc2-\xf4][\x80-\xbf]+", b"", one.output)
    # What moves the cursor or changes modes is ours: the alternate screen was entered once.
    assert one.output.count(ALTERNATE) == 1


def test_row_14_a_process_without_anything(viewer: Any) -> None:
    one = viewer("--make", "empty")
    one.until("no lock was waited for yet")
    for key, text in (("t", "no thread has waited"), ("g", "nobody waits"), ("c", "no line of code"), ("l", "no lock was")):
        one.press(key)
        one.until(text)
    one.leave()
    assert b"nan" not in one.output


def test_row_17_a_source_that_is_cut_off_mid_view(viewer: Any) -> None:
    one = viewer("--end-at", "4", "--ending", "its segment was truncated", columns=100)
    one.until(r"its segment was truncated at")
    assert "cache.lock" in one.now()
    one.leave(0)


def test_row_18_a_damaged_segment_from_the_start(viewer: Any) -> None:
    one = viewer("--fail-at", "1", "--failure", "corrupt")
    one.ended(5)
    assert one.output.count(b"the segment is damaged; start it again") == 1


def test_row_18_a_segment_that_is_damaged_mid_view(viewer: Any) -> None:
    one = viewer("--fail-at", "5", "--failure", "corrupt", columns=120)
    one.until("the segment is damaged")
    assert "cache.lock" in one.now(), "what was read before stays"
    one.leave(5)


def test_a_mistake_of_ours_restores_the_screen(viewer: Any) -> None:
    one = viewer("--fail-at", "5", "--failure", "bug")
    assert one.finish() == 1
    assert one.output.index(BACK) < one.output.index(b"ZeroDivisionError")
    assert one.output.rfind(SHOW) > one.output.rfind(HIDE)


def test_choosing_a_process(viewer: Any) -> None:
    one = viewer("--choose", "3", rows=20, columns=100)
    one.until("3 processes that can be watched")
    one.press("j")
    one.until(r"▶ 4241")
    one.press("\r")
    one.ended(0)
    assert b"chose 4241" in one.output[one.output.rindex(BACK) :]


def test_row_20_keys_come_from_the_terminal_when_stdin_is_a_pipe(viewer: Any) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"qqqqqq\n")
    one = viewer(stdin=reading)
    os.close(reading)
    one.until("cache.lock")
    one.press("t")
    one.until("MainThread")
    one.leave(0)
    os.close(writing)


def test_row_20_unknown_sequences_do_nothing(viewer: Any) -> None:
    one = viewer()
    one.until("cache.lock")
    for junk in (b"\x1b[<0;1;1M", b"\x1b[15~", b"\x1b]11;rgb:0/0/0\x07", b"\x1b[?1;2c", b"\x00\x01", b"\xff\xfe", b"\x1b[200~"):
        one.press(junk)
    one.press("t")
    one.until("MainThread")
    one.leave()


def test_the_terminal_is_never_made_non_blocking(viewer: Any) -> None:
    one = viewer()
    one.until("cache.lock")
    flags = Path(f"/proc/{one.pid}/fdinfo/1")
    if flags.exists():
        assert not int(re.search(r"flags:\s+(\d+)", flags.read_text())[1], 8) & os.O_NONBLOCK  # type: ignore[index]
    one.leave()


def test_keys_that_nobody_read_do_not_reach_the_shell(viewer: Any) -> None:
    one = viewer()
    one.until("cache.lock")
    one.press("qrm -rf\n")
    one.ended(0)


def test_recording_from_the_start_and_by_key(viewer: Any, tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    one = viewer("--record", str(path), columns=100)
    one.until(r"rec ")
    until(lambda: path.exists() and path.read_bytes().count(b"\n") >= 3)
    one.press("w")
    one.until(r"recorded \d+ snapshots to")
    count = path.read_bytes().count(b"\n")
    one.press("w")
    second = tmp_path / "recording-2.jsonl"
    until(lambda: second.exists() and second.read_bytes().count(b"\n") >= 2)
    one.leave()
    assert path.read_bytes().count(b"\n") == count, "the first recording is left as it was"
    replay = Replay(str(path))
    seen = []
    while (snapshot := replay.read()) is not None:
        seen.append(snapshot)
    replay.close()
    assert len(seen) == count
    assert seen[-1].locks[0].name == "cache.lock"


def test_recording_goes_on_while_paused(viewer: Any, tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    one = viewer("--record", str(path))
    one.press(" ")
    one.until("paused")
    count = path.read_bytes().count(b"\n")
    until(lambda: path.read_bytes().count(b"\n") >= count + 3)
    one.leave()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_recording_that_fails_says_so_and_the_view_goes_on(viewer: Any, tmp_path: Path) -> None:
    one = viewer("--record", "/dev/full", columns=100)
    one.until("recording to '/dev/full' stopped")
    one.press("t")
    one.until("MainThread")
    assert "rec " not in one.now().split("\n")[0]
    one.leave()
    one = viewer("--record", str(tmp_path / "no" / "such"), columns=150)
    one.until("cannot be recorded to")
    one.leave()


def test_choosing_nothing(viewer: Any) -> None:
    one = viewer("--choose", "0", columns=100)
    one.until("none yet")
    one.press("\r")
    one.leave(0)
    assert b"chose None" in one.output
    one = viewer("--choose", "2")
    one.until("2 processes")
    one.kill(signal.SIGTERM)
    one.ended(143)
