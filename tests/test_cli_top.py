"""`ticketlock top`, `ps` and `dump` without a live screen: formats, thresholds, refusals, streams."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import monitor_fakes as fakes
import pytest
from conftest import environment
from referencing import Registry, Resource
from targets import BUSY, DEADLOCK, WAIT, Target, ran
from terminal import COLOUR_IN_A_PIPE, TerminalRun
from ticketlock.cli import glyphs, main, once, text, top
from ticketlock.monitor import conditions, document, find
from ticketlock.monitor.build import build
from ticketlock.monitor.columns import COLUMNS, SORTS, lock_name, matcher, select
from ticketlock.monitor.errors import NotFoundError
from ticketlock.monitor.options import ViewOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from ticketlock.monitor.model import Snapshot
    from ticketlock.monitor.raw import Raw

REAL = [sys.executable, "-m", "ticketlock"]

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other processes are read on Linux")


def snapshots(make: Callable[[int], Raw] = fakes.few, ticks: int = 3) -> list[Snapshot]:
    raws = [make(tick) for tick in range(1, ticks + 2)]
    return [build(later, earlier) for earlier, later in itertools.pairwise(raws)]


@pytest.fixture
def recording(tmp_path: Path) -> Callable[..., str]:
    """A file with made-up snapshots."""

    def make(of: Callable[[int], Raw] = fakes.few, ticks: int = 3) -> str:
        path = tmp_path / f"{of.__name__}.jsonl"
        path.write_text("".join(document.dumps(one) for one in snapshots(of, ticks)), encoding="ascii")
        return str(path)

    return make


def shown(snapshot: Snapshot, width: int = 160, drawn: glyphs.Glyphs = glyphs.UNICODE, **options: Any) -> str:
    return text.to_text(once.lines(snapshot, ViewOptions(**options), "server.py", None, width, drawn), colour=False)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """What the command returns and prints, without the time that a process takes."""
    code = main(list(arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


# What is printed.


def test_a_table_with_the_hot_lock_first(recording: Any) -> None:
    done = ran("top", "--replay", recording())
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("few.jsonl · pid 4242 · Python 3.14.0")
    heading = next(index for index, line in enumerate(lines) if "wait%" in line)
    first = lines[heading + 2]
    made = snapshots()[-1].locks[0]
    assert lock_name(made) in first
    assert re.match(r" *\d+\.\d ", first)


def test_json_is_one_document_over_all_readings(recording: Any) -> None:
    done = ran("top", "--replay", recording(), "--json")
    found = document.from_json(json.loads(done.stdout))
    assert found.interval_ns == 3 * fakes.TICK_NS
    assert done.stdout.count("\n") == 1
    done = ran("top", "--replay", recording(), "--json", "-n", "2")
    assert document.from_json(json.loads(done.stdout)).interval_ns == 2 * fakes.TICK_NS


def test_jsonl_is_a_document_a_reading(recording: Any) -> None:
    path = recording()
    assert ran("top", "--replay", path, "--jsonl").stdout == Path(path).read_text()
    assert ran("top", "--replay", path, "--jsonl", "-n", "1").stdout == Path(path).read_text().splitlines(keepends=True)[0]


def test_csv_and_prometheus(recording: Any) -> None:
    rows = list(csv.DictReader(ran("top", "--replay", recording(), "--csv").stdout.splitlines()))
    assert len(rows) == len(snapshots()[-1].locks)
    assert rows[0]["interval_ns"] == str(3 * fakes.TICK_NS)
    assert "# TYPE " in ran("top", "--replay", recording(), "--prometheus").stdout


@pytest.mark.parametrize(("kind", "start"), [("pprof", b"\x1f\x8b"), ("speedscope", b"{"), ("csv", b"at_ns,")])
def test_an_export_is_a_whole_file(recording: Any, tmp_path: Path, kind: str, start: bytes) -> None:
    target = tmp_path / "x.out"
    done = ran("top", "--replay", recording(), "--export", f"{kind}={target}", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert target.read_bytes().startswith(start)
    assert json.loads(done.stdout)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few.jsonl", "x.out"]


def test_recording_is_what_jsonl_prints(recording: Any, tmp_path: Path) -> None:
    target = tmp_path / "again.jsonl"
    done = ran("top", "--replay", recording(), "--jsonl", "--record", str(target))
    assert done.returncode == 0
    assert target.read_text() == done.stdout


def test_row_20_a_recording_on_standard_input(recording: Any) -> None:
    path = recording()
    with open(path) as file:
        assert ran("top", "--replay", "-", "--jsonl", stdin=file).stdout == Path(path).read_text()


def test_an_empty_recording_is_no_snapshot(tmp_path: Path) -> None:
    (tmp_path / "none").touch()
    for option in ("--once", "--jsonl"):
        done = ran("top", "--replay", str(tmp_path / "none"), option)
        assert (done.returncode, done.stdout) == (5, "")
        assert "none holds no snapshot" in done.stderr


def test_an_incomplete_recording_is_shown_and_said(recording: Any) -> None:
    path = Path(recording())
    path.write_bytes(path.read_bytes()[:-20])
    done = ran("top", "--replay", str(path))
    assert done.returncode == 0
    assert "! end of recording (its last line is incomplete)" in done.stdout


@linux
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_row_16_a_recording_that_fails_is_said_and_the_table_is_printed(recording: Any) -> None:
    done = ran("top", "--replay", recording(), "--record", "/dev/full")
    assert done.returncode == 1
    assert "wait%" in done.stdout
    assert done.stderr.startswith("ticketlock top: recording to '/dev/full' stopped after 0 snapshots: ")
    assert done.stderr.count("\n") == 1


# The text, as a function of a snapshot.


def test_cycles_ended_owners_and_drops_are_stated_above_the_table() -> None:
    lines = shown(build(fakes.deadlock(4), None)).splitlines()
    heading = next(index for index, line in enumerate(lines) if "wait%" in line)
    assert any(line.startswith("! cycle: ") for line in lines[:heading])
    assert " waits for " in shown(build(fakes.deadlock(4), None))
    raw = fakes.abandoned(4)
    assert "is held by a thread that has ended" in shown(build(raw, None, alive=lambda native_id: False))
    dropped: Any = {**raw["dropped"], "locks": 3}
    assert "! dropped for want of room: 3 locks" in shown(build({**raw, "dropped": dropped}, None))


def test_row_14_what_is_not_known_is_a_dash_and_null() -> None:
    raw = fakes.reading(1, locks=[fakes.lock(1, "fresh"), fakes.lock(2, "embedded", counted=fakes.counters(acquisitions=None))])
    snapshot = build(raw, None)
    row = next(line for line in shown(snapshot).splitlines() if "fresh" in line)
    assert row.split()[-3:] == ["-", "-", "-"], "no quantiles without waits"
    assert "nan" not in shown(snapshot).lower()
    locks = document.to_json(snapshot)["locks"]
    assert [lock["wait_ns"]["p99"] for lock in locks] == [None, None]
    assert {lock["name"]: lock["acquisitions"] for lock in locks} == {"fresh": 0, "embedded": None}


def test_row_13_hostile_names_cannot_write_to_the_terminal(recording: Any) -> None:
    for arguments in ([], ["--sort", "name"], ["--columns", "lock,site,kind,owner"]):
        done = ran("top", "--replay", recording(fakes.hostile), *arguments)
        assert done.returncode == 0, done.stderr
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", done.stdout)
    done = ran("top", "--replay", recording(fakes.hostile), "--fail-if", "wait%>=0")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stderr)


def test_row_12_of_many_locks_the_hottest_are_printed_and_the_others_counted() -> None:
    snapshot = build(fakes.many(500), None)
    lines = shown(snapshot).splitlines()
    assert len(lines) < 70
    assert f"and {len(snapshot.locks) - once.MOST_ROWS} more" in "\n".join(lines)
    begun = time.perf_counter()
    shown(snapshot)
    assert time.perf_counter() - begun < 0.5


@pytest.mark.parametrize("width", [1, 20, 60, 100, 300])
def test_columns_go_by_their_rank(width: int) -> None:
    drawn = shown(snapshots()[0], width)
    heading = next(line for line in drawn.splitlines() if "wait%" in line)
    assert "lock" in heading
    assert ("max" in heading) == (width >= 100)


@pytest.mark.parametrize("sort", SORTS)
def test_every_order(sort: str) -> None:
    snapshot = build(fakes.many(40), None)
    found = select(snapshot, ViewOptions(sort=sort, internal=True))
    assert sorted(map(id, found)) == sorted(map(id, snapshot.locks))
    keys = [SORTS[sort](lock) for lock in found]
    assert keys == sorted(keys, reverse=sort != "name")


def test_every_column_has_a_text_for_every_lock() -> None:
    for raw in (fakes.few(), fakes.hostile(), fakes.abandoned(), fakes.many(30)):
        for lock in build(raw, None).locks:
            for column in COLUMNS.values():
                assert column.cell(lock, 10**9).isprintable()
                assert column.cell(lock, 0)


def test_filters() -> None:
    snapshot = build(fakes.few(3), None)
    name = next(lock.name for lock in snapshot.locks if lock.name)
    for wanted in (name, name.upper(), f"re:^{re.escape(name)}$"):
        assert name in {lock.name for lock in filter(matcher(wanted), snapshot.locks)}
    assert not list(filter(matcher("nothing has this name"), snapshot.locks))
    assert len(list(filter(matcher(""), snapshot.locks))) == len(snapshot.locks)
    for broken in ("re:(", "re:[", "re:*"):
        with pytest.raises(ValueError, match="not a regular expression"):
            matcher(broken)


# Thresholds.


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("wait%>0", "wait% of "),
        ("wait% >= 0.001", "wait% of "),
        ("p99>1ns", "p99 of "),
        ("max>0.001us", "max of "),
        ("contended>=1", "contended of "),
        ("queue>=0", "queue of "),
        ("cycles==0", "cycles is 0"),
        ("dropped<1", "dropped is 0"),
        ("total%>0%", "total% is "),
    ],
)
def test_a_condition_that_holds_exits_with_6_and_says_where(recording: Any, capsys: Any, condition: str, words: str) -> None:
    code, printed, errors = said(capsys, "top", "--replay", recording(), "--fail-if", condition)
    assert code == 6
    assert "wait%" in printed
    assert errors.startswith(f"ticketlock top: --fail-if {condition}: {words}")


def test_conditions_that_do_not_hold(recording: Any) -> None:
    arguments = [part for text in ("cycles>0", "p99>100s", "wait%>100000", "abandoned>0") for part in ("--fail-if", text)]
    done = ran("top", "--replay", recording(), *arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_conditions_look_at_what_is_shown_only(recording: Any) -> None:
    done = ran("top", "--replay", recording(), "--fail-if", "wait%>=0", "--filter", "nothing has this name")
    assert done.returncode == 0
    assert "no lock passes the filter" in done.stdout


def test_with_jsonl_every_line_is_looked_at(recording: Any) -> None:
    done = ran("top", "--replay", recording(), "--jsonl", "--fail-if", "wait%>0")
    assert done.returncode == 6
    assert done.stdout.count("\n") == 3
    assert done.stderr.count("\n") == 1


def test_what_has_no_value_meets_no_condition() -> None:
    snapshot = build(fakes.reading(1, locks=[fakes.lock(1, "fresh")]), None)
    for condition in ("p99<1s", "p99>0ns", "p99!=5ns", "cont%<100"):
        assert conditions.parse(condition).found_in(snapshot, snapshot.locks) is None


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("", "no comparison"),
        ("wait%", "no comparison"),
        ("wait%>", "no comparison"),
        (">5", "no comparison"),
        ("wait%=5", "no comparison"),
        ("wait%>-5", "no comparison"),
        ("wait%>1e5", "no comparison"),
        ("wait%>20;rm", "no comparison"),
        ("wait>20", "did you mean wait%?"),
        ("nosuch>1", "nosuch is not known"),
        ("p99>5", "needs a unit"),
        ("p99>5%", "needs a unit"),
        ("wait%>5ms", "wait% is no time"),
        ("queue>5%", "queue is no share"),
        ("9" * 10_000, "no comparison"),
    ],
)
def test_a_condition_that_is_none_says_why(capsys: Any, condition: str, why: str) -> None:
    code, printed, errors = said(capsys, "top", "1", "--fail-if", condition)
    assert (code, printed) == (2, "")
    assert errors.startswith("ticketlock top: --fail-if: ")
    assert why in errors
    assert "'wait%>20'" in errors


# Refusals.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x"], ["PID", "'x'", "ticketlock ps"]),
        (["0"], ["PID", "'0'"]),
        (["-5"], ["-5"]),
        (["99999999999999999999"], ["PID"]),
        (["1", "--sort", "size"], ["--sort", "'size'", "p99"]),
        (["1", "--columns", "lock,colour"], ["--columns", "'colour'", "p99"]),
        (["1", "--columns", ""], ["--columns", "''"]),
        (["1", "--filter", "re:("], ["--filter", "'re:('", "regular expression"]),
        (["1", "--interval", "0"], ["--interval", "'0'", "500ms"]),
        (["1", "--interval", "-1"], ["--interval", "'-1'"]),
        (["1", "--interval", "nan"], ["--interval", "'nan'"]),
        (["1", "-n", "0"], ["-n/--count", "'0'"]),
        (["1", "-n", "x"], ["-n/--count", "'x'"]),
        (["1", "--export", "pprof"], ["--export", "'pprof'", "KIND=FILE", "speedscope"]),
        (["1", "--export", "nosuch=x"], ["--export", "'nosuch=x'"]),
        (["1", "--export", "csv=/nosuch-folder/x"], ["--export", "/nosuch-folder/x", "writable folder"]),
        (["1", "--json", "--csv"], ["--csv", "--json"]),
        (["--replay", "/nosuch"], ["--replay", "'/nosuch'"]),
        (["1", "--replay", "x"], ["--replay", "PID"]),
        (["--tree", "--replay", "x"], ["--replay", "--tree"]),
        (["--nosuch"], ["--nosuch"]),
    ],
)
def test_wrong_usage_exits_2_and_names_option_value_and_what_is_accepted(
    capsys: Any, arguments: list[str], words: list[str]
) -> None:
    code, printed, errors = said(capsys, "top", *arguments)
    assert (code, printed) == (2, "")
    assert errors.startswith("ticketlock top: ")
    assert all(word in errors for word in words), errors
    assert errors.endswith("Try 'ticketlock top --help'.\n")


def test_what_is_shown_is_never_recorded_over(recording: Any) -> None:
    path = recording()
    before = Path(path).read_bytes()
    done = ran("top", "--replay", path, "--record", path)
    assert done.returncode == 2
    assert "is the recording that is shown" in done.stderr
    assert Path(path).read_bytes() == before


def test_a_file_that_is_no_recording_is_never_recorded_over(recording: Any, tmp_path: Path) -> None:
    script = tmp_path / "precious.py"
    script.write_text("1")
    done = ran("top", "--replay", recording(), "--record", str(script))
    assert done.returncode == 2
    assert "--record" in done.stderr
    assert script.read_text() == "1"


def test_names_of_files_in_messages_cannot_write_to_the_terminal() -> None:
    done = ran("top", "--replay", "/nosuch\x1b]0;x\x07\n")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert done.stderr.count("\n") == 2


@pytest.mark.parametrize(("command", "arguments"), [("dump", ["x"]), ("dump", []), ("ps", ["1"])])
def test_usage_errors_name_their_command(command: str, arguments: list[str]) -> None:
    done = ran(command, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ticketlock {command}: ")


def test_without_a_command_all_are_named() -> None:
    done = ran()
    assert done.returncode == 2
    told = ran("--help").stdout
    for name in ("info", "bench", "top", "ps", "dump"):
        assert name in done.stderr
        assert f"\n    {name} " in told
    for name in ("top", "ps", "dump"):
        told = ran(name, "--help").stdout
        assert "examples:" in told
        assert "3 no such process" in told


# Without PID.


def candidates(*pids: int) -> find.Found:
    process = fakes.process()
    made = tuple(find.Instrumented(pid, ("python3", f"s\x1b{pid}.py"), process, 1, 0, 10**9) for pid in pids)
    return find.Found(made, 3, ())


def test_without_a_pid_the_only_process_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    out: Any = None
    monkeypatch.setattr(find, "instrumented", lambda: candidates(41))
    assert top._only(out, live=False) == 41
    monkeypatch.setattr(find, "instrumented", lambda: candidates(41, 42))
    with pytest.raises(NotFoundError, match=r"2 processes report: 41 \(s\?41.py\), 42 \(s\?42.py\); give the PID of one"):
        top._only(out, live=False)
    monkeypatch.setattr(find, "instrumented", lambda: candidates(*range(1, 30)))
    with pytest.raises(NotFoundError, match="and 19 more"):
        top._only(out, live=False)
    monkeypatch.setattr(find, "instrumented", candidates)
    with pytest.raises(NotFoundError, match=r"no running process reports among those that you may look into \(3 you may not\)"):
        top._only(out, live=False)


# Real processes.


def segments(pid: int) -> set[int]:
    """What a process has open of this kind, by inode."""
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if "memfd:ticketlock" in os.readlink(path):
                found.add(path.stat().st_ino)
    return found


def wait_until_watching(viewer: subprocess.Popen[Any], target: Target) -> None:
    """Until it has opened what the target reports, and a little longer."""
    wanted = segments(target.pid)
    for _ in range(1000):
        if wanted & segments(viewer.pid):
            break
        time.sleep(0.02)
    time.sleep(0.5)


@linux
def test_row_7_pid_gone_is_said_once() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    for command in ("top", "dump"):
        done = ran(command, str(child.pid))
        assert (done.returncode, done.stdout) == (3, "")
        assert (
            done.stderr
            == f"ticketlock {command}: there is no process {child.pid}; 'ticketlock ps' lists those that can be watched\n"
        )


@linux
def test_row_7_a_process_that_ends_in_the_interval_is_still_reported() -> None:
    with Target(BUSY) as target:
        viewer = subprocess.Popen(
            [*REAL, "top", str(target.pid), "--interval", "30"],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until_watching(viewer, target)
        target.end(3)
        printed, errors = viewer.communicate(timeout=20)
    assert (viewer.returncode, errors) == (0, "")
    assert re.search(r"! exited( \(3\))?: these are its last figures", printed)
    assert "<string>:4" in printed


@linux
def test_row_8_the_four_refusals_differ() -> None:
    with Target(WAIT) as plain:
        silent = ran("top", str(plain.pid))
    assert silent.returncode == 3
    assert "does not use ticketlock" in silent.stderr
    with Target("import ticketlock\n" + WAIT, TICKETLOCK_TELEMETRY="0") as off:
        silent = ran("top", str(off.pid))
    assert silent.returncode == 3
    assert "no process" not in silent.stderr


@linux
@pytest.mark.parametrize("options", [["--once"], ["--json"], ["--jsonl", "-n", "1"], ["--csv"], ["--prometheus"]])
def test_every_format_names_the_hot_lock_of_a_real_process(options: list[str]) -> None:
    with Target(BUSY) as target:
        done = ran("top", str(target.pid), "--interval", "0.3", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert "<string>:4" in done.stdout


@linux
def test_a_trace_of_a_real_process(tmp_path: Path) -> None:
    with Target(BUSY) as target:
        done = ran("top", str(target.pid), "--interval", "0.3", "--export", f"chrome={tmp_path / 'x.json'}")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "x.json").read_text())
    done = ran("top", "--replay", "/dev/null", "--export", f"chrome={tmp_path / 'x.json'}")
    assert done.returncode == 2
    assert "a recording has no single waits" in done.stderr


@linux
def test_a_deadlock_is_shown_with_exit_code_6() -> None:
    with Target(DEADLOCK) as target:
        done = ran("dump", str(target.pid), "--no-stacks")
        assert done.returncode == 6, done.stderr
        assert re.search(r"! cycle: (left|right) waits for .* holds; (left|right) waits for ", done.stdout)
        assert re.search(r"held by left \(\d+\)\n  right \(\d+\) waits for \d", done.stdout)
        assert "stacks are not available: not asked for" in done.stdout
        found = json.loads(ran("dump", str(target.pid), "--json", "--no-stacks").stdout)
        assert found["schema"] == "ticketlock.dump/1"
        assert len(found["cycles"]) == 1
        assert len(found["locks"]) == 2
        for lock in found["locks"]:
            assert {lock["owner"]["name"], lock["waiting"][0]["name"]} == {"left", "right"}
            assert lock["waiting"][0]["waiting_ns"] > 10**8
            assert lock["site"] == "<string>:4"
        done = ran("top", str(target.pid), "--interval", "0.1", "--fail-if", "cycles>0")
        assert done.returncode == 6
        assert "! cycle: " in done.stdout


@linux
def test_a_dump_of_a_process_at_rest() -> None:
    with Target("import ticketlock\nlock = ticketlock.Lock(); lock.acquire(); lock.release()\n" + WAIT) as target:
        done = ran("dump", str(target.pid))
    assert done.returncode == 0
    assert "no lock that is known is held or waited for" in done.stdout
    assert "stack" in done.stdout


@linux
def test_stacks_come_from_the_process_where_it_can_be_asked() -> None:
    if not hasattr(sys, "remote_exec"):
        pytest.skip("programs can be asked from Python 3.14 on")
    source = """\
import threading, time, ticketlock
lock = ticketlock.Lock()
def holding():
    with lock:
        time.sleep(60)
def waiting():
    with lock:
        pass
for target in (holding, waiting):
    threading.Thread(target=target, daemon=True).start()
    time.sleep(0.2)
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""
    with Target(source) as target:
        done = ran("dump", str(target.pid))
        if "does not let us" in done.stdout:
            pytest.skip("this system does not let processes be asked")
        assert "line 7, in waiting" in done.stdout
        assert "line 5, in holding" in done.stdout
        assert 'File "<string>", line 14, in <module>' in done.stdout
        assert done.stdout.count("in <module>") == 1, "nothing of ours is among them"
        found = json.loads(ran("dump", str(target.pid), "--json").stdout)
        assert found["stacks"]["why_not"] is None
        assert len(found["stacks"]["threads"]) >= 3


@linux
def test_documents_obey_their_schemas() -> None:
    from test_schemas import schema

    names = ("snapshot-1", "dump-1", "ps-1")
    registry = Registry().with_resources((schema(name)["$id"], Resource.from_contents(schema(name))) for name in names)
    for source in (DEADLOCK, BUSY):
        with Target(source) as target:
            documents = {
                "snapshot-1": ran("top", str(target.pid), "--interval", "0.1", "--json"),
                "dump-1": ran("dump", str(target.pid), "--json"),
                "ps-1": ran("ps", "--json"),
            }
        for name, done in documents.items():
            jsonschema.Draft202012Validator.check_schema(schema(name))
            jsonschema.Draft202012Validator(schema(name), registry=registry).validate(json.loads(done.stdout))


# Streams.


@pytest.mark.parametrize("unbuffered", [None, "1"])
@pytest.mark.parametrize("options", [[], ["--jsonl"], ["--prometheus"]])
def test_row_10_a_reader_that_is_gone_ends_with_141_and_silence(
    recording: Any, unbuffered: str | None, options: list[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*REAL, "top", "--replay", recording(), *options],
            env=environment(PYTHONUNBUFFERED=unbuffered),
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=50,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@linux
@pytest.mark.parametrize("unbuffered", [None, "1"])
def test_row_10_head_ends_an_endless_output(unbuffered: str | None) -> None:
    with Target(BUSY) as target:
        viewer = subprocess.Popen(
            [*REAL, "top", str(target.pid), "--jsonl", "--interval", "0.1"],
            env=environment(PYTHONUNBUFFERED=unbuffered),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert viewer.stdout is not None
        assert viewer.stderr is not None
        json.loads(viewer.stdout.readline())
        viewer.stdout.close()
        errors = viewer.stderr.read()
        viewer.stderr.close()
        assert (viewer.wait(20), errors) == (141, b"")


@linux
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_ends_the_interval_and_prints_what_was_measured(name: str, code: int) -> None:
    with Target(BUSY) as target:
        viewer = subprocess.Popen(
            [*REAL, "top", str(target.pid), "--interval", "40"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        wait_until_watching(viewer, target)
        viewer.send_signal(getattr(signal, name))
        printed, errors = viewer.communicate(timeout=20)
    assert (viewer.returncode, errors) == (code, b"")
    assert b"<string>:4" in printed


def test_one_interrupt_ends_the_wait_for_a_recording_that_does_not_come() -> None:
    viewer = subprocess.Popen(
        [*REAL, "top", "--replay", "-", "--jsonl"],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert viewer.stdin is not None
    assert viewer.stdout is not None
    viewer.stdin.write(document.dumps(snapshots()[0]).encode())
    viewer.stdin.flush()
    assert viewer.stdout.readline()
    time.sleep(0.3)
    viewer.send_signal(signal.SIGINT)
    assert viewer.wait(20) == 130
    assert viewer.communicate() == (b"", b"")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_row_1_streams_that_cannot_carry_our_glyphs_get_ascii(recording: Any, encoding: str) -> None:
    for make in (fakes.few, fakes.hostile):
        done = subprocess.run(
            [*REAL, "top", "--replay", recording(make)],
            env=environment(PYTHONUTF8="0", PYTHONIOENCODING=encoding),
            capture_output=True,
            timeout=50,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"---" in done.stdout
    assert ran("top", "--replay", recording(), "--ascii").stdout.isascii()


def test_row_4_a_pipe_gets_a_table_without_escapes(recording: Any) -> None:
    for arguments in (["top", "--replay", recording()], ["top", "--replay", recording(), "--json"], ["ps"]):
        done = ran(*arguments)
        assert "\x1b" not in done.stdout
        assert "\r" not in done.stdout
        assert done.stdout.endswith("\n")


def test_row_4_printing_options_print_on_a_terminal_too(recording: Any) -> None:
    run = TerminalRun("top", "--replay", recording(), "--once", program=REAL, columns=100)
    assert run.finish() == 0
    assert b"\x1b[?" not in run.output, "no screen is taken"
    assert "wait%" in "\n".join(run.screen())


def test_row_11_a_dumb_terminal_gets_the_table(recording: Any) -> None:
    run = TerminalRun("top", "--replay", recording(), program=REAL, TERM="dumb")
    assert run.finish() == 0
    assert b"\x1b" not in run.output


@pytest.mark.parametrize(
    ("option", "no_color", "force_color", "expected"),
    COLOUR_IN_A_PIPE,
)
def test_row_11_colour_in_a_pipe(
    recording: Any, option: str, no_color: str | None, force_color: str | None, expected: bool
) -> None:
    done = ran("top", "--replay", recording(), "--color", option, NO_COLOR=no_color, FORCE_COLOR=force_color)
    assert ("\x1b[" in done.stdout) == expected
    assert "\x1b[?" not in done.stdout, "colour is no reason for a live screen"
    done = ran("top", "--replay", recording(), "--json", "--color", option, NO_COLOR=no_color, FORCE_COLOR=force_color)
    assert "\x1b" not in done.stdout


def test_printing_does_not_load_rich(recording: Any) -> None:
    probe = (
        "import sys; from ticketlock.cli import main; code = main(sys.argv[1:]); "
        "assert 'rich' not in sys.modules and 'ticketlock.monitor.app' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, "top", "--replay", recording()], env=environment(), capture_output=True, timeout=50
    )
    assert (done.returncode, done.stderr) == (0, b"")
