"""The boundary between Python and the native benchmarks: shapes, refusals, interruption."""

import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time

import pytest
from ticketlock import _lab

SPEC = {
    "preset": "semaphore",
    "lock": "auto",
    "threads": 2,
    "hold_ns": 0,
    "think_ns": 0,
    "seconds": 0.05,
    "iterations": None,
    "lock_count": 1,
    "cpus": [],
    "mode": "throughput",
    "seed": 1,
    "cap": None,
    "emulated_cpus": None,
    "line": 23,
}
RESULT_KEYS = {
    "status",
    "why",
    "seconds",
    "acquisitions",
    "cpu_s",
    "process_cpu_s",
    "steal_s",
    "context_switches",
    "wait",
    "run_length",
    "overtakes",
    "overtakes_examined",
    "monopoly_ns",
    "windows",
    "pair_ns",
    "cycles",
    "cycles_unit",
    "extra",
}


def test_machine():
    machine = _lab.machine()
    assert set(machine) == {
        "hypervisor",
        "delay_cap",
        "pause_ns",
        "spins_per_unit",
        "pause_loop_exits",
        "membarrier",
        "cpus",
        "build",
    }
    assert set(machine["hypervisor"]) == {"present", "vendor", "signature", "source"}
    assert set(machine["cpus"]) == {"online", "affinity", "quota", "usable"}
    assert machine["delay_cap"] >= 1
    assert machine["pause_ns"] > 0
    assert machine["spins_per_unit"] >= 1
    assert machine["pause_loop_exits"] == "unknown"
    assert machine["cpus"]["usable"] >= 1
    assert machine["cpus"]["affinity"] <= machine["cpus"]["online"]
    build = machine["build"]
    assert set(build) == {"version", "profile", "target", "rustc", "debug_assertions", "features", "pyo3"}
    assert build["profile"] in {"debug", "release"}
    assert build["rustc"][0].isdigit()
    assert build["pyo3"].startswith("0.")
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    assert build["features"][0] in ({"free-threaded", "abi3t"} if free_threaded else {"abi3", "abi3t", "version-specific"})


def test_the_machine_can_be_overridden():
    source = (
        "from ticketlock import _lab; m = _lab.machine(); print(m['hypervisor']['present'], m['delay_cap'], m['cpus']['usable'])"
    )
    environment = {**os.environ, "TICKETLOCK_HYPERVISOR": "none", "TICKETLOCK_CPUS": "7"}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.split() == ["False", "16000", "7"]
    environment |= {"TICKETLOCK_DELAY_CAP": "123", "TICKETLOCK_HYPERVISOR": "present"}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.split() == ["True", "123", "7"]


def test_locks():
    locks = _lab.bench_locks()
    patterns = {lock["pattern"] for lock in locks}
    assert {"ticket", "proportional:N", "auto", "tas-retest", "tas-retry", "mcs", "std", "parking_lot", "pthread"} <= patterns
    for lock in locks:
        assert set(lock) == {"pattern", "family", "fair", "spins", "parameter", "available", "try_lock", "timed", "about"}
        if lock["available"]:
            parsed = _lab.bench_parse_lock(lock["pattern"].replace(":N", ":50"))
            assert parsed["pattern"] == lock["pattern"]
            assert parsed["id"] == lock["pattern"].replace(":N", ":50")


@pytest.mark.parametrize("name", ["", "nosuch", "proportional:0", "auto "])
def test_unknown_locks(name):
    with pytest.raises(ValueError, match="proportional-v1:N") as refused:
        _lab.bench_parse_lock(name)
    assert f"'{name}'" in str(refused.value)
    with pytest.raises(ValueError, match="proportional-v1:N"):
        _lab.bench_round({**SPEC, "lock": name})


def test_order():
    order = _lab.bench_order(7, 5, 20)
    assert len(order) == 20
    assert all(sorted(cells) == list(range(5)) for cells in order)
    assert order == _lab.bench_order(7, 5, 20)
    assert order != _lab.bench_order(8, 5, 20)


@pytest.mark.parametrize(
    ("change", "none"),
    [
        ({}, {"wait", "overtakes", "overtakes_examined", "monopoly_ns", "windows", "pair_ns", "cycles"}),
        ({"mode": "waits", "lock": "std"}, {"pair_ns", "cycles"}),
        (
            {"preset": "uncontended", "threads": 1},
            {"wait", "run_length", "overtakes", "overtakes_examined", "monopoly_ns", "windows", "cycles"},
        ),
        (
            {"preset": "fairness", "iterations": 10_000},
            {"wait", "overtakes", "overtakes_examined", "monopoly_ns", "windows", "pair_ns"},
        ),
        ({"preset": "oversubscribed", "mode": "waits", "lock": "lock", "seconds": 0.25}, {"pair_ns", "cycles"}),
        ({"preset": "phantom", "lock": "ticket"}, None),
    ],
)
def test_a_round(change, none):
    spec = {**SPEC, **change}
    before = dict(spec)
    result = _lab.bench_round(spec)
    assert spec == before
    assert set(result) == RESULT_KEYS
    assert result["status"] in {"ok", "invalid"}
    assert (result["why"] is None) == (result["status"] == "ok")
    assert result["seconds"] > 0
    assert result["cycles_unit"] in {"tsc", "ns"}
    assert set(result["context_switches"]) == {"voluntary", "involuntary"}
    if none is not None:
        assert len(result["acquisitions"]) == spec["threads"]
        assert sum(result["acquisitions"]) > 0
        assert {key for key in RESULT_KEYS - {"why", "cpu_s", "extra"} if result[key] is None} == none
    if result["wait"]:
        assert sum(count for _, _, count in result["wait"]["histogram"]) == result["wait"]["count"] > 0
    if result["pair_ns"]:
        assert result["pair_ns"]["net"] == pytest.approx(result["pair_ns"]["gross"] - result["pair_ns"]["loop"])
    if spec["preset"] == "fairness":
        # On a busy machine a strict lock's round ends by its time.
        assert sum(result["acquisitions"]) >= 10_000 or result["seconds"] >= 0.9 * spec["seconds"]


def test_fields_have_defaults_except_two():
    assert _lab.bench_round({"preset": "semaphore", "lock": "ticket", "seconds": 0.01})["seconds"] > 0
    for needed in ("preset", "lock"):
        spec = {key: value for key, value in SPEC.items() if key != needed}
        with pytest.raises(ValueError, match=f"needs '{needed}'"):
            _lab.bench_round(spec)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"preset": "nosuch"}, ValueError, "'nosuch'.*uncontended, semaphore, fairness, oversubscribed, phantom"),
        ({"mode": "nosuch"}, ValueError, "'nosuch'.*throughput, waits"),
        ({"threads": 0}, ValueError, "threads must be 1 to .*not 0"),
        ({"threads": -1}, ValueError, "threads must be a whole number from 0 on, not -1"),
        ({"threads": 1.5}, TypeError, "threads must be a whole number from 0 on, not 1.5"),
        ({"hold_ns": -5}, ValueError, "hold_ns must be .*not -5"),
        ({"seconds": float("nan")}, ValueError, "seconds must be more than 0"),
        ({"seconds": "1"}, TypeError, "seconds must be a number, not '1'"),
        ({"seed": 2**64}, ValueError, "seed must be"),
        ({"cpus": 0}, ValueError, "cpus must be a list of CPU numbers, not 0"),
        ({"cpus": [10**6]}, ValueError, "CPU 1000000"),
        ({"colour": 1}, ValueError, "no 'colour'; it has: preset, lock"),
        ({3: 1}, ValueError, "no 3; it has"),
    ],
)
def test_refused_rounds(change, error, message):
    with pytest.raises(error, match=message):
        _lab.bench_round({**SPEC, **change})


def test_a_round_is_detached():
    """Other Python threads run while a round does, and see its threads' delays."""
    seen = []
    done = threading.Event()

    def watch():
        while not done.is_set():
            seen.extend(_lab.delays())
            time.sleep(0.01)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        _lab.bench_round({**SPEC, "threads": 4, "seconds": 0.3})
    finally:
        done.set()
        watcher.join(30)
    assert seen
    assert {len(row) for row in seen} == {7}


@pytest.mark.skipif(os.name == "nt", reason="sends a signal to itself")
def test_an_interrupt_cancels_the_round():
    start = time.monotonic()
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        _lab.bench_round({**SPEC, "seconds": 30})
    timer.join()
    assert time.monotonic() - start < 10


def test_check():
    for lock in ("auto", "std", "tas-retest"):
        _lab.bench_check(lock, 4, 2000)
    with pytest.raises(ValueError, match="nosuch"):
        _lab.bench_check("nosuch", 2, 10)
    with pytest.raises(ValueError, match="threads must be 1 to"):
        _lab.bench_check("auto", 0, 10)
