"""Sources of snapshots: a live process, several of them, a recording."""

from __future__ import annotations

import gc
import io
import itertools
import json
import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import monitor_fakes as fakes
import pytest
import ticketlock
from targets import BUSY, WAIT, Target
from threads import Holder, join, spawn
from ticketlock import _lab
from ticketlock.monitor import document, find, proc, recording, source, tree
from ticketlock.monitor.build import build
from ticketlock.monitor.errors import IncompatibleError, NotInstrumentedError
from ticketlock.monitor.source import Live, Recorder, Replay
from ticketlock.monitor.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ticketlock.monitor.model import Snapshot
    from ticketlock.monitor.raw import Raw

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other processes are read on Linux")


def snapshots(make: Callable[[int], Raw] = fakes.few, ticks: int = 4) -> list[Snapshot]:
    raws = [make(tick) for tick in range(1, ticks + 2)]
    return [build(later, earlier) for earlier, later in itertools.pairwise(raws)]


def recorded(path: Path, made: list[Snapshot]) -> Path:
    recorder = Recorder(str(path))
    for one in made:
        recorder.write(one)
    recorder.close()
    assert (recorder.problem, recorder.count) == (None, len(made))
    return path


def all_of(one: Any) -> list[Snapshot]:
    return list(iter(one.read, None))


# Recordings.


@pytest.mark.parametrize("make", [fakes.few, fakes.hostile, fakes.empty, fakes.deadlock, fakes.abandoned])
def test_what_was_recorded_is_replayed_without_loss(tmp_path: Path, make: Any) -> None:
    made = snapshots(make)
    replay = Replay(str(recorded(tmp_path / "r.jsonl", made)))
    assert all_of(replay) == made
    assert replay.ending == "end of recording"
    assert replay.read() is None
    replay.close()


def test_a_recording_is_exactly_the_json_documents(tmp_path: Path) -> None:
    made = snapshots()
    text = recorded(tmp_path / "r.jsonl", made).read_text(encoding="ascii")
    assert text == "".join(document.dumps(one) for one in made)


@pytest.mark.parametrize("cut", [1, 2, 100])
def test_an_incomplete_last_line_is_left_out(tmp_path: Path, cut: int) -> None:
    made = snapshots()
    path = recorded(tmp_path / "r.jsonl", made)
    path.write_bytes(path.read_bytes()[:-cut])
    replay = Replay(str(path))
    # Without its newline only, the last line is whole.
    assert all_of(replay) == (made if cut == 1 else made[:-1])
    assert replay.ending == ("end of recording" if cut == 1 else "end of recording (its last line is incomplete)")
    replay.close()


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"[]",
        b"nonsense",
        b"\xff\xfe",
        b'{"schema": "ticketlock.snapshot/2"}',
        b'{"schema": "ticketlock.bench/1"}',
        b"[" * 100_000,
        b"NaN",
    ],
)
def test_row_18_a_line_that_is_no_snapshot_is_named(tmp_path: Path, line: bytes) -> None:
    path = recorded(tmp_path / "r.jsonl", snapshots(ticks=1))
    path.write_bytes(path.read_bytes() + line + b"\n" + path.read_bytes())
    replay = Replay(str(path))
    assert replay.read() is not None
    with pytest.raises(IncompatibleError, match="line 2 of .*r.jsonl' is no snapshot") as refused:
        replay.read()
    assert refused.value.exit_code == 5
    assert len(str(refused.value)) < 1000
    assert replay.read() is None, "it ends there"
    replay.close()


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_LONGEST_LINE", 1000)
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"x" * 5000)
    replay = Replay(str(path))
    with pytest.raises(IncompatibleError):
        replay.read()
    replay.close()


def test_the_total_of_a_recording_counts_from_the_baseline(tmp_path: Path) -> None:
    made = snapshots()
    replay = Replay(str(recorded(tmp_path / "r.jsonl", made)))
    assert replay.total() is None
    replay.read()
    assert replay.total() == made[0]
    replay.read()
    total = replay.total()
    assert total is not None
    assert total.interval_ns == made[0].interval_ns + made[1].interval_ns
    assert total.totals.contended == made[0].totals.contended + made[1].totals.contended
    replay.reset()
    replay.read()
    assert replay.total() == made[2]
    replay.close()


def test_row_20_a_recording_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    made = snapshots()
    text = "".join(document.dumps(one) for one in made).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    replay = Replay("-")
    assert all_of(replay) == made
    replay.close()
    assert not sys.stdin.closed


def test_a_failing_write_ends_the_recording_and_is_said_row_16() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    recorder = Recorder("/dev/full")
    for one in snapshots():
        recorder.write(one)
    assert recorder.problem is not None
    assert recorder.problem.startswith("recording to '/dev/full' stopped after 0 snapshots: ")
    assert recorder.count == 0
    recorder.close()


def test_a_recording_replaces_a_recording_and_nothing_else(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r.jsonl", snapshots())
    made = snapshots(ticks=1)
    replay = Replay(str(recorded(path, made)))
    assert all_of(replay) == made
    replay.close()
    (tmp_path / "empty").touch()
    recorded(tmp_path / "empty", made)
    script = tmp_path / "script.py"
    script.write_text("print('precious')")
    with pytest.raises(FileExistsError):
        Recorder(str(script))
    assert script.read_text() == "print('precious')"
    with pytest.raises(IsADirectoryError):
        Recorder(str(tmp_path))


# A live process.


class Scripted:
    """A reader whose samples come from a function of their number."""

    def __init__(self, make: Callable[[int], Raw]) -> None:
        self.make = make
        self.taken = 0
        self.asked: list[int] = []

    def process(self) -> Any:
        return fakes.process()

    def sample(self, limit: int = 1000) -> Raw:
        self.taken += 1
        self.asked.append(limit)
        return self.make(self.taken)

    def events(self, since: int, limit: int = 65536) -> Any:
        return fakes.events()


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Callable[[int], Raw]], tuple[Live, Scripted]]:
    """A live source, of this process, with a scripted reader."""

    def make(samples: Callable[[int], Raw]) -> tuple[Live, Scripted]:
        reader = Scripted(samples)
        path = tmp_path / "segment"
        path.touch()
        segment = find.Segment(os.getpid(), 0, reader, proc.Watch(os.getpid(), 0), os.open(path, os.O_RDONLY), str(path))
        monkeypatch.setattr(source, "open_segment", lambda pid: segment)
        monkeypatch.setattr(source, "reader_of", lambda descriptor: reader)
        return Live(os.getpid()), reader

    return make


@linux
def test_a_reading_counts_from_the_former_one_and_a_total_from_the_start(scripted: Any) -> None:
    live, _ = scripted(fakes.few)
    first = live.read()
    assert first.interval_ns == fakes.TICK_NS
    assert first.process["pid"] == os.getpid(), "as we know it, not as it knows itself"
    second = live.read()
    assert second.interval_ns == fakes.TICK_NS
    assert live.total().interval_ns == 3 * fakes.TICK_NS
    live.reset()
    live.read()
    assert live.total().interval_ns == fakes.TICK_NS
    live.close()


@linux
def test_a_lock_that_comes_back_into_a_limited_reading_counts_from_when_it_was_seen(scripted: Any) -> None:
    def limited(number: int) -> Raw:
        raw = fakes.few(number)
        # The first lock has no place in readings 2 and 3.
        return {**raw, "locks": raw["locks"][1:]} if number in (2, 3) else raw

    live, _ = scripted(limited)
    name = fakes.few(1)["locks"][0]["id"]
    whole = fakes.few(4)["locks"][0]["counters"]["contended"] - fakes.few(1)["locks"][0]["counters"]["contended"]
    assert whole > 0
    found = [[lock.contended for lock in live.read().locks if lock.id == name] for _ in range(3)]
    assert found == [[], [], [whole]]
    live.close()


@linux
def test_a_cycle_that_another_reading_does_not_show_was_none(scripted: Any) -> None:
    live, _ = scripted(lambda number: fakes.deadlock(4) if number in (1, 2) else fakes.few(5))
    assert live.read().cycles == ()
    live.close()
    live, _ = scripted(fakes.deadlock)
    assert live.read().cycles
    assert live.total().cycles
    live.close()


@linux
def test_row_18_a_segment_that_becomes_unreadable_ends_the_source(scripted: Any) -> None:
    def spoilt(number: int) -> Raw:
        if number > 2:
            raise ValueError("section 3 is out of bounds")
        return fakes.few(number)

    live, _ = scripted(spoilt)
    assert live.read() is not None
    with pytest.raises(IncompatibleError, match="section 3 is out of bounds"):
        live.read()
    assert live.ending is not None
    assert live.read() is None
    live.close()


@linux
def test_row_9_a_clock_that_is_set_back_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Target(BUSY) as target:
        live = Live(target.pid)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        time.sleep(0.1)
        snapshot = live.read()
        assert snapshot is not None
        assert 0.09e9 < snapshot.interval_ns < 20e9
        assert live.total().interval_ns >= snapshot.interval_ns
        live.close()


@linux
def test_a_real_process_names_its_hot_lock_first() -> None:
    with Target(BUSY) as target:
        live = Live(target.pid)
        time.sleep(0.5)
        snapshot = live.read()
        assert snapshot is not None
        assert snapshot.locks[0].site == "<string>:4"
        assert snapshot.locks[0].contended > 10
        assert 0.5 < snapshot.locks[0].wait_share < 3.5
        assert {thread.name for thread in snapshot.threads} >= {"worker-0", "worker-1", "worker-2"}
        assert live.events()
        live.close()


@linux
def test_row_7_the_last_figures_of_a_process_that_ended_are_not_lost() -> None:
    last = "import threading, time, ticketlock\nlock = ticketlock.Lock(); lock.acquire()\n" + WAIT.replace(
        "sys.exit",
        "threading.Timer(0.1, lock.release).start(); lock.acquire(); lock.release(); import os; os._exit",
    )
    with Target(last) as target:
        live = Live(target.pid)
        assert live.read() is not None
        assert live.ending is None
        target.end(7)
        assert live.over()
        snapshot = live.read()
        assert snapshot is not None
        assert snapshot.totals.contended == 1
        assert live.ending in ("exited (7)", "exited")
        assert live.read() is None
        live.close()


@linux
def test_row_19_closing_its_files_does_not_end_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_LOOK_AGAIN_S", 0.0)
    closing = f"""\
import os, threading, time, ticketlock
lock = ticketlock.Lock()
lock.acquire()
print("ready", flush=True)
import sys; sys.stdin.readline()
os.closerange(3, 65536)
{WAIT}
"""
    with Target(closing) as target:
        live = Live(target.pid)
        assert target.process.stdin is not None
        assert target.process.stdout is not None
        target.process.stdin.write("\n")
        target.process.stdin.flush()
        assert target.process.stdout.readline() == "ready\n"
        for _ in range(3):
            assert live.read() is not None
        assert live.ending is None
        live.close()


@linux
def test_row_19_a_process_that_became_another_program_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_LOOK_AGAIN_S", 0.0)
    becoming = f"""\
import os, sys, ticketlock
lock = ticketlock.Lock()
lock.acquire()
print("ready", flush=True)
sys.stdin.readline()
os.execv(sys.executable, [sys.executable, "-c", {WAIT!r}])
"""
    with Target(becoming) as target:
        live = Live(target.pid)
        assert target.process.stdin is not None
        assert target.process.stdout is not None
        target.process.stdin.write("\n")
        target.process.stdin.flush()
        assert target.process.stdout.readline() == "ready\n"
        assert live.read() is not None
        assert live.ending == "it runs another program now"
        assert live.read() is None
        live.close()


# Several processes.

FAMILY = f"""\
import os, threading, time, ticketlock, warnings
warnings.simplefilter("ignore")
lock = ticketlock.Lock()
def quarrel():
    while True:
        with lock:
            time.sleep(0.001)
child = os.fork()
for number in range(2):
    threading.Thread(target=quarrel, name=f"t{{number}}", daemon=True).start()
time.sleep(0.3)
if child == 0:
    time.sleep(60)
    os._exit(0)
{WAIT}
"""


@linux
def test_row_19_a_tree_has_the_locks_of_forked_children_told_apart_by_pid() -> None:
    with Target(FAMILY) as target:
        (child,) = proc.children(target.pid)
        try:
            family = Tree(target.pid)
            time.sleep(0.3)
            snapshot = family.read()
            assert snapshot is not None
            busy = [lock for lock in snapshot.locks if lock.contended]
            assert {lock.name for lock in busy} == {f"<Lock> [{target.pid}]", f"<Lock> [{child}]"}
            assert len({lock.id for lock in busy}) == 2
            assert len({thread.ident for thread in snapshot.threads}) == len(snapshot.threads) >= 4
            assert snapshot.totals.contended == sum(lock.contended for lock in snapshot.locks)
            assert snapshot.process["pid"] == target.pid
            alone = Live(target.pid)
            time.sleep(0.05)
            own = alone.read()
            assert own is not None
            assert own.totals.contended > 0, "the parent's counts are its own"
            alone.close()
            os.kill(child, 9)
            time.sleep(0.2)
            assert family.read() is not None
            assert family.ending is None, "the parent goes on"
            target.process.kill()
            target.process.wait()
            assert family.read() is not None
            assert family.ending is not None
            assert family.read() is None
            family.close()
        finally:
            os.kill(child, 9) if proc.stat(child) else None


@linux
def test_a_tree_without_any_report_says_so() -> None:
    with Target(WAIT) as target, pytest.raises(NotInstrumentedError, match="does not use ticketlock"):
        Tree(target.pid)


def test_one_process_alone_is_not_renamed() -> None:
    (one,) = snapshots(ticks=1)
    combined = tree.combine([(one, 0)])
    assert [lock.name for lock in combined.locks] == [lock.name for lock in one.locks]
    assert combined.totals == one.totals


def test_two_processes_with_the_same_numbers_stay_apart() -> None:
    one = build(fakes.deadlock(4), None)
    other = replace(one, process={**one.process, "pid": 77})
    combined = tree.combine([(one, 0), (other, 1)])
    assert len(combined.cycles) == 2 * len(one.cycles) > 0
    assert len({lock.id for lock in combined.locks}) == 2 * len(one.locks)
    ids = {lock.id for lock in combined.locks}
    idents = {thread.ident for thread in combined.threads}
    for cycle in combined.cycles:
        assert set(cycle.locks) <= ids
        assert set(cycle.threads) <= idents
    assert document.from_json(json.loads(document.dumps(combined))) == combined


@linux
def test_a_lock_that_ends_is_not_counted_a_second_time() -> None:
    """What it had counted goes to the line that made it, and was shown before."""
    _lab.set_sites(True)
    try:
        locks = [ticketlock.Lock(name="short of life")]
    finally:
        _lab.set_sites(False)
    with Holder(locks[0]) as holder:
        waiter = spawn(lambda lock: lock.acquire() and lock.release(), locks[0])
        time.sleep(0.3)
        holder.let_go()
        join([waiter])
    live = Live(os.getpid())
    live.read()
    del holder, waiter
    locks.clear()
    gc.collect()
    snapshot = live.read()
    live.close()
    assert snapshot is not None
    gone = [row for row in snapshot.locks if row.id is None and row.site is not None and "test_monitor_source" in row.site]
    assert all(row.waits.sum < 100_000_000 for row in gone), gone
