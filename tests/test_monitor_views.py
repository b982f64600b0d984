"""What the live screen draws, as a pure function of a state and a size."""

from __future__ import annotations

import re
import time
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import monitor_fakes as fakes
import pytest
from monitor_states import pressed, readings, shown, state_of
from ticketlock.cli import glyphs
from ticketlock.cli.text import cell_width, line_width
from ticketlock.monitor import state as states
from ticketlock.monitor import views
from ticketlock.monitor.columns import COLUMNS
from ticketlock.monitor.errors import IncompatibleError
from ticketlock.monitor.find import Found, Instrumented
from ticketlock.monitor.options import ViewOptions
from ticketlock.monitor.views import chooser, manual
from ticketlock.monitor.views.parts import cut, label, short_site, window

if TYPE_CHECKING:
    from collections.abc import Callable

    from ticketlock.monitor.state import State

SETS = pytest.mark.parametrize("drawn", [glyphs.UNICODE, glyphs.ASCII], ids=["unicode", "ascii"])
SIZES = [
    (80, 24),
    (120, 40),
    (59, 20),
    (40, 10),
    (20, 5),
    (8, 3),
    (1, 1),
    (200, 60),
    (60, 5),
    (59, 5),
    (300, 2),
    (19, 50),
    (0, 0),
]
VIEWS: dict[str, tuple[str, ...]] = {
    "locks": (),
    "detail": ("enter",),
    "threads": ("t",),
    "sites": ("c",),
    "graph": ("g",),
    "help": ("?",),
    "filter": ("/", "x", "["),
    "trend": ("x",),
}
MAKERS: dict[str, Callable[[int], Any]] = {
    "few": fakes.few,
    "hostile": fakes.hostile,
    "deadlock": fakes.deadlock,
    "empty": fakes.empty,
    "abandoned": fakes.abandoned,
    "many": lambda tick: fakes.many(500, tick),
}
STATES: dict[str, State] = {name: state_of(make, 4) for name, make in MAKERS.items()}


@SETS
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", MAKERS)
def test_row_2_every_view_at_every_size_is_exactly_that_size(name: str, view: str, drawn: glyphs.Glyphs) -> None:
    state = pressed(STATES[name], *VIEWS[view])
    for ended in (None, "killed by SIGKILL at 12:31:07"):
        present = state if ended is None else states.ended(state, ended)
        for width, height in SIZES:
            lines = views.render(present, width, height, drawn)
            assert len(lines) == height
            assert all(line_width(line) <= width for line in lines)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", MAKERS)
def test_row_1_the_plain_set_is_ascii(name: str, view: str) -> None:
    if name != "hostile":
        for width, height in SIZES:
            "".join(shown(pressed(STATES[name], *VIEWS[view]), width, height, glyphs.ASCII)).encode("ascii")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437", "latin-1", "utf-8", None, "no-such-encoding"])
def test_row_1_the_set_follows_what_the_stream_can_carry(encoding: str | None) -> None:
    drawn = glyphs.for_encoding(encoding, False)
    for view in VIEWS.values():
        for line in shown(pressed(STATES["few"], *view), drawn=drawn):
            line.encode(encoding if encoding not in (None, "no-such-encoding") else "ascii")
    assert (drawn is glyphs.UNICODE) == (encoding == "utf-8")


def test_nothing_was_read_yet() -> None:
    state = states.start("server.py", ViewOptions())
    assert "no reading yet" in "\n".join(shown(state))
    assert shown(state, 10, 1) == ["starting"]
    assert "Ctrl-C" in "\n".join(shown(pressed(state, "?"))), "help needs no reading"


def test_the_table_at_80x24() -> None:
    lines = shown(STATES["few"])
    assert re.fullmatch(r"ticketlock top  server\.py  locks 5 \(1 hot\)  threads 3 \(2 waiting\) +● live 2/s", lines[0])
    assert re.match(r"wait 37\.7% .*contended 8\.02k/s  acq 186k/s", lines[1])
    assert re.fullmatch(r"  wait%  lock +created at +owner +Q  cont%  acq/s +p50 +p99", lines[2])
    assert re.fullmatch(r"▶  37\.7  cache\.lock +cache\.py:88 +worker-7 +2 +4\.4 +180k +65\.5us +65\.5us", lines[3])
    assert [line.split()[1] for line in lines[4:8]] == ["native.table", "<Lock>", "(46" if "(46" in lines[6] else "(44", "fresh"]
    assert lines[-1].startswith("q quit  ? help  enter detail")


def test_more_columns_fit_at_120x40_and_the_last_minute_too() -> None:
    lines = shown(STATES["few"], 120, 40)
    assert "up 0:02" in lines[0]
    assert "py3.14" in lines[0]
    titles = "wait%  lock  created at  owner  Q  cont%  cont/s  acq/s  p50  p99  max  last 60 s"
    assert lines[2].split() == titles.split()
    assert re.search(r"█+$", lines[3]), "the hot lock was as hot all the time"


def test_a_lock_takes_two_lines_below_60_columns() -> None:
    lines = shown(STATES["few"], 59, 20)
    assert re.fullmatch(r"▶  37\.7%  cache\.lock", lines[2])
    assert re.fullmatch(r" +Q 2  p99 65\.5us  max 656us  worker-7", lines[3])


def test_row_2_one_status_line_in_a_tiny_terminal() -> None:
    assert shown(STATES["few"], 19, 3) == ["37.7% 5 locks", "", ""]
    assert shown(STATES["few"], 8, 3)[0] == "37.7%"
    assert shown(STATES["few"], 1, 1) == ["3"]
    assert shown(STATES["deadlock"], 8, 3)[0] == "! 500.0%", "what must not be overlooked comes first"


def test_columns_that_were_asked_for() -> None:
    lines = shown(state_of(columns=("lock", "kind", "parks", "timeouts")), 80, 24)
    assert lines[2].split() == ["lock", "kind", "parks/s", "t/o", "last", "60", "s"]
    assert lines[3].split()[1:5] == ["cache.lock", "Lock", "2.67k", "1"]


def test_the_sorted_column_stays_when_space_is_short() -> None:
    assert "max" not in shown(STATES["few"], 70, 24)[2].split()
    assert "max" in shown(state_of(sort="max"), 70, 24)[2].split()


@pytest.mark.parametrize("view", [name for name in VIEWS if name != "filter"])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (59, 20), (40, 10), (20, 5)])
def test_row_12_lost_data_is_red_in_every_view(view: str, width: int, height: int) -> None:
    state = pressed(STATES["hostile"], *VIEWS[view])
    spans = [span for line in views.render(state, width, height, glyphs.UNICODE) for span in line]
    assert any("3 locks dropped" in text and "red" in style for text, style in spans)


def test_row_12_lost_data_shows_even_in_one_line() -> None:
    assert shown(STATES["hostile"], 10, 1)[0].startswith("!")


def test_row_13_hostile_names_reach_no_terminal() -> None:
    for view in VIEWS.values():
        for width in (40, 80, 200):
            state = states.ended(pressed(state_of(fakes.hostile), *view), "\x1b[2J exited")
            state = replace(state, title="\x1b]0;x\x07\u202e[/]")
            for line in shown(state, width, 60):
                assert cell_width(line) <= width
                for character in line:
                    assert unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"), line
                    assert not 0xFE00 <= ord(character) <= 0xFE0F, line


def test_row_13_markup_is_text() -> None:
    text = "\n".join(shown(state_of(fakes.hostile), 120, 60))
    assert "[bold red]not a style[/bold red]" in text
    assert "a[0][b" in text
    assert "[/]" in "\n".join(shown(pressed(state_of(fakes.hostile), "t"), 120, 60))


def test_row_13_foreign_text_is_bounded_and_cut_by_cells() -> None:
    assert label("\x1b]0;x\x07\u202ea") == "?]0;x??a"
    assert label("a" + "\u0301" * 50) == "a" + "\u0301" * 4
    assert label("\u0301a") == "a", "a mark at the beginning would change what stands before it"
    assert len(label("x" * 10_000)) == 512
    assert label(None) == "-"
    assert cut("日本語", 4, glyphs.UNICODE) == "日…"
    assert cut("日本語", 5, glyphs.UNICODE, head=True) == "…本語"
    assert cut("ab", 1, glyphs.ASCII) == "~"
    assert short_site("/a/b/c.py:10", 8, glyphs.ASCII) == "~c.py:10"


def test_row_14_nothing_known_is_a_dash_and_never_a_zero() -> None:
    lines = shown(STATES["few"], 200, 24)
    fresh = next(line for line in lines if " fresh " in line)
    # wait%, Q and rates are known to be nothing; shares of nothing and percentiles are not known.
    assert fresh.split() == ["0.0", "fresh", "-", "-", "0", "-", "0", "0", "-", "-", "-"]
    native = next(line for line in lines if "native.table" in line)
    assert native.split()[5] == "-", "an embedded lock counts no acquisitions"
    for view in VIEWS.values():
        text = "\n".join(shown(pressed(STATES["empty"], *view)))
        assert "nan" not in text
        assert "inf" not in text.replace("information", "")


def test_row_14_an_interval_of_no_length() -> None:
    state = STATES["few"]
    snapshot = state.shown.snapshot
    assert snapshot is not None
    frozen = replace(snapshot, interval_ns=0)
    for view in VIEWS.values():
        assert shown(pressed(states.received(state, frozen, None), *view))
    assert "contended -/s" in shown(states.received(state, frozen, None))[1]


def test_row_9_a_clock_that_goes_back_does_no_harm() -> None:
    state = state_of(fakes.few, 6)
    snapshot = state.shown.snapshot
    assert snapshot is not None
    for at in (0, snapshot.at_ns - 10**12, snapshot.at_ns + 10**15):
        again = states.received(state, replace(snapshot, at_ns=at), None)
        for view in VIEWS.values():
            assert "-" not in re.findall(r"up (\S+)", shown(pressed(again, *view), 120)[0])[0]


def test_row_3_more_locks_than_rows_are_windowed() -> None:
    state = STATES["many"]
    seen = set()
    for step in range(0, 600, 3):
        lines = shown(state, 80, 10)
        assert len(lines) == 10
        body = lines[3:-1]
        assert len([line for line in body if line.startswith("▶")]) == 1
        seen |= {line.split()[1] for line in body if "lock-" in line}
        state = pressed(state, "down", "down", "down") if step < 597 else state
    assert len(seen) > 300, "scrolling comes to all of them"
    assert shown(pressed(state, "end"), 80, 10)[8].startswith("▶"), "the last row is the last line"


@pytest.mark.parametrize("view", [name for name in VIEWS if name != "filter"])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (300, 100), (59, 60)])
def test_row_12_a_frame_of_very_many_stays_fast(view: str, width: int, height: int) -> None:
    """1,000 locks is what a reading of 200,000 gives; 2,000 threads with delays."""
    state = pressed(MANY, *VIEWS[view])
    costs = []
    for _ in range(5):
        start = time.thread_time()
        views.furthest(state, width, height, glyphs.UNICODE)
        views.render(state, width, height, glyphs.UNICODE)
        costs.append(time.thread_time() - start)
    assert min(costs) < 0.05, costs


def test_locks_that_the_reading_leaves_out_are_told() -> None:
    assert re.search(r"locks 200000 \(\d+ hot, 1000 reported\)", shown(MANY, 120)[0])


def _very_many(tick: int) -> Any:
    raw = fakes.many(1000, tick, threads=2000, delays=2)
    raw["totals"]["locks"] = 200_000
    return raw


MANY = state_of(_very_many, 3)


def test_the_detail_of_a_lock() -> None:
    text = "\n".join(shown(pressed(STATES["few"], "enter"), 100, 60))
    for expected in (
        r"cache\.lock  Lock 1  /srv/app/cache\.py:88",
        r"held by worker-7  waiting now 2  most at one time 23",
        r"waits 4000  sum 189ms  p50 65\.5us",
        r"32\.8us - 65\.5us +3960 +99\.0% █{40}",
        r"524us - 1\.05ms +40 +1\.0% ░{40}",
        r"91\.5% █+░* /srv/app/cache\.py:140  refresh",
        r"73\.2% █+░* /srv/app/views\.py:120  get",
        r"310us  MainThread  parked",
        r"37\.8% .*█",
    ):
        assert re.search(expected, text), expected


def test_the_detail_of_a_lock_that_is_gone_keeps_its_last_figures() -> None:
    state = readings(pressed(STATES["few"], "enter"), fakes.empty, range(7, 9))
    text = "\n".join(shown(state, 100, 40))
    assert "not reported any more" in text
    assert "waits 4000" in text


def test_threads_begin_with_the_main_thread_and_show_their_delays() -> None:
    lines = shown(pressed(STATES["few"], "t"), 110, 24)
    assert lines[2].split()[:2] == ["thread", "state"]
    assert re.match(r"MainThread +parked +cache\.lock +310us +40 +1\.64ms +13 +900 +[▁▂▃▄▅▆▇█]{20}", lines[3])
    assert lines[4].split() == ["delay", "for", "units", "hits", "collisions", "spinning", "went"]
    assert re.match(r"  cache\.lock +390 +44 +1 +pays +█{4}", lines[5])
    order = [line.split()[0] for line in lines[6:10]]
    assert order == ["thread", "worker-7", "cache.lock", "<Lock>"], "then those that wait"


def test_sites_count_all_of_their_locks() -> None:
    lines = shown(pressed(STATES["few"], "c"), 110, 24)
    assert re.match(r"▶  37\.7  /srv/app/cache\.py:88 +__init__ +1 +1 +8k", lines[3])
    assert re.match(r"   +0\.0  /srv/app/pool\.py:31 +checkout +45 +1 ", lines[4])
    assert "logging" in "\n".join(shown(pressed(STATES["few"], "i", "c"), 110, 24))


def test_sites_that_are_not_recorded_say_how_to_record_them() -> None:
    state = states.received(STATES["few"], replace_process(STATES["empty"], sites=False), None)
    assert "TICKETLOCK_SITES=1" in "\n".join(shown(pressed(state, "c"), 100))


def replace_process(state: State, **changes: Any) -> Any:
    snapshot = state.shown.snapshot
    assert snapshot is not None
    return replace(snapshot, process={**snapshot.process, **changes}, sites=())


def test_the_graph_marks_cycles() -> None:
    state = pressed(STATES["deadlock"], "g")
    lines = shown(state, 80, 40)
    assert "! 2 wait cycles" in lines[1]
    assert lines[3:6] == [
        "  transfer-1 waits for account-b that transfer-2 holds",
        "  transfer-2 waits for account-c that transfer-3 holds",
        "  transfer-3 waits for account-a that transfer-1 holds",
    ]
    assert "  recursive waits for <Lock> that it holds itself" in lines
    assert any("onlooker" in line and "cycle" not in line for line in lines)
    red = {text for line in views.render(state, 80, 40, glyphs.UNICODE) for text, style in line if "red" in style}
    assert any("transfer-1" in text for text in red)
    assert not any("onlooker" in text for text in red)


def test_the_graph_of_a_chain() -> None:
    lines = shown(pressed(STATES["few"], "g"), 80, 24, glyphs.ASCII)
    assert lines[3:7] == ["worker-7  running", "+-cache.lock: 2 waiting", "  +-MainThread  parked for 310us", lines[6]]
    assert "nobody waits" in "\n".join(shown(pressed(STATES["empty"], "g")))


def test_an_abandoned_lock_is_marked() -> None:
    state = STATES["few"]
    snapshot = state.shown.snapshot
    assert snapshot is not None
    lost = replace(snapshot, locks=(replace(snapshot.locks[0], abandoned=True), *snapshot.locks[1:]))
    lines = shown(states.received(state, lost, None), 120)
    assert "! 1 lock abandoned" in lines[1]
    assert "worker-7 (ended)" in lines[3]


def test_the_help_explains_every_column_and_every_key() -> None:
    state = pressed(STATES["few"], "?")
    text = " ".join(" ".join(shown(state, 100, 200)).split())
    for column in COLUMNS.values():
        assert column.title in text
        assert " ".join(column.about.split()) in text
    explained = {key for _, keys, _ in manual.KEYS for key in keys}
    assert explained == states.ACTIVE_KEYS


def test_the_document_shows_what_is_drawn_and_names_every_key() -> None:
    document = (Path(__file__).parents[1] / "docs" / "monitor.md").read_text(encoding="utf-8")
    section = document.split("\n## The live screen\n")[1].split("\n## ")[0]
    assert "\n".join(shown(state_of(fakes.few, 40), 108, 10, glyphs.ASCII)) in section
    for key in states.ACTIVE_KEYS - {"="}:
        name = {" ": "space", "pgup": "PgUp", "pgdn": "PgDn"}.get(key, key.capitalize() if len(key) > 2 else key)
        assert f"`{key}`" in section or name in section or key in section, key
    for column in COLUMNS.values():
        assert f"`{column.title}`" in section or f"`{column.name}`" in section, column.name


def test_the_banner_of_an_ended_target() -> None:
    state = states.ended(STATES["few"], "exited (0) at 12:31:07")
    for width in (40, 59, 80, 120):
        lines = shown(state, width, 10)
        assert lines[2].startswith("exited (0)")
        assert "ended" in lines[0]
    assert "q quits" in shown(state)[2]
    assert "cache.lock" in shown(state)[4], "the last reading stays"
    assert "exited" in shown(state, 40, 2)[0]


def test_the_mode_is_always_visible() -> None:
    for width in (20, 40, 80):
        assert "paused" in shown(pressed(STATES["few"], " "), width, 10)[0]
        assert "rec" in shown(pressed(STATES["few"], "w"), width, 10)[0]
    assert "totals" in shown(pressed(STATES["few"], "d"))[0]


def test_arrows_of_the_trend() -> None:
    def rising(tick: int) -> Any:
        return fakes.reading(
            tick, [fakes.lock(1, "up", None, fakes.counters(tick**3, wait_ns_sum=50_000 * tick**3, contended=tick))]
        )

    state = pressed(state_of(rising, 60), "x")
    assert re.match(r"▶ ▲ ", shown(state)[3])
    assert re.match(r"> \^ ", shown(state, drawn=glyphs.ASCII)[3])


def test_a_filter_that_is_none_says_so() -> None:
    lines = shown(pressed(STATES["few"], "/", *"re:("))
    assert "filter: re:(" in lines[-1]
    assert "not a regular expression" in lines[-1]
    assert "not a regular expression" in shown(pressed(STATES["few"], "/", *"re:(", "enter"))[-1]
    assert "filter cache" in shown(pressed(STATES["few"], "/", *"cache", "enter"))[-1]


def test_hidden_internal_locks_are_told() -> None:
    def internal(tick: int) -> Any:
        raw = fakes.few(tick)
        raw["locks"] = [lock for lock in raw["locks"] if lock["id"] == 3]
        raw["sites"] = raw["sites"][:1] + raw["sites"][2:2] + [{**site, "retired": fakes.counters()} for site in raw["sites"][1:]]
        return raw

    text = "\n".join(shown(state_of(internal)))
    assert "logging" not in text


def test_windows_keep_the_cursor_inside() -> None:
    for count in (0, 1, 5, 100):
        for height in (-3, 0, 1, 4, 50):
            for cursor in range(count):
                first, last = window(count, cursor, height)
                assert last - first == min(count, max(0, height))
                assert height <= 0 or first <= cursor < last


PROCESSES = tuple(
    Instrumented(4240 + number, ("python3", name), fakes.process(), 3, 7, 10**9)
    for number, name in enumerate(fakes.HOSTILE_NAMES)
)


@SETS
@pytest.mark.parametrize("found", [Found((), 0, ()), Found(PROCESSES, 3, ((1, "\x1b[2Jof another version"),))])
def test_the_chooser_at_every_size(found: Found, drawn: glyphs.Glyphs) -> None:
    for width, height in SIZES:
        lines = chooser.render(chooser.Choosing(found), width, height, drawn)
        assert len(lines) == height
        assert all(line_width(line) <= width for line in lines)
        assert "\x1b" not in "".join(text for line in lines for text, _ in line)


def test_choosing() -> None:
    state = chooser.Choosing(Found(PROCESSES, 3, ((1, "of another version"),)))
    text = ["".join(part for part, _ in line).rstrip() for line in chooser.render(state, 100, 30, glyphs.UNICODE)]
    assert "19 processes" in text[0]
    assert text[2].startswith("▶ 4240")
    assert "! process 1: of another version" in text
    assert "3 processes of others cannot be looked into" in text
    state = chooser.apply(chooser.apply(state, "down"), "j")
    assert chooser.apply(state, "enter").chosen == 4242
    later = chooser.found(state, Found(PROCESSES[2:], 0, ()))
    assert later.cursor == 0, "the cursor stays with its process"
    assert chooser.found(state, Found((), 0, ())).cursor == 0
    assert chooser.apply(chooser.found(state, Found((), 0, ())), "enter").chosen is None
    assert chooser.apply(state, "q").quit


def test_row_18_what_is_wrong_with_a_segment_is_the_banner() -> None:
    state = states.ended(STATES["few"], str(IncompatibleError("the segment is damaged", "start it again")))
    assert "the segment is damaged" in shown(state, 120)[2]
