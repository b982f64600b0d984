"""The command on a pseudo-terminal: progress, the live display, sizes, signals, and a terminal that is always given back."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from typing import Any

import pytest
from terminal import COLOUR_ON_A_TERMINAL, TerminalRun

QUICK = ("bench", "--threads", "1,2", "--locks", "auto,std", "--rounds", "2", "--seed", "1")
# Long enough that no test is over before it has looked.
LONG = ("bench", "--threads", "1,2", "--locks", "auto,std", "--rounds", "500", "--seed", "1")

SHOW, HIDE = b"\x1b[?25h", b"\x1b[?25l"
ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"


def escapes(output: bytes) -> bool:
    return b"\x1b" in output


def test_progress_moves_and_goes_away() -> None:
    run = TerminalRun(*QUICK, rows=70, columns=100, FAKE_ROUND_S="0.1")
    assert run.finish() == 0
    run.assert_restored()
    percentages = {int(found) for found in re.findall(rb"(\d+)% ETA 0:", run.output)}
    assert len(percentages) > 3, percentages
    assert ALTERNATE not in run.output
    shown = "\n".join(run.screen())
    assert "ETA" not in shown, "the progress line is gone"
    assert "M op/s" in shown


def test_progress_is_on_stderr_when_stdout_is_a_pipe() -> None:
    run = TerminalRun(*QUICK, "--json", stdout=subprocess.PIPE, FAKE_ROUND_S="0.05")
    assert run.process.stdout is not None
    with run.process.stdout as pipe:
        document = json.loads(pipe.read())
    assert run.finish() == 0
    assert len(document["cells"]) == 4
    assert b"ETA" in run.output


def test_no_progress() -> None:
    run = TerminalRun(*QUICK, "--no-progress")
    assert run.finish() == 0
    assert b"ETA" not in run.output
    assert HIDE not in run.output


def test_live_shows_moving_delay_tables_and_leaves() -> None:
    run = TerminalRun(*QUICK, "--live", rows=20, columns=100, FAKE_ROUND_S="0.4")
    run.wait_for(b"delay tables of")
    assert run.finish() == 0
    run.assert_restored()
    alternate = run.output[run.output.index(ALTERNATE) : run.output.index(BACK)]
    shown = "\n".join(run.screen(alternate))
    assert "ticketlock bench semaphore" in shown
    assert re.search(r"thread +lock +slot +delay +history +hits +collisions", shown)
    assert re.search(r"1 \(1000\) +7 +40 +\d", shown)
    delays = set(re.findall(rb"40 *(?:\x1b\[[\d;]*m)* +([\d.]+) ", alternate))
    assert len(delays) > 3, "the delays move"
    assert "M op/s" in run.output[run.output.index(BACK) :].decode()


def test_a_dumb_terminal_gets_plain_text_and_no_display_row11() -> None:
    run = TerminalRun(*QUICK, "--live", TERM="dumb")
    assert run.finish() == 0
    assert not escapes(run.output)
    assert b"--live needs a terminal" in run.output


@pytest.mark.parametrize(
    ("arguments", "changes", "colour"),
    COLOUR_ON_A_TERMINAL,
)
def test_colour_on_a_terminal_row11(arguments: list[str], changes: dict[str, str], colour: bool) -> None:
    run = TerminalRun(*QUICK, *arguments, FAKE_ROUND_S="0.02", **changes)
    assert run.finish() == 0
    run.assert_restored()
    assert bool(re.search(rb"\x1b\[[\d;]*\dm", run.output.replace(b"\x1b[0m", b""))) == colour


def test_colour_of_stderr_and_stdout_is_decided_apart_row11() -> None:
    run = TerminalRun(*QUICK, stdout=subprocess.PIPE, FAKE_ROUND_S="0.02")
    assert run.process.stdout is not None
    with run.process.stdout as pipe:
        assert not escapes(pipe.read())
    assert run.finish() == 0
    assert re.search(rb"\x1b\[3\dm", run.output), "the bar on the terminal is coloured"


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(3, 8), (10, 40), (1, 1), (0, 0), (24, 80), (5, 300)])
def test_terminals_of_any_size_row2(rows: int, columns: int, live: bool) -> None:
    run = TerminalRun(*QUICK, *(["--live"] if live else []), rows=rows, columns=columns, FAKE_ROUND_S="0.15")
    assert run.finish() == 0
    run.assert_restored()


def test_a_tiny_live_display_is_one_status_line_row2() -> None:
    run = TerminalRun(*LONG, "--live", rows=3, columns=8, FAKE_ROUND_S="0.1")
    run.wait_for(b"% ETA")
    time.sleep(0.5)
    output = run.output
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    screen = run.screen(output[output.index(ALTERNATE) :])
    assert re.fullmatch(r" *\d+% ET.*", screen[0]), screen
    assert [line.strip() for line in screen[1:]] == ["", ""]


def test_resizing_while_live_row2() -> None:
    run = TerminalRun(*LONG, "--live", rows=24, columns=100, FAKE_ROUND_S="0.1")
    for rows, columns in ((1, 1), (3, 8), (10, 40), (60, 200), (24, 100)):
        time.sleep(0.3)
        run.resize(rows, columns)
    mark = len(run.output)
    run.wait_for(b"delay tables")
    time.sleep(0.5)
    assert b"collisions" in run.output[mark:], "the table is back"
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    run.assert_restored()


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_gives_the_terminal_back_and_prints_what_is_valid_row5_row6(live: bool, signum: int, code: int) -> None:
    run = TerminalRun(*LONG, *(["--live"] if live else []), rows=30, columns=100, FAKE_ROUND_S="0.02")
    run.wait_for(b" 1% ETA")
    run.process.send_signal(signum)
    assert run.finish() == code
    run.assert_restored()
    assert (ALTERNATE in run.output) == live
    rest = run.output[run.output.rindex(SHOW) :].decode()
    assert "stopped early: partial results" in rest
    assert "M op/s" in rest


def test_ctrl_c_at_random_moments_row5() -> None:
    chance = random.Random(5)
    for attempt in range(25):
        arguments = ["--live"] if attempt % 2 else []
        run = TerminalRun(*LONG, *arguments, FAKE_ROUND_S="0.01")
        # From before the first import to the middle of the run; the interpreter's own start is not ours.
        run.wait_for(b"ticketlock bench") if attempt % 5 else time.sleep(0.3)
        time.sleep(chance.uniform(0, 0.4))
        run.process.send_signal(signal.SIGINT)
        code = run.finish()
        if attempt % 5 or HIDE in run.output:
            assert code == 130, run.output
            run.assert_restored()


def test_a_second_signal_leaves_at_once_row5() -> None:
    chance = random.Random(6)
    for attempt in range(10):
        run = TerminalRun(*LONG, *(["--live"] if attempt % 2 else []), FAKE_ROUND_S="0.01")
        run.wait_for(b"% ETA")
        run.process.send_signal(signal.SIGINT)
        time.sleep(chance.uniform(0, 0.05))
        if run.process.poll() is None:
            run.process.send_signal(signal.SIGINT)
        assert run.finish() == 130
        run.assert_restored()


def test_a_second_signal_ends_an_output_that_nobody_reads_row5() -> None:
    reading, writing = os.pipe()
    try:
        run = TerminalRun(*LONG, "--json", "--rounds", "1000", stdout=writing, FAKE_ROUND_S="0.01")
        os.close(writing)
        run.wait_for(b" 1% ETA")
        run.process.send_signal(signal.SIGINT)
        time.sleep(1.0)
        assert run.process.poll() is None, "the document is longer than the pipe, so it is still being written"
        run.process.send_signal(signal.SIGINT)
        assert run.finish() == 130
        run.assert_restored()
    finally:
        os.close(reading)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="asks /proc whether the process is stopped")
@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("live", [True, False])
def test_suspended_and_continued_row6(live: bool, delay: float) -> None:
    run = TerminalRun(*LONG, *(["--live"] if live else []), rows=24, columns=100, own_group=True, FAKE_ROUND_S="0.1")
    run.wait_for(b"% ETA")
    time.sleep(delay)
    run.process.send_signal(signal.SIGTSTP)
    wait_until(lambda: run.state() == "T")
    time.sleep(0.1)
    run.assert_restored()
    mark = len(run.output)
    run.process.send_signal(signal.SIGCONT)
    wait_until(lambda: b"ETA" in run.output[mark:])
    assert HIDE in run.output[mark:]
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    run.assert_restored()


def test_a_terminal_that_is_closed_does_not_hang_the_run() -> None:
    run = TerminalRun(*LONG, "--live", FAKE_ROUND_S="0.05", stdout=subprocess.DEVNULL)
    run.wait_for(b"% ETA")
    os.close(run.master)
    time.sleep(0.5)
    assert run.process.poll() is None, "only the display is gone"
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(30) == 143


def wait_until(condition: Any, timeout: float = 20.0) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)
