"""The driver `python`: which locks it knows, what it measures, and that bad locks are caught. Shapes and order, no speeds."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import ticketlock
from conftest import REAL, command, environment
from test_schemas import strict, validator
from ticketlock import bench
from ticketlock.bench import noise
from ticketlock.bench.python import PythonEngine, checks, crew, engine, figures, locks, loops
from ticketlock.bench.values import BadValueError

NEW_TYPES = [name for name in ("Lock", "RLock") if hasattr(ticketlock, name)]
STANDARD = ["threading.Lock", "threading.RLock"]
OURS = [
    name
    for name in ("lock", "lock:throughput", "lock:strict", "rlock", "ticket", "proportional:50", "auto", "auto-v1:2.7")
    if name not in ("lock", "lock:throughput", "lock:strict", "rlock") or len(NEW_TYPES) == 2
]


class Planted:
    """A lock made of the methods that a subclass changes."""

    def __init__(self) -> None:
        self.inner = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self.inner.acquire(blocking, timeout)

    def release(self) -> None:
        self.inner.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class NoExclusion(Planted):
    """Lets everybody in."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return True

    def release(self) -> None:
        pass


class TryBroken(Planted):
    """Lets in whoever does not wait."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not blocking:
            self.stolen = not self.inner.acquire(False)
            return True
        return self.inner.acquire(blocking, timeout)

    def release(self) -> None:
        # Those who were let in wrongly may have released it already.
        with contextlib.suppress(RuntimeError):
            self.inner.release()


class WithBroken(Planted):
    """Sound, except in a `with` block."""

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *exc_info: object) -> None:
        pass


class OnlyWaits(Planted):
    """Has no acquisition but the waiting one."""

    def acquire(self) -> bool:  # type: ignore[override]
        return self.inner.acquire()


class Listed(Planted):
    """Serves waiters in the order of their arrival."""

    latest_first = False

    def __init__(self) -> None:
        super().__init__()
        self.held = False
        self.waiting: list[Any] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        with self.inner:
            if not self.held:
                self.held = True
                return True
            mine = threading.Lock()
            mine.acquire()
            self.waiting.append(mine)
        return mine.acquire()  # released by whoever hands over

    def release(self) -> None:
        with self.inner:
            if self.waiting:
                self.waiting.pop(-1 if self.latest_first else 0).release()
            else:
                self.held = False


class LatestFirst(Listed):
    """Serves the latest arrival first."""

    latest_first = True


class Stalling(Planted):
    """A good lock that takes 5 ms now and then."""

    turns = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        taken = super().acquire(blocking, timeout)
        self.turns += 1
        if self.turns % 500 == 0:
            time.sleep(0.005)
        return taken


class Favouring(Planted):
    """One thread may take it again and again for 20 ms while others wait."""

    favourite, until = 0, 0.0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = threading.get_ident()
        while True:
            self.inner.acquire()
            now = time.perf_counter()
            if now >= self.until and self.favourite != me:
                self.favourite, self.until = me, now + 0.02
            if self.favourite == me and now < self.until:
                return True
            if self.favourite == me:
                self.favourite = 0
            self.inner.release()
            time.sleep(0.0002)


class KeepsOneOut(Planted):
    """After its first time, one thread waits for half a second."""

    def __init__(self) -> None:
        super().__init__()
        self.kept_out = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if threading.current_thread().name == "ticketlock-bench-0":
            self.kept_out += 1
            if self.kept_out == 2:
                time.sleep(0.5)
        return super().acquire(blocking, timeout)


class Raising(Planted):
    """Fails after a while."""

    turns = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self.turns += 1
        if self.turns == 5000:
            raise OSError("planted failure")
        return super().acquire(blocking, timeout)


def name_of(lock: type) -> str:
    return f"{__name__}:{lock.__name__}"


def spec(lock: str | type, threads: int = 3, **changes: Any) -> Any:
    return {
        "preset": "oversubscribed",
        "lock": lock if isinstance(lock, str) else name_of(lock),
        "threads": threads,
        "hold_ns": 0,
        "think_ns": 100,
        "seconds": 0.1,
        "iterations": None,
        "lock_count": 1,
        "cpus": [],
        "mode": "throughput",
        "seed": 0,
        "cap": None,
        "emulated_cpus": None,
        "line": 0,
        **changes,
    }


def go(lock: str | type, threads: int = 3, **changes: Any) -> Any:
    result = PythonEngine().round(spec(lock, threads, **changes))
    assert result["status"] in ("ok", "invalid")
    return result


# --- identifiers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*STANDARD, *OURS, f"{__name__}:Planted", f"{__name__}:Listed"])
def test_known_locks_are_made_and_exclude(name: str) -> None:
    named = locks.find(name)
    with named.make():
        pass
    assert named.make() is not named.make()
    checks.exclusion(named.make)


def test_every_kind_is_listed_with_what_it_needs() -> None:
    patterns = [info["pattern"] for info in PythonEngine().locks()]
    assert len(set(patterns)) == len(patterns)
    assert {"threading.Lock", "threading.RLock", "lock", "lock:throughput", "lock:strict", "rlock", "module:factory"} <= set(
        patterns
    )


def test_a_build_without_a_type_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "ticketlock", SimpleNamespace(TicketLock=ticketlock.TicketLock))
    assert not next(info for info in locks.infos() if info["pattern"] == "rlock")["available"]
    for name, needed in (("lock", "Lock"), ("lock:strict", "Lock"), ("rlock", "RLock")):
        with pytest.raises(ValueError, match=rf"lock '{name}' needs ticketlock\.{needed}, which this build does not have"):
            locks.find(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "nosuch", "std", "lock:", "lock:balanced", "lock:fair", "rlock:strict", "threading:Lock", "proportional:0"),
        *("proportional:x", "auto:5", "auto-v1:3", "ticket:1", "a b:c", "mod:", ":x", "mod:x y"),
    ],
)
def test_unknown_locks_are_refused_with_the_list(name: str) -> None:
    with pytest.raises(ValueError, match=r"threading\.Lock, threading\.RLock, .*module:factory") as refused:
        locks.find(name)
    assert f"'{name}'" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuchmodule:Lock", "ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("math:nosuch", "AttributeError: .*'nosuch'"),
        ("math:pi", "TypeError: 'float' object is not callable"),
        ("sys:exit", "SystemExit"),
        ("queue:Queue", r"Queue\(\) returned a Queue, which has no acquire, release, __enter__, __exit__"),
        ("threading.local:x", "ModuleNotFoundError"),
    ],
)
def test_a_factory_that_makes_no_lock_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        locks.find(name)


def test_a_factory_may_be_nested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "planted.locks", SimpleNamespace(Box=SimpleNamespace(make=Planted)))
    monkeypatch.setitem(sys.modules, "planted", SimpleNamespace())
    assert isinstance(locks.find("planted.locks:Box.make").make(), Planted)


# --- bad locks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", [NoExclusion, TryBroken, WithBroken])
def test_a_lock_that_does_not_exclude_is_caught_before_it_is_measured(lock: type) -> None:
    with pytest.raises(RuntimeError, match="two threads held it at once"):
        checks.exclusion(lock)
    with pytest.raises(RuntimeError, match=f"lock '{name_of(lock)}': two threads held it at once"):
        go(lock)


def test_a_lock_with_the_waiting_acquisition_only_can_be_checked() -> None:
    checks.exclusion(OnlyWaits)


@pytest.mark.parametrize("mode", ["throughput", "waits"])
def test_a_round_counts_what_two_threads_inside_lose(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr(checks, "exclusion", lambda make: None)
    # Asleep between reading and writing the count, all threads lose increments.
    with pytest.raises(RuntimeError, match="two threads held it at once"):
        go(NoExclusion, hold_ns=1_000_000, mode=mode)


def test_the_latest_served_first_overtakes() -> None:
    def overtaken_share(lock: type) -> float:
        result = go(lock, 4, hold_ns=1_000_000, mode="waits", seconds=0.2)
        return float(result["overtakes"] / result["overtakes_examined"])

    # A round that the machine disturbed is run again, as in use.
    assert any(overtaken_share(LatestFirst) > 0.2 > 2 * overtaken_share(Listed) for _ in range(3))


def test_a_stall_is_the_longest_wait() -> None:
    assert go(Stalling, 2, mode="waits", seconds=0.3)["wait"]["max_ns"] >= 5_000_000


def test_a_monopoly_is_told_from_service_in_turn() -> None:
    def told_apart() -> bool:
        favouring = go(Favouring, 3, mode="waits", seconds=0.2)
        fair = go(Listed, 3, hold_ns=1_000_000, mode="waits", seconds=0.2)
        return bool(favouring["monopoly_ns"] > 10_000_000 > fair["monopoly_ns"])

    assert any(told_apart() for _ in range(3))


def test_a_thread_that_is_kept_out_for_the_whole_round_shows_in_the_longest_wait() -> None:
    result = go(KeepsOneOut, 3, mode="waits", seconds=0.15)
    assert result["acquisitions"][0] <= 1
    assert result["wait"]["max_ns"] >= 300_000_000
    assert 0 <= result["wait"]["count"] - sum(result["acquisitions"]) <= 3


@pytest.mark.parametrize("mode", ["throughput", "waits"])
def test_a_lock_that_fails_ends_the_round_for_all(mode: str) -> None:
    with pytest.raises(RuntimeError, match=r"thread \d: OSError: planted failure"):
        go(Raising, mode=mode, seconds=20)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ticketlock-bench")]


def test_threads_that_never_come_back_are_left_behind() -> None:
    let_go = threading.Event()

    class Stuck(crew.Body[bool]):
        def work(self, me: int, running: list[bool], opening: crew.Opening) -> bool:
            return me == 0 or let_go.wait()

    try:
        with pytest.raises(RuntimeError, match="2 of 3 threads did not come back within 0.1 s: the lock is stuck"):
            crew.run(3, Stuck(), 0.01, (), patience_s=0.1)
    finally:
        let_go.set()


# --- figures --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", [*STANDARD, *OURS])
def test_a_throughput_round(lock: str) -> None:
    result = go(lock, 3)
    assert len(result["acquisitions"]) == 3
    assert sum(result["acquisitions"]) > 0
    # Counted from the first thread's start, which may come late on a busy machine; the end is timed from before.
    assert result["seconds"] >= 0.05
    assert result["process_cpu_s"] > 0
    assert {"wait", "run_length", "monopoly_ns", "windows"}.isdisjoint(result)


@pytest.mark.parametrize("lock", [*STANDARD, *OURS])
def test_a_waits_round(lock: str) -> None:
    result = go(lock, 3, mode="waits", seconds=0.25)
    wait, runs = result["wait"], result["run_length"]
    # A thread that was kept out when the round began has one more wait than acquisitions.
    assert 0 <= wait["count"] - sum(result["acquisitions"]) <= 3
    assert sum(count for _, _, count in wait["histogram"]) == wait["count"]
    assert runs["longest"] >= runs["mean"] >= 1
    assert sum(length * count for length, count in runs["histogram"]) == pytest.approx(runs["mean"] * runs["runs"])
    assert len(result["windows"]) >= 2
    assert all(len(window) == 3 for window in result["windows"])
    counted = [sum(window[thread] for window in result["windows"]) for thread in range(3)]
    assert all(part <= whole for part, whole in zip(counted, result["acquisitions"], strict=True))
    assert result["monopoly_ns"] >= 0
    assert 0 < result["overtakes_examined"] <= loops.EXAMINED + 3


def test_one_thread_has_one_run_and_no_monopoly() -> None:
    result = go("threading.Lock", 1, mode="waits")
    assert result["monopoly_ns"] is None
    assert result["overtakes"] == 0
    assert 0 <= result["wait"]["count"] - result["acquisitions"][0] <= 1


def test_long_holds_and_thinks_sleep() -> None:
    result = go("threading.Lock", 3, hold_ns=2_000_000, think_ns=100_000, seconds=0.3)
    assert sum(result["acquisitions"]) <= 0.3 / 0.002 + 6, "a sleep is never shorter than asked"
    assert result["process_cpu_s"] < 0.25
    computing = go("threading.Lock", 1, hold_ns=50_000, seconds=0.2)
    assert computing["process_cpu_s"] > 0


def test_the_uncontended_preset_has_both_ways() -> None:
    result = go("threading.RLock", 1, preset="uncontended", seconds=0.02)
    pair = result["pair_ns"]
    assert pair["net"] == pytest.approx(pair["gross"] - pair["loop"])
    assert result["extra"]["with_net_ns"] == pytest.approx(result["extra"]["with_gross_ns"] - pair["loop"])
    assert result["acquisitions"][0] % 1000 == 0


def test_threads_are_pinned_where_that_was_asked_for() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this platform has no affinity")
    allowed = sorted(os.sched_getaffinity(0))

    class Where(crew.Body[set[int]]):
        def work(self, me: int, running: list[bool], opening: crew.Opening) -> set[int]:
            return os.sched_getaffinity(0)

    found = crew.run(3, Where(), 0.01, allowed).found
    assert found == [{allowed[me % len(allowed)]} for me in range(3)]
    assert sorted(os.sched_getaffinity(0)) == allowed, "the coordinator is left alone"


def test_rounds_whose_cpus_were_taken_away_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)

    def judged(gil: bool, threads: int, busy_s: float, steal_s: float = 0.0) -> Any:
        monkeypatch.setattr(engine, "_gil_enabled", lambda: gil)
        result: Any = {"status": "ok", "why": None, "acquisitions": [1] * threads, "process_cpu_s": 1.0}
        before, after = noise.Sample(5.0, None, 7.0, None, 100.0), noise.Sample(6.0, None, 7.0 + steal_s, None, 100.0 + busy_s)
        found = engine._judged(result, before, after)
        return found["status"], found["why"]

    assert judged(True, 8, busy_s=2.0) == ("ok", None), "the other CPU is not ours to use"
    assert judged(True, 8, busy_s=2.5) == ("invalid", "other processes left only 50% of the CPU time")
    assert judged(False, 8, busy_s=2.0) == ("invalid", "other processes left only 50% of the CPU time")
    assert judged(False, 1, busy_s=2.0) == ("ok", None)
    assert judged(False, 2, busy_s=1.1) == ("ok", None)
    assert judged(False, 2, busy_s=1.0, steal_s=0.5) == ("invalid", "the hypervisor took 25% of the CPU time")
    pair: Any = {"status": "ok", "acquisitions": [1], "process_cpu_s": 0.5, "pair_ns": {"net": 1.0}}
    before, after = noise.Sample(5.0, None, 7.0, None, 100.0), noise.Sample(6.0, None, 7.0, None, 102.0)
    assert engine._judged(pair, before, after)["status"] == "ok", "medians of batches do without the moments that others ran"
    unknown = noise.Sample(5.0, None, None, None)
    result: Any = {"status": "ok", "acquisitions": [1], "process_cpu_s": 1.0}
    assert engine._judged(result, unknown, unknown) == {"status": "ok", "acquisitions": [1], "process_cpu_s": 1.0}


def test_wait_buckets_hold_their_values_and_are_narrow() -> None:
    chance = random.Random(5)
    waits = [chance.getrandbits(chance.randrange(1, 40)) for _ in range(5_000)] + [0, 15, 16, 17, 2**40]
    counted = figures.wait_counts(waits)
    assert (counted["count"], counted["max_ns"], counted["sum_ns"]) == (len(waits), max(waits), sum(waits))
    edges = [(low, high) for low, high, _ in counted["histogram"]]
    assert edges == sorted(edges)
    assert all(first[1] < second[0] for first, second in itertools.pairwise(edges))
    assert all(high - low <= low / 16 for low, high in edges)
    for low, high, count in counted["histogram"]:
        assert count == sum(low <= wait <= high for wait in waits)


def test_runs_are_what_lies_between_their_starts() -> None:
    counted = figures.run_counts([10, 11, 14, 15], 20)
    assert counted == {"histogram": [(1, 2), (3, 1), (5, 1)], "longest": 5, "mean": 2.5, "runs": 4}
    assert figures.run_counts([], 5) is None


def test_overtakes_are_counted_by_their_definition() -> None:
    chance = random.Random(3)
    for _ in range(30):
        arrivals = [chance.randrange(0, 3_000) for _ in range(40)]
        notes = [loops.Notes(0, 0) for _ in range(3)]
        for number, arrival in enumerate(arrivals):
            one = notes[chance.randrange(3)]
            one.numbers.append(number)
            one.arrivals.append(arrival)
        overtaking = sum(any(later + 100 < arrivals[i] for later in arrivals[i + 1 :]) for i in range(40))
        overtaken = sum(any(earlier > arrivals[i] + 100 for earlier in arrivals[:i]) for i in range(40))
        assert figures.overtakes(notes) == (overtaking, overtaken, 40)


# --- runs -----------------------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_a_round_and_all_its_threads() -> None:
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        go("threading.Lock", 4, seconds=30)
    assert time.monotonic() - began < 15
    timer.join()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ticketlock-bench-")]


def test_the_library_runs_python_threads() -> None:
    results = bench.run(
        driver="python", locks=["threading.Lock", name_of(Listed)], threads=2, seconds=0.05, rounds=2, aa="ticket"
    )
    assert results.preset == "oversubscribed"
    assert [cell.label for cell in results.cells] == ["threading.Lock", name_of(Listed), "ticket", "ticket A/A"]
    assert {cell.driver for cell in results.cells} == {"python"}
    for cell in results.cells:
        assert cell.status == "ok" or cell.why
        assert (cell.params["hold_sleeps"], cell.params["think_sleeps"]) == (False, False)
        assert cell.params["pin"] == "none"


def test_a_bad_lock_is_an_invalid_cell_beside_good_ones() -> None:
    results = bench.run(driver="python", locks=["threading.Lock", name_of(NoExclusion)], threads=2, seconds=0.02, rounds=2)
    good, bad = results.cells
    assert good.throughput_per_s.median is None or good.throughput_per_s.median > 0
    assert bad.status == "invalid"
    assert "two threads held it at once" in str(bad.why)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "semaphore"}, "preset: 'semaphore' is not accepted; give one of uncontended, oversubscribed"),
        ({"locks": "std"}, "locks: 'std'.*module:factory"),
        ({"cap": 16}, "cap: '16' is not accepted; give it only with another driver"),
        ({"preset": "uncontended", "hold": 5}, r"hold: '5' .*\(oversubscribed\)"),
        ({"lock_count": 2}, "lock_count: '2'"),
        ({"aa": "nosuch"}, "aa: 'nosuch'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        bench.run(driver="python", **options)


def test_an_unknown_driver_is_refused() -> None:
    with pytest.raises(BadValueError, match="driver: 'nosuch' is not accepted; give one of native, python"):
        bench.run(driver="nosuch")


@pytest.mark.parametrize(
    "arguments",
    [
        ["oversubscribed", "--threads", "1,3", "--seconds", "0.02", "--rounds", "2", "--aa", "threading.RLock"],
        ["uncontended", "--seconds", "0.005", "--rounds", "2"],
        ["--hold", "1ms", "--threads", "2", "--seconds", "0.02", "--rounds", "1"],
    ],
)
def test_the_command_with_python_threads(arguments: list[str]) -> None:
    wanted = [*arguments, "--driver", "python", "--locks", "threading.Lock,threading.RLock,auto"]
    done = command("bench", *wanted, "--json", program=REAL)
    assert (done.returncode, done.stderr) == (0, b"")
    document = strict(done.stdout.decode())
    validator("bench-1").validate(document)
    assert {cell["driver"] for cell in document["cells"]} == {"python"}
    done = command("bench", *wanted, program=REAL)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Python threads" in done.stdout
    assert b"threading.RLock" in done.stdout
    assert command("bench", *wanted, "--csv", program=REAL).stdout.count(b"python,") == len(document["cells"])


def test_the_command_finds_a_module_beside_it(tmp_path: Any) -> None:
    (tmp_path / "mine.py").write_text("import threading\nclass MyLock(type(threading.RLock())):\n    pass\n")
    (tmp_path / "broken.py").write_text("raise OSError('no such luck')\n")
    program = [sys.executable, "-P", "-c", "import sys; from ticketlock.cli import main; sys.exit(main())"]

    def bench_with(locks: str) -> Any:
        arguments = ["bench", "--driver", "python", "--threads", "2", "--seconds", "0.02", "--rounds", "1", "--locks", locks]
        return subprocess.run([*program, *arguments], cwd=tmp_path, env=environment(), capture_output=True, timeout=50)

    done = bench_with("mine:MyLock")
    assert done.returncode == 0, done.stderr
    assert b"mine:MyLock" in done.stdout
    refused = bench_with("broken:MyLock")
    assert refused.returncode == 2
    assert b"--locks: 'broken:MyLock' is not accepted" in refused.stderr
    assert b"OSError: no such luck" in refused.stderr


def test_the_list_names_the_locks_of_each_driver() -> None:
    native, python = (command("bench", "list", *more, program=REAL).stdout for more in ([], ["--driver", "python"]))
    assert b"parking_lot-fair" in native
    assert b"module:factory" not in native
    assert b"module:factory" in python
    assert b"parking_lot" not in python
    assert all(b"oversubscribed" in one and b"uncontended" in one for one in (native, python))
