"""What is drawn, as a pure function of data and size."""

from __future__ import annotations

import itertools
from typing import Any

import fake_lab
import pytest
from ticketlock import bench
from ticketlock.bench import plan
from ticketlock.bench.plan import Options
from ticketlock.bench.runner import Progress
from ticketlock.bench.topology import Cpu
from ticketlock.cli import glyphs, live, report, text
from ticketlock.cli.plot import Series, line_plot
from ticketlock.cli.table import Column, Heading, render

SETS = pytest.mark.parametrize("drawn", [glyphs.UNICODE, glyphs.ASCII], ids=["unicode", "ascii"])


def shown(lines: Any) -> list[str]:
    return text.to_text(lines, colour=False).split("\n")[:-1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (0, "0"),
        (1.0, "1"),
        (0.00123, "0.00123"),
        (1e-7, "1.0e-07"),
        (12.345, "12.3"),
        (1234.5, "1234"),
        (2e9, "2.00e+09"),
    ],
)
def test_numbers(value: float | None, expected: str) -> None:
    assert text.number(value) == expected


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [(None, "-"), (0, "0ns"), (999, "999ns"), (999.9, "1us"), (1500, "1.5us"), (2.5e6, "2.5ms"), (3.2e9, "3.2s"), (9e11, "900s")],
)
def test_durations(nanoseconds: float | None, expected: str) -> None:
    assert text.duration(nanoseconds) == expected


def test_running_times() -> None:
    assert [text.seconds(value) for value in (None, 0, 59.6, 61, 3661, -5)] == ["-:--", "0:00", "1:00", "1:01", "1:01:01", "0:00"]


def test_foreign_text_loses_what_could_move_the_cursor() -> None:
    assert text.clean("a\x1b]0;x\x07b\u202ec\ud800") == "a?]0;x?b?c?"
    assert text.clean("日本 name") == "日本 name"


def test_widths_count_cells_not_characters() -> None:
    assert text.cell_width("日本") == 4
    assert text.fit("日本語", 5) == "日本"
    assert text.pad("日本", 5) == "日本 "
    assert text.pad("abc", 2, ">") == "ab"
    assert text.line_width(text.crop((("ab", ""), ("cd", "red")), 3)) == 3


def test_styles_become_escapes_only_with_colour() -> None:
    line = (("x", "bold red"), (" y", ""))
    assert text.to_text([line], colour=True) == "\x1b[1;31mx\x1b[0m y\n"
    assert text.to_text([line], colour=False) == "x y\n"


def test_a_table_drops_the_least_important_columns_first() -> None:
    columns = [Column("name", align="<"), Column("second", rank=2), Column("first", rank=9), Column("kept")]
    rows = [Heading("group"), (("a", ""), ("22", ""), ("1", ""), ("0", ""))]
    titles = {width: shown(render(columns, rows, width, glyphs.ASCII))[0].split() for width in (40, 20, 12, 3)}
    assert titles == {
        40: ["name", "second", "first", "kept"],
        20: ["name", "second", "kept"],
        12: ["name", "kept"],
        3: ["name", "kept"],
    }


@SETS
def test_a_plot_stays_inside_its_size(drawn: glyphs.Glyphs) -> None:
    series = [Series("one", (1.0, 1000.0, None)), Series("two", (500.0, None, 3.0)), Series("none", (None, None, None))]
    for columns, rows in itertools.product((1, 20, 24, 40, 100), (1, 5, 15)):
        lines = line_plot(series, ["1", "2", "4"], "title", (columns, rows), drawn)
        assert all(text.line_width(line) <= columns for line in lines)
        assert bool(lines) == (columns >= 24 and rows >= 5)


def test_a_plot_marks_every_point_with_its_letter_and_names_it() -> None:
    lines = shown(line_plot([Series("up", (1.0, 2.0)), Series("down", (2.0, 1.0))], ["1", "8"], "t", (40, 8), glyphs.ASCII))
    body = "\n".join(lines[1:9])
    assert (body.count("A"), body.count("B")) == (2, 2)
    assert lines[-1].split() == ["A", "up", "B", "down"]
    assert lines[-2].split() == ["1", "8"]
    first, last = lines[1], lines[5]
    assert first.index("B") < first.index("A"), "down starts and up ends at the top"
    assert last.index("A") < last.index("B")


def test_a_plot_of_points_that_coincide_shows_all_letters() -> None:
    lines = shown(line_plot([Series(str(n), (5.0, 5.0)) for n in range(3)], ["1", "2"], "t", (40, 5), glyphs.ASCII))
    assert "ABC" in lines[1]


def test_a_wide_range_gets_a_logarithmic_axis() -> None:
    assert "logarithmic" in shown(line_plot([Series("x", (1.0, 100.0))], ["1", "2"], "t", (60, 5), glyphs.ASCII))[0]
    assert "logarithmic" not in shown(line_plot([Series("x", (1.0, 10.0))], ["1", "2"], "t", (60, 5), glyphs.ASCII))[0]


def test_nothing_to_plot_row14() -> None:
    assert line_plot([Series("x", (None,))], ["1"], "t", (60, 5), glyphs.ASCII) == []
    assert line_plot([], [], "t", (60, 5), glyphs.ASCII) == []
    assert line_plot([Series("x", (0.0,))], ["1"], "t", (60, 5), glyphs.ASCII) == []


def test_sparklines() -> None:
    assert glyphs.sparkline((0.0, 4.0, 8.0), 4, 8.0, glyphs.UNICODE) == " ▁▄█"
    assert glyphs.sparkline((1.0,) * 9, 3, 1.0, glyphs.ASCII) == "%%%"
    assert glyphs.sparkline((0.0,), 2, 0.0, glyphs.ASCII) == " ."
    assert glyphs.sparkline((1.0,), 0, 1.0, glyphs.ASCII) == ""


@SETS
@pytest.mark.parametrize("preset", ["uncontended", "semaphore", "fairness", "phantom", "oversubscribed"])
def test_reports_of_every_preset_at_every_width(scripted: Any, preset: str, drawn: glyphs.Glyphs) -> None:
    results = bench.run(preset, engine=scripted(), rounds=2, seed=1)
    for width in (1, 8, 40, 80, 200):
        lines = report.lines(results, width, drawn)
        assert lines
        if drawn is glyphs.ASCII:
            text.to_text(lines, colour=True).encode("ascii")


def test_reports_without_any_figure_row14(scripted: Any) -> None:
    for preset in ("uncontended", "semaphore", "fairness", "phantom", "oversubscribed"):
        with pytest.raises(bench.Interrupted) as stopped:
            bench.run(preset, engine=scripted(lambda spec, n: KeyboardInterrupt()), rounds=2, seed=1)
        lines = shown(report.lines(stopped.value.results, 120, glyphs.ASCII))
        assert "stopped early: partial results" in lines
        assert not any("nan" in line or "None" in line for line in lines)


def test_the_best_lock_is_marked_and_ties_too(scripted: Any) -> None:
    def script(spec: dict[str, Any], n: int) -> Any:
        rates = {"ticket": (100, 100), "auto": (200, 198), "std": (199, 201)}
        return fake_lab.measured(spec, rates[spec["lock"]][n % 2] * 2) if spec["mode"] == "throughput" else None

    results = bench.run("semaphore", engine=scripted(script), locks="ticket,auto,std", threads=2, rounds=2, seed=1)
    rows = {line.split()[0]: line for line in shown(report.lines(results, 200, glyphs.ASCII)) if line}
    assert rows["std"].split()[1] == "*"
    assert rows["auto"].split()[1] == "~"
    assert rows["ticket"].split()[1] not in ("*", "~")


def test_the_first_lock_is_the_reference_where_the_usual_one_did_not_run(scripted: Any) -> None:
    results = bench.run("semaphore", engine=scripted(), locks="std,auto", threads=2, rounds=2, seed=1)
    lines = shown(report.lines(results, 200, glyphs.ASCII))
    assert "x std" in lines[0]
    assert next(line for line in lines if line.startswith("auto")).split()[3] == "0.75"


def test_the_oversubscribed_table_compares_with_the_best_peer(scripted: Any) -> None:
    def script(spec: dict[str, Any], n: int) -> Any:
        rates = {"lock": 1_010, "std": 1_000, "parking_lot": 900}
        return fake_lab.measured(spec, rates[spec["lock"]] * 2) if spec["mode"] == "throughput" else None

    options: dict[str, Any] = {"locks": "lock,std,parking_lot", "threads": 2, "rounds": 7, "seed": 1, "aa": "lock"}
    results = bench.run("oversubscribed", engine=scripted(script), **options)
    drawn = report.lines(results, 300, glyphs.ASCII)
    text = " ".join(shown(drawn))
    rows = {line[:10].strip(): line.split() for line in shown(drawn)}
    assert "1.01" in rows["lock *"]
    assert "1.01-1.01" in rows["lock *"]
    assert "1.01" in rows["lock A/A ~"]
    assert not any("-1." in word and word.startswith("1.") for word in rows["std"]), "a peer is not compared"
    assert "2 threads, lock over std: throughput 1.010 (95 %: 1.010 to 1.010, 7 rounds)" in text
    assert "CPU per acquisition" in text
    assert "lock over itself: throughput 1.000 (95 %: 1.000 to 1.000, 7 rounds), covers 1" in text


def test_cells_of_one_lock_that_differ_are_pointed_out(scripted: Any) -> None:
    def script(spec: dict[str, Any], n: int) -> Any:
        # Asked for in turn: the second cell of the lock does better.
        return fake_lab.measured(spec, 1_000 + 100 * (n % 2)) if spec["mode"] == "throughput" else None

    engine = scripted(script)
    engine.order = lambda seed, cells, rounds: [list(range(cells)) for _ in range(rounds)]
    results = bench.run("oversubscribed", engine=engine, locks="lock", threads=2, rounds=6, seed=1, aa="lock")
    text = " ".join(shown(report.lines(results, 300, glyphs.ASCII)))
    assert "throughput 1.100 (95 %: 1.100 to 1.100, 6 rounds), does NOT cover 1" in text
    few = bench.run("oversubscribed", engine=scripted(), locks="lock", threads=2, rounds=5, seed=1, aa="lock")
    assert "cover" not in " ".join(shown(report.lines(few, 300, glyphs.ASCII))), "too few rounds for a verdict"


def test_tables_of_python_threads(scripted: Any) -> None:
    def script(spec: dict[str, Any], n: int) -> Any:
        extra = {"with_net_ns": 8.0, "with_gross_ns": 9.0} if spec["preset"] == "uncontended" else {}
        return {**fake_lab.measured(spec), "extra": extra}

    for preset, expected in (("uncontended", "with net ns"), ("oversubscribed", "threading.RLock")):
        engine = scripted(script)
        engine.driver = "python"
        engine.locks = list
        engine.parse_lock = lambda name: {"family": "any"}
        results = bench.run(preset, engine=engine, locks="threading.Lock,threading.RLock,rlock,lock", rounds=6, seed=1)
        text = "\n".join(shown(report.lines(results, 300, glyphs.ASCII)))
        assert expected in text
        assert "rlock over threading.RLock" in text
        assert "lock over threading.Lock" in text


def test_oversubscribed_cells_say_so(scripted: Any) -> None:
    results = bench.run("semaphore", engine=scripted(), locks="ticket", threads="1,64", rounds=1, seed=1)
    lines = "\n".join(shown(report.lines(results, 120, glyphs.ASCII)))
    assert "64 threads (oversubscribed)" in lines
    assert "1 thread -" in lines


def snapshot(scripted: Any, rows: int, current: bool = True) -> live.Snapshot:
    ready = plan.make("semaphore", Options(locks="auto", threads=24, rounds=3, seed=1), scripted(), [Cpu(0, 0, 0), Cpu(0, 1, 1)])
    progress = Progress(ready.cells[0], "throughput", 2, 3, 4, 12, 5.0, 10.0, 3.2e6)
    delays = tuple(
        live.DelayLine(
            n + 1, 100_000 + n, "\x1b[2Jname", None if n % 5 == 4 else n, n, 1.0 + n % 16, n * 10**7, n, (1.0, 5.0, 16.0)
        )
        for n in range(rows)
    )
    return live.Snapshot("semaphore", progress, delays, 16, current, "auto, 24 threads")


@SETS
@pytest.mark.parametrize("frame", [live.live_frame, live.progress_frame])
def test_frames_stay_inside_any_size_row2(scripted: Any, drawn: glyphs.Glyphs, frame: Any) -> None:
    for rows in (0, 1, 24, 500):
        data = snapshot(scripted, rows)
        for width, height in itertools.product((0, 1, 8, 20, 31, 32, 40, 60, 80, 132, 250), (0, 1, 3, 5, 10, 24, 60)):
            lines = frame(data, width, height, drawn)
            assert len(lines) <= height
            assert all(text.line_width(line) <= width for line in lines), (width, height)
            assert not any("\x1b" in part for line in lines for part, _ in line)
            assert bool(lines) == (width > 0 and height > 0)


def test_a_live_frame_shows_progress_and_delays(scripted: Any) -> None:
    lines = shown(live.live_frame(snapshot(scripted, 30), 120, 12, glyphs.ASCII))
    assert "33% ETA 0:10" in lines[1]
    assert "auto, 24 threads, round 2/3" in lines[1]
    assert lines[2].startswith("* delay tables of auto, 24 threads (cap 16 units)")
    assert lines[3].split() == ["thread", "lock", "slot", "delay", "history", "hits", "collisions"]
    assert lines[-1] == "and 23 more"
    assert len(lines) == 12


def test_a_tiny_live_frame_is_the_status(scripted: Any) -> None:
    assert shown(live.live_frame(snapshot(scripted, 30), 8, 3, glyphs.ASCII)) == ["33% ETA"]


def test_delays_last_seen_are_marked_stale(scripted: Any) -> None:
    lines = shown(live.live_frame(snapshot(scripted, 2, current=False), 100, 10, glyphs.ASCII))
    assert lines[2].startswith("o delay tables last seen in auto")


def test_the_feed_keeps_history_by_place_and_the_last_delays(scripted: Any) -> None:
    rows: list[Any] = []
    feed = live.Feed("semaphore", 16, lambda: list(rows))
    feed.poll()
    assert feed.snapshot().delays == ()
    progress = snapshot(scripted, 0).progress
    assert progress is not None
    feed.progress(progress)
    rows[:] = [(11, 900, 1, 3, 2.0, 5, 0), (10, 900, 1, 3, 1.0, 5, 0), (10, 0, 0, -1, 7.0, 0, 0)]
    feed.poll()
    # The next round has other threads and another lock in the same places.
    rows[:] = [(21, 901, 1, 9, 4.0, 6, 0), (20, 901, 1, 9, 3.0, 6, 0), (20, 0, 0, -1, 8.0, 0, 0)]
    feed.poll()
    found = feed.snapshot()
    assert found.current
    assert [(row.thread, row.lock, row.slot, row.history) for row in found.delays] == [
        (1, None, None, (7.0, 8.0)),
        (1, 901, 9, (1.0, 3.0)),
        (2, 901, 9, (2.0, 4.0)),
    ]
    rows.clear()
    feed.poll()
    stale = feed.snapshot()
    assert not stale.current
    assert stale.delays == found.delays


def test_a_lock_is_named_by_id_or_by_address() -> None:
    assert [live.lock_name(lock) for lock in (None, 7, 0x55EE_8AB3_C040, (1 << 48) - 1)] == [
        "all",
        "7",
        "0x55ee8ab3c040",
        "0xffffffffffff",
    ]
