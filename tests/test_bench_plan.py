"""Cells, placements and the order in which they run."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from ticketlock.bench import plan, topology
from ticketlock.bench.plan import Options
from ticketlock.bench.presets import PRESETS
from ticketlock.bench.topology import Cpu
from ticketlock.bench.values import BadValueError

if TYPE_CHECKING:
    from pathlib import Path

# Two cores of two siblings each, numbered as Linux often does: siblings far apart.
SMT = [Cpu(0, 0, 0), Cpu(0, 1, 1), Cpu(0, 0, 2), Cpu(0, 1, 3)]
PLAIN = [Cpu(0, 0, 0), Cpu(0, 1, 1)]


def make(engine: Any, preset: str = "semaphore", cpus: list[Cpu] = PLAIN, **options: Any) -> plan.Plan:
    return plan.make(preset, Options(**options), engine, cpus)


def wide(scripted: Any) -> Any:
    engine = scripted()
    machine = engine.machine()
    machine["cpus"]["usable"] = 4
    engine.machine = lambda: machine
    return engine


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("none", []), ("spread", [0, 1, 2, 3, 0]), ("compact", [0, 2, 1, 3, 0]), ("cores", [0, 1, 0, 1, 0])],
)
def test_placements_on_siblings(policy: str, expected: list[int]) -> None:
    assert topology.placement(policy, 5, SMT) == expected


def test_topology_is_read_from_sysfs(tmp_path: Path) -> None:
    for number, core in ((0, 0), (1, 0), (4, 1)):
        entry = tmp_path / f"cpu{number}" / "topology"
        entry.mkdir(parents=True)
        (entry / "physical_package_id").write_text("0\n")
        (entry / "core_id").write_text(f"{core}\n")
    assert topology.cores(topology.read([0, 1, 4], tmp_path)) == [[0, 1], [4]]
    assert topology.siblings(topology.read([0, 1, 4], tmp_path)) == [0, 1]
    assert topology.siblings(topology.read([0, 4], tmp_path)) is None


def test_cpus_without_an_entry_are_cores_of_their_own(tmp_path: Path) -> None:
    assert topology.cores(topology.read([2, 3], tmp_path)) == [[2], [3]]


def test_default_cells_are_every_lock_at_every_thread_count(scripted: Any) -> None:
    made = make(scripted())
    preset = PRESETS["semaphore"]
    assert [(cell.threads, cell.lock) for cell in made.cells] == [(n, lock) for n in preset.threads for lock in preset.locks]
    assert {cell.threads for cell in made.cells if cell.oversubscribed} == {4, 8, 16, 24}
    assert made.slices == (5 + 3) * 54


def test_cells_that_fit_are_pinned_and_others_are_left_to_the_scheduler(scripted: Any) -> None:
    by_threads = {cell.threads: cell for cell in make(scripted(), threads="1,2,3").cells}
    assert [by_threads[n].cpus for n in (1, 2, 3)] == [(0,), (0, 1), ()]
    assert by_threads[3].placement == "none"


def test_a_placement_that_was_asked_for_also_holds_for_many_threads(scripted: Any) -> None:
    cells = make(scripted(), cpus=SMT, threads=8, pin="compact").cells
    assert {cell.cpus for cell in cells} == {(0, 2, 1, 3)}, "none twice: threads take them in turn"


def test_one_cpu_labels_two_threads_oversubscribed_row15(scripted: Any) -> None:
    cells = make(scripted(), cpus=[Cpu(0, 0, 0)], threads="1,2").cells
    assert {cell.threads: cell.oversubscribed for cell in cells} == {1: False, 2: True}


def test_pinning_is_refused_where_the_platform_has_none(scripted: Any) -> None:
    with pytest.raises(BadValueError, match="pin: 'spread'"):
        make(scripted(), cpus=[], pin="spread")
    assert make(scripted(), cpus=[], pin="none").cells
    assert {cell.cpus for cell in make(scripted(), cpus=[]).cells} == {()}


def test_fairness_compares_siblings_with_cores_and_more_cpus(scripted: Any) -> None:
    loads = {(cell.threads, cell.placement): cell.cpus for cell in make(wide(scripted), "fairness", SMT).cells}
    assert loads == {(2, "cores"): (0, 1), (2, "siblings"): (0, 2), (4, "spread"): (0, 1, 2, 3)}
    loads = {(cell.threads, cell.placement): cell.cpus for cell in make(scripted(), "fairness", PLAIN).cells}
    assert loads == {(2, "cores"): (0, 1)}


def test_fairness_on_one_core_with_siblings_has_no_cores_placement(scripted: Any) -> None:
    loads = {(cell.threads, cell.placement) for cell in make(scripted(), "fairness", [Cpu(0, 0, 0), Cpu(0, 0, 1)]).cells}
    assert loads == {(2, "siblings")}


def test_only_locks_that_tune_a_delay_are_repeated_for_caps(scripted: Any) -> None:
    cells = make(scripted(), locks="ticket,auto", threads=2, cap="16,native").cells
    assert [(cell.lock, cell.cap) for cell in cells] == [("ticket", None), ("auto", 16), ("auto", 16_000)]


def test_phantom_shows_the_native_cap_beside_a_guests(scripted: Any) -> None:
    assert [(cell.lock, cell.cap) for cell in make(scripted(), "phantom").cells] == [
        ("ticket", None),
        ("proportional:50", None),
        ("auto", None),
        ("auto", 16_000),
    ]


def test_oversubscribed_goes_by_the_usable_cpus(scripted: Any) -> None:
    loads = {(cell.threads, cell.placement, cell.oversubscribed) for cell in make(scripted(), "oversubscribed").cells}
    assert loads == {(2, "spread", False), (8, "none", True), (32, "none", True)}
    assert {cell.threads for cell in make(wide(scripted), "oversubscribed", SMT).cells} == {4, 16, 64}
    many = [Cpu(0, number, number) for number in range(128)]
    engine = scripted()
    machine = engine.machine()
    machine["cpus"]["usable"] = 128
    engine.machine = lambda: machine
    assert {cell.threads for cell in make(engine, "oversubscribed", many).cells} == {128, 512, 1024}
    assert {cell.threads for cell in make(scripted(), "oversubscribed", threads="3").cells} == {3}


def test_one_lock_may_be_measured_twice(scripted: Any) -> None:
    cells = make(scripted(), "oversubscribed", locks="lock,std", threads=2, aa="std").cells
    assert [(cell.lock, cell.again) for cell in cells] == [("lock", False), ("std", False), ("std", True)]
    cells = make(scripted(), locks="std", threads=1, aa="auto", cap="16,native").cells
    assert [(cell.lock, cell.cap, cell.again) for cell in cells] == [
        ("std", None, False),
        *(("auto", cap, again) for cap in (16, 16_000) for again in (False, True)),
    ]


def test_python_threads_are_not_pinned_unless_asked_for(scripted: Any) -> None:
    engine = scripted()
    engine.driver = "python"
    engine.parse_lock = lambda name: {"family": "any"}
    assert {cell.cpus for cell in make(engine, "oversubscribed", locks="x", threads="1,2").cells} == {()}
    assert {cell.cpus for cell in make(engine, "oversubscribed", locks="x", threads=2, pin="spread").cells} == {(0, 1)}
    assert make(engine, "oversubscribed", locks="x").driver == "python"


def test_iterations_and_seconds(scripted: Any) -> None:
    engine = scripted()
    assert (make(engine, "fairness").iterations, make(engine, "fairness").seconds) == (1_000_000, 60.0)
    assert make(engine, "fairness", iterations="10000000").iterations == 10_000_000
    assert (make(engine, "fairness", seconds=1).iterations, make(engine, "fairness", seconds=1).seconds) == (None, 1.0)
    both = make(engine, iterations=5, seconds=0.5)
    assert (both.iterations, both.seconds) == (5, 0.5)
    assert make(engine, iterations=5).seconds == 60.0


@pytest.mark.parametrize(
    ("preset", "options", "message"),
    [
        ("nosuch", {}, "preset: 'nosuch' is not accepted; give one of uncontended, semaphore"),
        ("semaphore", {"threads": 0}, "threads: '0'"),
        ("semaphore", {"locks": "nosuch"}, "locks: 'nosuch'"),
        ("semaphore", {"hold": -5}, "hold: '-5'"),
        ("semaphore", {"seconds": float("nan")}, "seconds: 'nan'"),
        ("semaphore", {"rounds": 0}, "rounds: '0'"),
        ("semaphore", {"seed": -1}, "seed: '-1'"),
        ("semaphore", {"pin": "left"}, "pin: 'left' is not accepted; give one of none, spread"),
        ("semaphore", {"lock_count": 0}, "lock_count: '0'"),
        ("semaphore", {"line": 3}, r"line: '3' .*\(phantom\)"),
        ("semaphore", {"iterations": 5, "lock_count": 2}, "iterations: '5'"),
        ("uncontended", {"threads": "2"}, "threads: '2' is not accepted; give 1 with preset uncontended"),
        ("uncontended", {"hold": 5}, r"hold: '5' .*\(semaphore, fairness, oversubscribed\)"),
        ("fairness", {"threads": 1}, "threads: '1' is not accepted; give thread counts from 2 to 1024"),
        ("fairness", {"lock_count": 2}, "lock_count: '2'"),
        ("phantom", {"threads": "3"}, "threads: '3' is not accepted; give 2"),
        ("phantom", {"locks": "std"}, "locks: 'std'"),
        ("phantom", {"line": 0}, "line: '0'"),
    ],
)
def test_refusals_come_before_any_round(scripted: Any, preset: str, options: dict[str, Any], message: str) -> None:
    engine = scripted()
    with pytest.raises(BadValueError, match=message):
        make(engine, preset, **options)
    assert engine.asked == []


def test_every_round_visits_every_cell_once_in_groups(scripted: Any) -> None:
    engine = scripted()
    made = make(engine, threads="1,2,4", locks="ticket,auto,std", rounds=5, seed=7)
    found = plan.passes(made, engine)
    assert [(one.mode, one.index) for one in found] == [
        ("throughput", 0),
        ("waits", 0),
        ("throughput", 1),
        ("throughput", 2),
        ("waits", 1),
        ("throughput", 3),
        ("throughput", 4),
        ("waits", 2),
    ]
    for one in found:
        assert sorted(one.order) == list(range(9))
        threads = [made.cells[index].threads for index in one.order]
        changes = sum(first != second for first, second in itertools.pairwise(threads))
        assert changes == 2, "a group runs in one go"
    assert len({one.order for one in found}) > 1


def test_a_seed_repeats_the_order(scripted: Any) -> None:
    engine = scripted()
    first, again, other = (plan.passes(make(engine, seed=seed), engine) for seed in (1, 1, 2))
    assert first == again != other


def test_seeds_differ_without_one(scripted: Any) -> None:
    seeds = Counter(make(scripted()).seed for _ in range(4))
    assert len(seeds) > 1
