"""The command without a terminal: exit codes, streams, files, and refusals before anything runs."""

from __future__ import annotations

import csv
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FAKE, command, environment
from terminal import COLOUR_IN_A_PIPE
from ticketlock.cli.output import use_colour

QUICK = ("--threads", "1,2", "--locks", "auto,std", "--rounds", "2")


def test_json_is_all_that_stdout_gets() -> None:
    done = command("bench", *QUICK, "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["schema"] == "ticketlock.bench/1"
    assert document["command"] == "ticketlock bench --threads 1,2 --locks auto,std --rounds 2 --json"
    assert len(document["cells"]) == 4
    assert done.stderr == b""


def test_csv() -> None:
    done = command("bench", *QUICK, "--csv")
    assert [row["lock"] for row in csv.DictReader(done.stdout.decode().splitlines())] == ["auto", "std"] * 2


def test_info() -> None:
    done = command("info", "--json")
    assert json.loads(done.stdout)["hypervisor"]["vendor"] == "KVM"
    done = command("info")
    assert b"guest of KVM" in done.stdout
    assert b"delay cap 16 units" in done.stdout


def test_list_names_presets_and_locks() -> None:
    done = command("bench", "list")
    assert done.returncode == 0
    for word in (b"uncontended", b"semaphore", b"fairness", b"phantom", b"proportional:N", b"parking_lot-fair"):
        assert word in done.stdout


@pytest.mark.parametrize("preset", ["uncontended", "semaphore", "fairness", "phantom", "oversubscribed"])
def test_every_preset_prints_machine_table_and_noise(preset: str) -> None:
    done = command("bench", preset, "--rounds", "2")
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    for word in ("guest of KVM", "delay cap 16", "pause 9.6 ns", "2 usable", "seed ", "noise "):
        assert word in text
    assert ("longest run" in text) == (preset in ("semaphore", "fairness", "oversubscribed"))


def test_throughput_never_stands_without_runs_and_tails() -> None:
    for columns in ("30", "60", "200"):
        done = command("bench", *QUICK, COLUMNS=columns)
        heading = next(line for line in done.stdout.decode().splitlines() if "M op/s" in line)
        assert "longest run" in heading
        assert "wait p99" in heading
        assert "max" in heading


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--threads", "0"], ["--threads", "'0'", "1 to 1024"]),
        (["--locks", "nosuch"], ["--locks", "'nosuch'", "parking_lot"]),
        (["--hold", "-5"], ["--hold", "'-5'", "1.5us"]),
        (["--hold", "-5us"], ["--hold", "'-5us'", "1.5us"]),
        (["--think=x"], ["--think", "'x'"]),
        (["--seconds", "nan"], ["--seconds", "'nan'", "0.5"]),
        (["--rounds", "0"], ["--rounds", "'0'", "1 to 1000"]),
        (["--seed", "x"], ["--seed", "'x'"]),
        (["--pin", "left"], ["--pin", "'left'", "spread"]),
        (["--cap", "0"], ["--cap", "'0'", "native"]),
        (["--lock-count", "0"], ["--lock-count", "'0'"]),
        (["-o", "/nosuch-folder/x.json"], ["-o", "/nosuch-folder/x.json", "writable folder"]),
        (["-o", "/"], ["-o", "'/'", "folder"]),
        (["nosuch"], ["nosuch", "uncontended"]),
        (["--nosuch"], ["--nosuch"]),
        (["--json", "--csv"], ["--csv", "--json"]),
        (["uncontended", "--hold", "5"], ["--hold", "'5'", "semaphore"]),
        (["--threads"], ["--threads", "expected one argument"]),
    ],
)
def test_wrong_usage_exits_2_with_a_sentence_before_any_round(arguments: list[str], words: list[str]) -> None:
    # A round would take longer than the test may.
    done = command("bench", *arguments, FAKE_ROUND_S="1000")
    assert done.returncode == 2
    assert done.stdout == b""
    message = done.stderr.decode()
    assert message.startswith("ticketlock bench: ")
    assert all(word in message for word in words), message
    assert "Traceback" not in message


def test_no_command_and_unknown_commands() -> None:
    assert command().returncode == 2
    done = command("compare")
    assert done.returncode == 2
    assert b"info" in done.stderr, "only what works is offered"


def test_help_and_version() -> None:
    for arguments in (["--help"], ["bench", "--help"], ["info", "--help"]):
        done = command(*arguments)
        assert done.returncode == 0
        assert b"examples:" in done.stdout
    assert command("--version").stdout.startswith(b"ticketlock ")
    text = command("bench", "--help").stdout.decode()
    for word in ("locks", "threads", "hold", "think", "seconds", "rounds", "seed", "pin", "live", "json", "csv", "no-progress"):
        assert f"--{word}" in text
    assert "plot" not in text, "only what works is offered"


@pytest.mark.parametrize("unbuffered", [None, "1"])
@pytest.mark.parametrize(
    "arguments", [["bench", *QUICK], ["bench", *QUICK, "--json"], ["info"], ["bench", "--help"], ["bench", "list"]]
)
def test_a_reader_that_is_gone_ends_with_141_and_silence_row10(arguments: list[str], unbuffered: str | None) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*FAKE, *arguments], env=environment(PYTHONUNBUFFERED=unbuffered), stdout=writing, stderr=subprocess.PIPE, timeout=50
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("unbuffered", [None, "1"])
def test_a_reader_that_leaves_after_one_byte_row10(unbuffered: str | None) -> None:
    process = subprocess.Popen(
        [*FAKE, "bench", *QUICK],
        env=environment(PYTHONUNBUFFERED=unbuffered, FAKE_ROUND_S="0.1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) == 141


def test_a_full_device_is_an_error_not_a_traceback_row16() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w") as full:
        done = subprocess.run([*FAKE, "info"], env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=50)
    assert done.returncode == 1
    assert done.stderr.startswith(b"ticketlock: output failed: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_from_the_start(closed: str) -> None:
    script = f'"$@" {closed}'
    done = subprocess.run(["sh", "-c", script, "sh", *FAKE, "bench", *QUICK], env=environment(), capture_output=True, timeout=50)
    assert done.returncode == 0
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "name", "kind"),
    [
        (["--json"], "x", "json"),
        ([], "x", "json"),
        ([], "x.csv", "csv"),
        (["--csv"], "x.json", "csv"),
        (["--json"], "x.csv", "json"),
    ],
)
def test_output_file(tmp_path: Path, arguments: list[str], name: str, kind: str) -> None:
    target = tmp_path / name
    target.write_text("old")
    target.chmod(0o640)
    done = command("bench", *QUICK, *arguments, "-o", str(target))
    assert done.returncode == 0
    text = target.read_text()
    if kind == "json":
        assert json.loads(text)["partial"] is False
    else:
        assert text.startswith("preset,driver,lock")
    if arguments:
        assert done.stdout.decode() == text
    else:
        assert b"M op/s" in done.stdout
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [target], "nothing else is left behind"


def test_output_file_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "there" / "real.json")
    assert command("bench", *QUICK, "-o", str(link)).returncode == 0
    assert link.is_symlink()
    assert json.loads((tmp_path / "there" / "real.json").read_text())["cells"]


def test_a_device_as_output_file_is_written_to_not_replaced() -> None:
    assert command("bench", *QUICK, "-o", os.devnull).returncode == 0
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_folder_that_vanished_costs_the_file_not_the_results_row16(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    process = subprocess.Popen(
        [*FAKE, "bench", *QUICK, "-o", str(folder / "x.json")],
        env=environment(FAKE_ROUND_S="0.1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout is not None
    head = process.stdout.read(10)
    folder.rmdir()
    out, err = process.communicate(timeout=40)
    assert process.returncode == 1
    assert b"M op/s" in head + out
    assert b"could not be written" in err
    assert b"Traceback" not in err


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_keeps_what_is_finished_and_marks_it_partial_row16(tmp_path: Path, name: str, code: int) -> None:
    # Round 6 lies in the second pass over the four cells.
    target = tmp_path / "x.json"
    done = command("bench", *QUICK, "--json", "-o", str(target), FAKE_SIGNAL_AT=f"6:{name}", FAKE_ROUND_S="0.05")
    assert done.returncode == code
    assert done.stderr == b""
    document = json.loads(done.stdout)
    assert document["partial"] is True
    assert {cell["status"] for cell in document["cells"]} == {"partial"}
    assert sum(value is not None for cell in document["cells"] for value in cell["throughput_per_s"]["runs"]) == 4
    assert json.loads(target.read_text()) == document


def test_a_signal_leaves_a_table_that_says_so_row16() -> None:
    done = command("bench", *QUICK, FAKE_SIGNAL_AT="6:SIGINT", FAKE_ROUND_S="0.05")
    assert done.returncode == 130
    text = done.stdout.decode()
    assert "stopped early: partial results" in text
    assert "M op/s" in text


def test_an_ignored_interrupt_stays_ignored() -> None:
    script = "trap '' INT; exec \"$@\""
    done = subprocess.run(
        ["sh", "-c", script, "sh", *FAKE, "bench", *QUICK, "--json"],
        env=environment(FAKE_SIGNAL_AT="3:SIGINT"),
        capture_output=True,
        timeout=50,
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["partial"] is False


def test_an_invalid_cell_is_named_with_its_reason() -> None:
    done = command("bench", *QUICK, FAKE_INVALID="std")
    assert done.returncode == 0
    text = done.stdout.decode()
    assert "invalid with 2 threads: std: 0 of 2 rounds valid: the script says so (and " in text
    assert [line.split()[:2] for line in text.splitlines() if line.startswith("std")] == [["std", "!"]] * 2


def test_live_without_a_terminal_says_so_and_goes_on_row4() -> None:
    done = command("bench", *QUICK, "--live", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)
    assert done.stderr == b"ticketlock bench: --live needs a terminal on stderr; going on without the display\n"


def test_piped_output_has_no_escapes_and_ends_in_a_newline_row4() -> None:
    for arguments in (["bench", *QUICK], ["info"], ["bench", "list"]):
        done = command(*arguments)
        assert b"\x1b" not in done.stdout
        assert b"\r" not in done.stdout
        assert done.stdout.endswith(b"\n")
        assert done.stderr == b""


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_streams_that_cannot_carry_our_glyphs_get_ascii_row1(encoding: str) -> None:
    for preset in ("semaphore", "fairness"):
        done = command("bench", preset, "--rounds", "1", PYTHONUTF8="0", PYTHONIOENCODING=encoding)
        assert done.returncode == 0, done.stderr
        done.stdout.decode("ascii")
        assert b"Traceback" not in done.stderr


def test_ascii_by_option_and_by_locale_row1() -> None:
    command("bench", "--rounds", "1", "--ascii").stdout.decode("ascii")
    done = command("bench", "--rounds", "1", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", LC_ALL="C", PYTHONIOENCODING="ascii:strict")
    assert done.returncode == 0
    done.stdout.decode("ascii")
    assert "⣀" in command("bench", "--rounds", "1").stdout.decode() or "⠉" in command("bench", "--rounds", "1").stdout.decode()


@pytest.mark.parametrize("tty", [True, False])
@pytest.mark.parametrize("term", ["xterm-256color", "dumb", None])
@pytest.mark.parametrize("force_color", [None, "", "1"])
@pytest.mark.parametrize("no_color", [None, "", "1"])
@pytest.mark.parametrize("option", ["auto", "always", "never"])
def test_colour_matrix_row11(option: str, no_color: str | None, force_color: str | None, term: str | None, tty: bool) -> None:
    given = {"NO_COLOR": no_color, "FORCE_COLOR": force_color, "TERM": term}
    environ = {name: value for name, value in given.items() if value is not None}
    if option != "auto":
        expected = option == "always"
    elif no_color:
        expected = False
    elif force_color:
        expected = True
    else:
        expected = tty and term != "dumb"
    assert use_colour(option, tty, environ) == expected


@pytest.mark.parametrize(
    ("option", "no_color", "force_color", "expected"),
    COLOUR_IN_A_PIPE,
)
def test_colour_in_a_pipe_row11(option: str, no_color: str | None, force_color: str | None, expected: bool) -> None:
    done = command("info", "--color", option, NO_COLOR=no_color, FORCE_COLOR=force_color)
    assert (b"\x1b[" in done.stdout) == expected


def test_forced_colour_does_not_switch_on_a_display_row11() -> None:
    done = command("bench", *QUICK, "--live", FORCE_COLOR="1")
    assert b"\x1b[?" not in done.stdout + done.stderr
    assert b"going on without the display" in done.stderr


def test_json_is_never_coloured_row11() -> None:
    done = command("bench", *QUICK, "--json", "--color", "always")
    assert b"\x1b" not in done.stdout


def test_importing_ticketlock_loads_neither_rich_nor_argparse() -> None:
    probe = (
        "import sys; before = set(sys.modules); import ticketlock; new = set(sys.modules) - before; "
        "assert not [m for m in new if m.split('.')[0] in ('rich', 'argparse', 'dataclasses')], new; "
        "assert {m for m in new if m.startswith('ticketlock')} <= {'ticketlock', 'ticketlock._core'}, new"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr


def test_the_command_without_a_display_does_not_load_rich() -> None:
    script = (
        Path(FAKE[1]).read_text().replace("sys.exit(main())", "code = main(); assert 'rich' not in sys.modules; sys.exit(code)")
    )
    done = subprocess.run([sys.executable, "-c", script, "bench", *QUICK], env=environment(), capture_output=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, b"")
