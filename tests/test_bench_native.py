"""The real engine, in rounds of a few milliseconds: shapes, documents and signals, never speeds."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import time
from typing import Any

import pytest
from conftest import REAL, command, environment
from terminal import TerminalRun
from test_schemas import strict, validator
from ticketlock import bench
from ticketlock.bench.engine import NativeEngine
from ticketlock.bench.presets import PRESETS

SHORT = {
    "uncontended": ["--seconds", "0.005", "--rounds", "2"],
    "semaphore": ["--seconds", "0.01", "--rounds", "2", "--threads", "1,3"],
    "fairness": ["--iterations", "2000", "--rounds", "2"],
    "phantom": ["--seconds", "0.02", "--rounds", "2"],
    "oversubscribed": ["--seconds", "0.02", "--rounds", "2", "--threads", "2,5", "--aa", "lock"],
}


@pytest.mark.parametrize("preset", SHORT)
def test_json_of_real_rounds_obeys_the_schema(preset: str) -> None:
    done = command("bench", preset, *SHORT[preset], "--json", program=REAL)
    assert (done.returncode, done.stderr) == (0, b"")
    document = strict(done.stdout.decode())
    validator("bench-1").validate(document)
    assert document["partial"] is False
    assert {cell["driver"] for cell in document["cells"]} == {"native"}
    locks = {cell["lock"] for cell in document["cells"]}
    assert locks <= set(PRESETS[preset].locks)
    for cell in document["cells"]:
        # What ran was counted; a disturbed machine makes cells invalid, never wrong.
        counted = [value for value in cell["throughput_per_s"]["runs"] if value is not None]
        assert all(value > 0 for value in counted)
        assert cell["status"] == "ok" or cell["why"]


@pytest.mark.parametrize("preset", SHORT)
def test_csv_and_tables_of_real_rounds(preset: str) -> None:
    done = command("bench", preset, *SHORT[preset], "--csv", program=REAL)
    rows = list(csv.DictReader(done.stdout.decode().splitlines()))
    assert done.returncode == 0
    assert {row["preset"] for row in rows} == {preset}
    done = command("bench", preset, *SHORT[preset], program=REAL)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"noise" in done.stdout


def test_the_library_returns_typed_results() -> None:
    results = bench.run("semaphore", locks=["auto", "std"], threads=[1], seconds=0.01, rounds=3, seed=5, hold=50, think="0.1us")
    assert [cell.lock for cell in results.cells] == ["auto", "std"]
    assert {cell.hold_ns for cell in results.cells} == {50}
    assert {cell.think_ns for cell in results.cells} == {100}
    assert results.seed == 5
    for cell in results.cells:
        if cell.status == "ok":
            assert isinstance(cell.throughput_per_s, bench.Spread)
            assert cell.jain == 1.0
            assert cell.extra["acquisitions_per_thread"][0] > 0


def test_every_default_lock_of_every_preset_exists() -> None:
    engine = NativeEngine()
    missing = {info["pattern"] for info in engine.locks() if not info["available"]}
    for preset in PRESETS.values():
        for lock in {*preset.locks, preset.reference} - missing:
            assert engine.parse_lock(lock)["family"]


def test_the_engine_refuses_unknown_locks_with_the_list() -> None:
    with pytest.raises(ValueError, match=r"nosuch.*ticket.*parking_lot"):
        NativeEngine().parse_lock("nosuch")


def test_order_is_a_permutation_for_every_round() -> None:
    order = NativeEngine().order(3, 7, 20)
    assert [sorted(one) for one in order] == [list(range(7))] * 20
    assert order == NativeEngine().order(3, 7, 20)
    assert len({tuple(one) for one in order}) > 10


def test_what_the_engine_says_is_what_the_planner_checks() -> None:
    """Rounds that the planner lets through are rounds that the engine takes: one of each lock and preset."""
    engine = NativeEngine()
    for name in SHORT:
        results = bench.run(name, rounds=1, seconds=0.002, engine=engine)
        refused = [cell.why for cell in results.cells if cell.why and ("must be" in cell.why or "has no" in cell.why)]
        assert refused == []


def test_info_names_this_hypervisor_and_obeys_the_override() -> None:
    here = json.loads(command("info", "--json", program=REAL).stdout)
    none = json.loads(command("info", "--json", program=REAL, TICKETLOCK_HYPERVISOR="none").stdout)
    present = json.loads(command("info", "--json", program=REAL, TICKETLOCK_HYPERVISOR="present").stdout)
    assert (none["hypervisor"]["present"], none["delay_cap"]) == (False, 16_000)
    assert (present["hypervisor"]["present"], present["delay_cap"]) == (True, 16)
    assert here["delay_cap"] in (16, 16_000)
    assert json.loads(command("info", "--json", program=REAL, TICKETLOCK_DELAY_CAP="77").stdout)["delay_cap"] == 77


def test_a_narrow_affinity_narrows_usable_cpus_row15() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this platform has no affinity")
    first = min(os.sched_getaffinity(0))
    program = ["taskset", "-c", str(first), *REAL]
    document = json.loads(command("info", "--json", program=program).stdout)
    assert (document["cpus"]["affinity"], document["cpus"]["usable"]) == (1, 1)
    done = command("bench", "--threads", "1,2", "--locks", "std", "--seconds", "0.01", "--rounds", "1", "--json", program=program)
    cells = json.loads(done.stdout)["cells"]
    assert {cell["threads"]: cell["extra"]["oversubscribed"] for cell in cells} == {1: False, 2: True}


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_cuts_a_long_real_round_short_row16(tmp_path: Any, signum: int, code: int) -> None:
    target = tmp_path / "x.json"
    # One round would last ten minutes.
    process = subprocess.Popen(
        [*REAL, "bench", "--threads", "2", "--locks", "ticket,std", "--seconds", "600", "-o", str(target)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1.0)
    process.send_signal(signum)
    out, err = process.communicate(timeout=40)
    assert (process.returncode, err) == (code, b"")
    assert b"stopped early: partial results" in out
    document = strict(target.read_text())
    validator("bench-1").validate(document)
    assert document["partial"] is True


def test_finished_rounds_survive_ctrl_c_row16(tmp_path: Any) -> None:
    target = tmp_path / "x.json"
    run = TerminalRun(
        "bench",
        "--threads",
        "1",
        "--locks",
        "std,pthread",
        "--seconds",
        "0.01",
        "--rounds",
        "1000",
        "-o",
        str(target),
        program=REAL,
    )
    run.wait_for(b" 1% ETA")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    run.assert_restored()
    document = strict(target.read_text())
    validator("bench-1").validate(document)
    assert document["partial"] is True
    assert any(cell["throughput_per_s"]["median"] for cell in document["cells"])


def test_live_on_real_threads_shows_their_delays() -> None:
    run = TerminalRun(
        *("bench", "--live", "--threads", "4", "--locks", "auto", "--seconds", "1.5", "--rounds", "1"),
        program=REAL,
        rows=24,
        columns=100,
    )
    run.wait_for(b"delay tables of auto, 4 threads")
    assert run.finish() == 0
    run.assert_restored()
    assert b"M op/s" in run.output


def test_a_reader_that_leaves_a_real_run_row10() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*REAL, "bench", "--threads", "1", "--locks", "std", "--seconds", "0.01", "--rounds", "1"],
            env=environment(PYTHONUNBUFFERED="1"),
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=50,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
