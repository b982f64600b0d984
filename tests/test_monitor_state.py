"""What each key does, as a pure reducer; the history of a minute; and bytes of a terminal as keys."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import monitor_fakes as fakes
import pytest
from monitor_states import pressed, readings, shown, state_of
from ticketlock.monitor import history as histories
from ticketlock.monitor import state as states
from ticketlock.monitor.columns import SORTS
from ticketlock.monitor.history import NS, SECONDS, History, levels, observe, trend
from ticketlock.monitor.keys import Decoder


def names(state: states.State) -> list[str | None]:
    return [lock.name for lock in states.locks(state)]


def many(tick: int) -> Any:
    return fakes.many(50, tick)


def test_sorting_goes_through_all_columns_and_back() -> None:
    state = state_of()
    seen = [state.options.sort]
    for _ in SORTS:
        state = pressed(state, "s")
        seen.append(state.options.sort)
    assert seen == [*SORTS, "wait"]
    assert pressed(state, "S").options.sort == list(SORTS)[-1]


def test_sorting_by_name() -> None:
    state = state_of(sort="name")
    assert names(state) == [None, None, "cache.lock", "fresh", "native.table"]


def test_the_filter_works_while_it_is_typed_and_goes_with_escape() -> None:
    state = pressed(state_of(), "/", "f", "r", "q")
    assert (state.draft, state.quit) == ("frq", False), "letters are text here, not commands"
    assert names(state) == []
    state = pressed(state, "backspace")
    assert names(state) == ["fresh"]
    state = pressed(state, "enter")
    assert (state.draft, state.options.filter) == (None, "fr")
    assert pressed(state, "/").draft == "fr", "it can be changed"
    assert pressed(state, "/", "ctrl-u", *"NATIVE", "enter").options.filter == "NATIVE"
    assert len(names(pressed(state, "esc"))) == 5
    assert pressed(state, "/", "x", "esc").options.filter == ""


def test_the_filter_knows_sites_owners_and_expressions() -> None:
    assert names(pressed(state_of(), "/", *"worker")) == ["cache.lock"]
    assert names(pressed(state_of(), "/", *"pool.py", "enter")) == [None, None]
    assert names(pressed(state_of(), "/", *"re:^(fresh|native)", "enter")) == ["native.table", "fresh"]


def test_a_filter_that_is_no_expression_hides_nothing() -> None:
    state = pressed(state_of(), "/", *"re:(", "enter")
    assert states.filter_mistake(state)
    assert len(names(state)) == 5


def test_the_filter_is_bounded() -> None:
    assert len(pressed(state_of(), "/", *"x" * 500).options.filter) == states.LONGEST_FILTER
    assert pressed(state_of(), "/", "up", "pgdn", "\u202e", "\x1b").options.filter == ""


def test_pause_freezes_the_screen_while_collection_goes_on() -> None:
    state = pressed(state_of(fakes.few, 4), " ")
    before = shown(state, 120, 30)
    later = readings(state, fakes.empty, range(5, 140))
    assert shown(later, 120, 30) == before, "nothing moves, and nothing expires"
    assert len(later.live.history.overall) > len(later.shown.history.overall)
    assert not states.locks(pressed(later, " ")), "then everything is up to date at once"


def test_keys_work_on_what_a_paused_screen_shows() -> None:
    state = readings(pressed(state_of(fakes.few, 4), " "), fakes.empty, range(5, 9))
    assert "Lock 1" in "\n".join(shown(pressed(state, "enter")))
    assert names(pressed(state, "/", "f", "r")) == ["fresh"]


def test_the_end_while_paused_shows_after_the_pause() -> None:
    state = states.ended(pressed(state_of(), " "), "exited (0)")
    assert state.shown.ended is None
    assert pressed(state, " ").shown.ended == "exited (0)"


def test_the_selection_stays_with_its_lock() -> None:
    def swapped(tick: int) -> Any:
        raw = fakes.reading(
            tick,
            [
                fakes.lock(number, f"lock-{number}", None, fakes.regular(tick, 10 * (1 + (number + tick // 6) % 3), 1_000, 90))
                for number in (1, 2, 3)
            ],
        )
        raw["locks"].sort(key=lambda lock: -lock["counters"]["contended"])
        return raw

    state = pressed(state_of(swapped, 2), "down")
    chosen = states.locks(state)[state.cursor].name
    for last in range(8, 30, 5):
        state = readings(state, swapped, range(last - 5, last))
        assert states.locks(state)[state.cursor].name == chosen


def test_without_a_choice_the_first_row_stays_selected() -> None:
    state = readings(state_of(many, 3), fakes.few, range(4, 6))
    assert state.cursor == 0


def test_the_selection_survives_that_its_lock_goes() -> None:
    state = pressed(state_of(many, 3), "end")
    assert state.cursor == len(states.locks(state)) - 1
    state = readings(state, fakes.few, range(4, 6))
    assert state.cursor == len(states.locks(state)) - 1
    assert readings(state, fakes.empty, range(6, 8)).cursor == 0


def test_moving_stops_at_both_ends() -> None:
    state = states.resized(state_of(many, 3), 10, 0)
    count = len(states.locks(state))
    assert pressed(state, "up").cursor == 0
    assert pressed(state, "pgdn").cursor == 10
    assert pressed(state, *["pgdn"] * 100).cursor == count - 1
    assert pressed(state, "end", "down", "j").cursor == count - 1
    assert pressed(state, "end", "home").cursor == 0
    assert pressed(state, "j", "j", "k").cursor == 1


def test_text_scrolls_no_further_than_its_end() -> None:
    state = states.resized(pressed(state_of(), "?", *["pgdn"] * 9), 10, 7)
    assert state.scroll == 7
    assert pressed(state, "up").scroll == 6
    assert states.resized(pressed(state, "end"), 10, 7).scroll == 7
    assert pressed(state, "home").scroll == 0


def test_views_lead_back_to_where_they_were_opened() -> None:
    state = pressed(state_of(), "down", "enter")
    assert state.view == "detail"
    assert pressed(state, "?").view == "help"
    assert pressed(state, "?", "?").view == "detail"
    assert pressed(state, "h", "esc").view == "detail"
    assert pressed(state, "t", "t").view == "detail"
    assert pressed(state, "esc").view == "locks"
    assert pressed(state, "esc").cursor == 1, "the selection is still there"
    assert pressed(state, "t", "c", "g", "l").view == "locks"
    for keys in ("tcg?" * 5, "gtgtgt", "??tt"):
        assert pressed(state_of(), *keys, *["esc"] * 5).view == "locks"


def test_enter_on_a_site_filters_its_locks() -> None:
    state = pressed(state_of(), "c", "down", "enter")
    assert (state.view, state.options.filter) == ("locks", "/srv/app/pool.py:31")
    assert names(state) == [None, None]


def test_locks_that_are_gone_have_no_details() -> None:
    state = pressed(state_of(), *["down"] * 3)
    assert states.locks(state)[state.cursor].id is None
    assert pressed(state, "enter").view == "locks"
    assert "gone" in pressed(state, "enter").notice


def test_internal_locks() -> None:
    assert len(names(state_of())) == 5
    assert len(names(pressed(state_of(), "i"))) == 6
    assert len(names(pressed(state_of(), "i", "i"))) == 5


def test_totals_and_the_baseline() -> None:
    state = pressed(state_of(fakes.few, 6), "d")
    assert states.locks(state)[0].contended == 24_000
    assert states.locks(pressed(state, "d"))[0].contended == 4_000
    assert pressed(state, "r", "r").resets == 2


def test_totals_that_come_later() -> None:
    whole = state_of(fakes.few, 6)
    assert whole.live.total is not None
    state = states.received(whole, whole.live.snapshot, None)  # type: ignore[arg-type]
    asked = pressed(state, " ", "d")
    assert states.locks(asked)[0].contended == 4_000, "until they are there, the interval"
    assert states.locks(states.tallied(asked, whole.live.total))[0].contended == 24_000, "paused or not"
    assert not states.tallied(asked, None).totals
    ended = states.ended(state, "exited (0)", whole.live.total)
    assert states.locks(pressed(ended, "d"))[0].contended == 24_000
    assert not pressed(states.ended(state, "exited (0)"), "d").totals


def test_the_rate_goes_from_a_tenth_to_five_seconds() -> None:
    state = state_of()
    assert pressed(state, *"+" * 20).options.interval_s == 0.1
    assert pressed(state, *"-" * 20).options.interval_s == 5.0
    assert pressed(state_of(interval_s=0.7), "+").options.interval_s == 0.5
    assert pressed(state_of(interval_s=0.7), "-").options.interval_s == 1.0
    assert pressed(state_of(interval_s=60.0), "-").options.interval_s == 60.0


def test_recording_and_quitting() -> None:
    assert pressed(state_of(), "w").recording
    assert not pressed(state_of(), "w", "w").recording
    assert state_of(record="file").recording
    assert pressed(state_of(), "q").quit


def test_a_message_goes_with_the_next_key() -> None:
    state = pressed(state_of(), "s")
    assert state.notice
    assert not pressed(state, "left").notice


def test_any_keys_in_any_order_leave_a_screen() -> None:
    chance = random.Random(4)
    keys = [*sorted(states.ACTIVE_KEYS - {"q"}), "backspace", "ctrl-u", "tab", "left", "ä"]
    for make in (fakes.few, fakes.hostile, fakes.deadlock, fakes.empty):
        state = state_of(make, 2)
        for step in range(300):
            state = states.resized(pressed(state, chance.choice(keys)), chance.randrange(0, 40), chance.randrange(0, 90))
            if step % 10 == 0:
                state = readings(state, make, range(step, step + 2))
            assert len(shown(state, chance.randrange(0, 130), 12)) == 12
            assert state.view not in ("locks", "sites") or 0 <= state.cursor <= max(0, len(states.keys(state)) - 1)


def test_the_history_holds_a_minute() -> None:
    state = state_of(many, 3)
    first = state.live.history
    assert set(first.locks) <= {lock.id if lock.id is not None else lock.site for lock in states.locks(pressed(state, "i"))}
    longer = readings(state, many, range(4, 200)).live.history
    assert max(len(track) for track in longer.locks.values()) <= SECONDS + 1
    assert len(longer.overall) <= SECONDS + 1
    quiet = readings(state, fakes.empty, range(400, 402)).live.history
    assert not quiet.locks, "what was not waited for within a minute is forgotten"
    assert not quiet.delays


def test_shares_are_averages_of_their_second() -> None:
    track = histories._extended((), 1.0, [(10, NS // 2)], 10)
    track = histories._extended(track, 0.0, [(10, NS // 2), (11, NS)], 11)
    assert levels(track, 11, SECONDS)[-2:] == (0.5, 0.0)
    assert levels(track, 11, SECONDS)[0] is None
    assert levels(track, 11, 1) == (0.5,)
    assert levels(track, 11, 0) == ()
    assert len(levels(track, 11, 150)) == 150


def test_a_first_reading_of_hours_says_nothing_about_the_last_minute() -> None:
    snapshot = state_of().shown.snapshot
    assert snapshot is not None
    hours = replace(snapshot, interval_ns=3_600 * NS)
    assert observe(History(), hours).overall == ()
    assert len(observe(observe(History(), hours), hours).overall) == SECONDS


def test_trends() -> None:
    def over(*shares: float) -> int:
        track: histories.Track = ()
        for second, share in enumerate(shares):
            track = histories._extended(track, share, [(second, NS)], second)
        return trend(track, len(shares) - 1)

    assert over(*[0.1] * 15, 0.3, 0.3, 0.3) == 1
    assert over(*[0.3] * 15, 0.1, 0.1, 0.1) == -1
    assert over(*[0.3] * 18) == 0
    assert over(*[0.0] * 15, 0.001, 0.001, 0.001) == 0, "next to nothing is no trend"
    assert over(0.5) == 0
    assert over() == 0


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[B\x1bOA\x1bOB", ["up", "down", "up", "down"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F\x1b[1~\x1b[4~", ["pgup", "pgdn", "home", "end", "home", "end"]),
        (b"\r\n \x7f\x08\x15", ["enter", "enter", " ", "backspace", "backspace", "ctrl-u"]),
        (b"\x1b[1;5A", ["up"]),
        (b"\x1b[200~q\x1b[201~", ["q"]),
        (b"\x1b[15~\x1b[[Aq", ["q"]),
        (b"\x1b[M !!q", ["q"]),
        (b"\x1b[<0;10;10Mq\x1b[<0;10;10mq", ["q", "q"]),
        (b"\x1b]11;rgb:0000/0000/0000\x07q", ["q"]),
        (b"\x1bP1$r0m\x1b\\q", ["q"]),
        (b"\x1b[?62;c\x1b[3;4Rq", ["q"]),
        (b"\x1bxq", ["q"]),
        (b"\x1b\x1b[A", ["esc", "up"]),
        ("äß日".encode(), ["ä", "ß", "日"]),
        (b"\xff\xfeq", ["q"]),
        (b"\x01\x02\x00q", ["q"]),
        (b"\x1b[\x07q", ["q"]),
    ],
)
def test_row_20_bytes_as_keys(data: bytes, expected: list[str]) -> None:
    decoder = Decoder()
    assert decoder.feed(data) == expected
    slowly = Decoder()
    assert [key for byte in data for key in slowly.feed(bytes((byte,)))] == expected, "in pieces too"


def test_row_20_escape_alone_and_what_was_cut_off() -> None:
    decoder = Decoder()
    assert decoder.feed(b"\x1b") == []
    assert decoder.unfinished
    assert decoder.flush() == ["esc"]
    assert decoder.feed(b"\x1b[1;") == []
    assert decoder.flush() == []
    assert decoder.feed(b"q") == ["q"]


def test_row_20_no_bytes_are_a_command_by_accident() -> None:
    chance = random.Random(20)
    for _ in range(2000):
        decoder = Decoder()
        found = decoder.feed(b"\x1b" + chance.randbytes(chance.randrange(40))) + decoder.flush()
        assert all(len(key) > 1 or key.isprintable() for key in found)
        decoder.feed(b"\x1b[" + b"1;" * 200)
        assert decoder.feed(b"\x07q")[-1:] == ["q"], "no sequence swallows keys for ever"
