"""The loop over rounds: interleaving, reruns, invalid cells, interruption, and exact figures from scripted rounds."""

from __future__ import annotations

import json
from typing import Any

import fake_lab
import pytest
from ticketlock import bench
from ticketlock.bench import plan, runner
from ticketlock.bench.plan import Options
from ticketlock.bench.topology import Cpu


def run(engine: Any, preset: str = "semaphore", **options: Any) -> bench.Results:
    options = {"threads": 2, "locks": "ticket,std", "rounds": 4, "seed": 1, **options}
    return bench.run(preset, engine=engine, **options)


def test_throughput_and_waits_rounds_are_separate(scripted: Any) -> None:
    engine = scripted()
    results = run(engine)
    modes = [spec["mode"] for spec in engine.asked]
    assert (modes.count("throughput"), modes.count("waits")) == (8, 4)
    cell = results.cells[0]
    assert (cell.params["rounds"], cell.params["waits_rounds"]) == (4, 2)
    assert not results.partial
    assert cell.status == "ok"


def test_every_lock_of_a_round_gets_the_same_seed(scripted: Any) -> None:
    engine = scripted()
    run(engine, rounds=3)
    seeds = [spec["seed"] for spec in engine.asked]
    assert seeds[0::2] == seeds[1::2]
    assert len(set(seeds)) == 3 + 2


def test_rounds_are_aligned_between_locks(scripted: Any) -> None:
    def script(spec: dict[str, Any], n: int) -> Any:
        base = (100, 400, 200, 800)[n] if spec["mode"] == "throughput" else 10
        return fake_lab.measured(spec, base * 2 if spec["lock"] == "std" else base)

    ticket, std = run(scripted(script)).cells
    assert ticket.throughput_per_s.runs == (100, 400, 200, 800)
    assert (ticket.throughput_per_s.median, ticket.throughput_per_s.low, ticket.throughput_per_s.high) == (300, 100, 800)
    assert bench.throughput_ratio(std, ticket) == bench.Ratio(median=2.0, low=2.0, high=2.0, rounds=4)


def test_an_invalid_round_is_run_again_up_to_twice(scripted: Any) -> None:
    failures = {("std", 0), ("std", 1)}

    def script(spec: dict[str, Any], n: int) -> Any:
        if spec["mode"] == "throughput" and (spec["lock"], n) in failures:
            return {**fake_lab.measured(spec), "status": "invalid", "why": "two threads shared a CPU"}
        return None

    ticket, std = run(scripted(script)).cells
    assert (std.status, std.why, std.extra["reruns"]) == ("ok", None, 2)
    assert std.throughput_per_s.runs == (2000,) * 4
    assert ticket.extra["reruns"] == 0


def test_a_round_that_stays_invalid_is_null_in_its_place(scripted: Any) -> None:
    def script(spec: dict[str, Any], n: int) -> Any:
        # Attempts 1, 2 and 3 of std are those of its second round.
        bad = spec["mode"] == "throughput" and spec["lock"] == "std" and n in (1, 2, 3)
        return {**fake_lab.measured(spec), "status": "invalid", "why": "stolen"} if bad else None

    engine = scripted(script)
    ticket, std = run(engine).cells
    assert std.throughput_per_s.runs == (2000, None, 2000, 2000)
    assert std.status == "ok", "three of four rounds are enough"
    found = bench.throughput_ratio(std, ticket)
    assert found is not None
    assert (found.median, found.rounds) == (2.0, 3)


@pytest.mark.parametrize(("bad_rounds", "status"), [(2, "ok"), (3, "invalid"), (4, "invalid")])
def test_a_cell_below_half_of_its_rounds_is_invalid(scripted: Any, bad_rounds: int, status: str) -> None:
    seeds: list[int] = []

    def script(spec: dict[str, Any], n: int) -> Any:
        # All attempts at a round have its seed.
        if spec["mode"] == "throughput" and spec["seed"] not in seeds:
            seeds.append(spec["seed"])
        bad = spec["mode"] == "throughput" and seeds.index(spec["seed"]) < bad_rounds
        return {**fake_lab.measured(spec), "status": "invalid", "why": f"thread {n} was not alone"} if bad else None

    cell = run(scripted(script), locks="std").cells[0]
    assert cell.status == status
    if status == "invalid":
        others = len(cell.extra["invalid_attempts"]) - 1
        assert cell.why == f"{4 - bad_rounds} of 4 rounds valid: thread 0 was not alone (and {others} like it)"
    if bad_rounds == 4:
        assert cell.throughput_per_s == bench.Spread(None, None, None, (None,) * 4)
        assert cell.jain is None
        assert cell.cpu_s_per_million is None


def test_reruns_never_make_a_run_more_than_half_longer(scripted: Any) -> None:
    engine = scripted(lambda spec, n: {**fake_lab.measured(spec), "status": "invalid", "why": "always disturbed"})
    results = run(engine, rounds=10)
    slices = 2 * (10 + 5)
    assert len(engine.asked) == slices + slices // 2
    assert sum(cell.extra["reruns"] for cell in results.cells) == slices // 2
    assert {cell.status for cell in results.cells} == {"invalid"}


def test_a_cell_that_the_engine_refuses_is_not_asked_again(scripted: Any) -> None:
    engine = scripted(lambda spec, n: RuntimeError("stuck for 10 s") if spec["lock"] == "std" else None)
    ticket, std = run(engine).cells
    assert sum(spec["lock"] == "std" for spec in engine.asked) == 1
    assert (std.status, std.why) == ("invalid", "0 of 4 rounds valid: stuck for 10 s")
    assert ticket.status == "ok"


def test_figures_of_a_cell(scripted: Any) -> None:
    cell = run(scripted(), locks="ticket").cells[0]
    assert cell.driver == "scripted"
    assert cell.jain == 1.0
    assert cell.wait_ns == bench.Waits(p50=100, p90=100, p99=150, p999=150, max=150)
    assert cell.run_length == bench.RunLengths(mean=pytest.approx(25 / 6), longest=20, histogram=((1, 20), (16, 4)))
    assert cell.overtakes_per_million == 3000.0
    assert cell.monopoly_ns == bench.Monopoly(p50=40, max=40)
    assert cell.cpu_s_per_million == 1.0 / 1000 * 1e6
    assert cell.context_switches == bench.ContextSwitches(voluntary=4, involuntary=8)
    assert cell.pair_ns is None
    assert cell.extra["acquisitions_per_thread"] == [2000, 2000]


def test_oversubscribed_figures(scripted: Any) -> None:
    def script(spec: dict[str, Any], n: int) -> Any:
        result = fake_lab.measured(spec)
        if spec["mode"] == "waits":
            result["wait"]["max_ns"] = (100, 300, 200, 900)[n]
            result["monopoly_ns"] = (10, 30, 20, 90)[n]
            result["windows"] = [[1, 1], [3, 1], [4, 0]]
        return result

    results = run(scripted(script), "oversubscribed", locks="std")
    cell = results.cells[0]
    assert (cell.params["rounds"], cell.params["waits_rounds"]) == (4, 4), "tails need as many rounds"
    assert cell.extra["longest_wait_ns"] == {"median": 250, "p90": 900, "max": 900}
    assert cell.monopoly_ns == bench.Monopoly(p50=25, max=90)
    assert cell.extra["jain_100ms"] == pytest.approx(0.8), "of the windows 1, 0.8 and 0.5"
    assert cell.extra["waits_runs"]["longest_wait_ns"] == [100, 300, 200, 900]
    assert cell.runs_of("longest_monopoly_ns") == (10, 30, 20, 90)
    assert cell.extra["voluntary_per_acquisition"] == 1 / 2000
    assert cell.extra["involuntary_per_acquisition"] == 2 / 2000
    row = bench.to_csv(results).splitlines()[1].split(",")
    assert row[bench.to_csv(results).splitlines()[0].split(",").index("longest_wait_ns_p90")] == "900"


def test_a_lock_measured_twice_has_two_cells_of_the_same_rounds(scripted: Any) -> None:
    first, again, std = run(scripted(), "oversubscribed", locks="lock,std", aa="lock").cells
    assert [(cell.lock, cell.label, cell.again) for cell in (first, again, std)] == [
        ("lock", "lock", False),
        ("lock", "lock A/A", True),
        ("std", "std", False),
    ]
    assert bench.throughput_ratio(again, first) == bench.Ratio(median=1.0, low=1.0, high=1.0, rounds=4)


def test_unequal_shares_lower_jain(scripted: Any) -> None:
    engine = scripted(lambda spec, n: {**fake_lab.measured(spec), "acquisitions": [30, 10]})
    assert run(engine).cells[0].jain == pytest.approx(1600 / (2 * 1000))


def test_preset_figures(scripted: Any) -> None:
    cell = run(scripted(), "uncontended", threads=None).cells[0]
    assert cell.pair_ns == bench.PairCost(net=4.0, gross=5.0, loop=1.0)
    assert (cell.wait_ns, cell.run_length, cell.overtakes_per_million) == (None, None, None)
    assert cell.extra["runs"]["pair_net_ns"] == [4.0] * 4
    cell = run(scripted(), "phantom", threads=None, locks="ticket").cells[0]
    assert cell.jain is None, "its two threads do different things"
    assert (cell.extra["polls_per_wait"], cell.extra["runs"]["polls_per_wait"]) == (30.0, [30.0] * 4)
    assert cell.extra["series"] == [1.0, 2.0]
    assert cell.params["line"] == 23


def test_rounds_that_measured_nothing_are_null_not_zero_row14(scripted: Any) -> None:
    empty = {"status": "ok", "seconds": 0.0, "acquisitions": [0, 0], "why": None}
    results = run(scripted(lambda spec, n: {**empty, "wait": {"histogram": [], "max_ns": 0, "sum_ns": 0, "count": 0}}), rounds=1)
    cell = results.cells[0]
    assert cell.throughput_per_s.median is None
    assert (cell.jain, cell.wait_ns, cell.cpu_s_per_million, cell.context_switches, cell.run_length) == (None,) * 5
    assert '"jain": null' in results.dumps()


def test_one_round_and_equal_rounds_have_a_spread_of_zero_row14(scripted: Any) -> None:
    one = run(scripted(), rounds=1).cells[0].throughput_per_s
    assert (one.median, one.low, one.high, one.runs) == (1000, 1000, 1000, (1000,))
    equal = run(scripted()).cells[0].throughput_per_s
    assert equal.low == equal.median == equal.high


def test_results_refuse_what_json_has_not_row14(scripted: Any) -> None:
    results = run(scripted(lambda spec, n: {**fake_lab.measured(spec), "cpu_s": [float("nan"), 0.0]}))
    with pytest.raises(ValueError, match="not JSON compliant"):
        results.dumps()


def test_ctrl_c_keeps_what_is_finished_row16(scripted: Any) -> None:
    def script(spec: dict[str, Any], n: int) -> Any:
        return KeyboardInterrupt() if spec["mode"] == "throughput" and n == 2 else None

    with pytest.raises(KeyboardInterrupt) as stopped:
        run(scripted(script))
    assert isinstance(stopped.value, bench.Interrupted)
    results = stopped.value.results
    assert results.partial
    for cell in results.cells:
        assert (cell.status, cell.why) == ("partial", "stopped after 2 of 4 rounds")
        assert cell.throughput_per_s.runs[2:] == (None, None)
        assert None not in cell.throughput_per_s.runs[:2]
    assert json.loads(results.dumps())["partial"] is True


def test_ctrl_c_in_the_last_waits_round_leaves_throughput_complete_row16(scripted: Any) -> None:
    engine = scripted(lambda spec, n: KeyboardInterrupt() if spec["mode"] == "waits" and n == 1 else None)
    with pytest.raises(bench.Interrupted) as stopped:
        run(engine, rounds=3)
    for cell in stopped.value.results.cells:
        assert (cell.status, cell.why) == ("partial", "stopped after 1 of 2 waits rounds")


def test_ctrl_c_in_the_first_round_leaves_empty_cells_row16(scripted: Any) -> None:
    with pytest.raises(bench.Interrupted) as stopped:
        run(scripted(lambda spec, n: KeyboardInterrupt()))
    cell = stopped.value.results.cells[0]
    assert (cell.status, cell.why) == ("partial", "stopped after 0 of 4 rounds")
    assert cell.throughput_per_s == bench.Spread(None, None, None, (None,) * 4)


def test_stop_ends_the_run_between_rounds(scripted: Any) -> None:
    engine = scripted()
    results = run(engine, stop=lambda: len(engine.asked) >= 5)
    assert len(engine.asked) == 5
    assert results.partial


def test_stop_also_ends_reruns(scripted: Any) -> None:
    engine = scripted(lambda spec, n: {**fake_lab.measured(spec), "status": "invalid", "why": "no"})
    run(engine, stop=lambda: len(engine.asked) >= 1)
    assert len(engine.asked) == 1


def test_progress_counts_to_the_end(scripted: Any) -> None:
    events: list[bench.Progress] = []
    results = run(scripted(), progress=events.append)
    total = 2 * (4 + 2)
    assert [event.done for event in events] == list(range(total + 1))
    assert {event.total for event in events} == {total}
    assert events[-1].cell is None
    assert (events[-1].eta_s, events[0].latest_per_s) == (0.0, None)
    assert len(results.cells) == 2


def test_eta_follows_the_clock_it_is_given_row9(scripted: Any) -> None:
    engine = scripted()
    ready = plan.make("semaphore", Options(locks="std", threads=1, rounds=2, seed=1), engine, [Cpu(0, 0, 0)])
    clock = iter(float(second) for second in range(100))
    events: list[bench.Progress] = []
    runner.execute(ready, engine, progress=events.append, command="x", clock=lambda: next(clock))
    # One reading at the start, one for each event: 1, 2, 3 and 4 seconds for 0, 1, 2 and 3 slices of 3.
    assert [event.eta_s for event in events] == [pytest.approx(0.15 * 3), 4.0, 1.5, 0.0]


def test_a_wall_clock_set_back_does_not_matter_row9(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: -3600.0)
    events: list[bench.Progress] = []
    results = run(scripted(), progress=events.append)
    assert all(event.elapsed_s >= 0 and (event.eta_s or 0) >= 0 for event in events)
    assert results.machine["noise"]["elapsed_s"] >= 0


def test_bad_options_are_refused_before_the_first_round(scripted: Any) -> None:
    engine = scripted()
    with pytest.raises(ValueError, match="threads: '0' is not accepted"):
        run(engine, threads=0)
    assert engine.asked == []


def test_csv_has_a_line_a_cell_and_empty_fields_for_unknown_figures(scripted: Any) -> None:
    import csv

    rows = list(csv.DictReader(bench.to_csv(run(scripted())).splitlines()))
    assert [row["lock"] for row in rows] == ["ticket", "std"]
    assert rows[0]["pair_ns_net"] == ""
    assert float(rows[1]["throughput_per_s_median"]) == 2000.0
