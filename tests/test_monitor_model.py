"""From readings to snapshots: building, merging, documents."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import json
import math
import random
from typing import TYPE_CHECKING, Any

import monitor_fakes as fakes
import pytest
from monitor_fakes import CREATED_NS, TICK_NS, counters, ident, lock, reading, site, thread
from ticketlock.monitor import tally
from ticketlock.monitor.build import build
from ticketlock.monitor.document import SCHEMA, dumps, from_json, to_json
from ticketlock.monitor.graph import cycles
from ticketlock.monitor.merge import merge
from ticketlock.monitor.model import Cycle, LockRow, SiteRow, Snapshot, display_name

if TYPE_CHECKING:
    from ticketlock.monitor.raw import Raw

FAKES = [fakes.empty, fakes.few, fakes.many, fakes.hostile, fakes.deadlock, fakes.abandoned]


def row(snapshot: Snapshot, id: int | None) -> LockRow:  # noqa: A002
    return next(one for one in snapshot.locks if one.id == id)


def counted(one: LockRow | SiteRow) -> tuple[Any, ...]:
    waits = one.waits
    figures = (one.acquisitions or 0, one.contended, waits.count, waits.sum, waits.log2)
    if isinstance(one, SiteRow):
        return (*figures, one.created, one.live)
    return (*figures, one.parks, one.timeouts, one.hand_overs, one.retired, one.waiters, one.waiters_max)


# Waiting times


@pytest.mark.parametrize("waits", [[0], [1], [5], [1000] * 99 + [70_000], list(range(1, 3000, 7)), [(1 << 40) + 3], [0, 0, 1]])
def test_quantiles_are_within_one_class_and_never_too_low(waits: list[int]) -> None:
    found = tally.waits(fakes.log2_of(waits), sum(waits), max(waits))
    assert found.count == len(waits)
    assert found.max == max(waits)
    for permille, shown in zip((500, 900, 990, 999), (found.p50, found.p90, found.p99, found.p999), strict=True):
        exact = sorted(waits)[max(0, math.ceil(len(waits) * permille / 1000) - 1)]
        assert shown is not None
        assert exact <= shown <= max(2 * exact, 2)
        assert shown <= max(waits)


def test_without_waits_nothing_is_known() -> None:
    assert tally.waits((), 0, 0) == tally.NO_WAITS
    assert tally.waits((0, 0, 0), 0, 1000) == tally.NO_WAITS
    assert tally.NO_WAITS.max is tally.NO_WAITS.p50 is None


def test_the_maximum_of_an_interval_is_exact_only_if_it_grew() -> None:
    def one(waits: list[int], tick: int) -> Raw:
        return reading(tick, [lock(1, "a", None, counters(9, waits))])

    before = one([50_000, 300], 1)
    assert row(build(one([50_000, 300, 90_001], 2), before), 1).waits.max == 90_001
    # 700 is in the class up to 1024, and nothing closer is known.
    assert row(build(one([50_000, 300, 700], 2), before), 1).waits.max == 1024
    # 40,000 is in the class up to 65,536, but no wait ever took longer than 50,000.
    assert row(build(one([50_000, 300, 40_000], 2), before), 1).waits.max == 50_000


def test_a_maximum_that_was_read_too_early_does_not_cut() -> None:
    torn = counters(1, [70_000], wait_ns_max=12)
    assert row(build(reading(1, [lock(1, "a", None, torn)]), None), 1).waits.p50 == 1 << 17


# Building


def test_an_interval_counts_what_was_added() -> None:
    whole, part = row(build(fakes.few(6), None), 1), row(build(fakes.few(6), fakes.few(4)), 1)
    assert whole.acquisitions == 6 * 90_000
    assert part.acquisitions == 2 * 90_000
    assert part.contended == part.waits.count == 8_000
    assert part.contended_share == pytest.approx(8_000 / 180_000)
    assert part.owner_name == "worker-7"
    assert part.waits.p50 == 1 << 16
    assert part.waits.p999 == part.waits.max == 41_000 * 16


def test_locks_are_ordered_by_waiting() -> None:
    for make in FAKES:
        shares = [one.wait_share for one in build(make(tick=4), make(tick=2)).locks]
        assert shares == sorted(shares, reverse=True)


def test_counts_that_went_backwards_are_zero() -> None:
    snapshot = build(fakes.few(2), fakes.few(5))
    assert all(figure >= 0 for one in snapshot.locks for figure in (one.acquisitions or 0, one.contended, one.waits.sum))
    assert all(one.wait_share >= 0 for one in snapshot.locks)
    assert snapshot.interval_ns == 0
    assert snapshot.totals.wait_share == 0


def test_an_embedded_lock_counts_no_acquisitions() -> None:
    native = row(build(fakes.few(4), fakes.few(2)), 4)
    assert native.acquisitions is None
    assert native.contended_share is None
    assert native.contended == 4


def test_a_fresh_lock_has_no_share_of_anything() -> None:
    fresh = row(build(fakes.few(4), None), 5)
    assert fresh.contended_share is None
    assert fresh.waits == tally.NO_WAITS
    assert fresh.wait_share == 0


def test_who_waits_for_ever_has_a_share_of_one() -> None:
    snapshot = build(fakes.deadlock(7), fakes.deadlock(5))
    assert row(snapshot, 2).wait_share == 1.0
    assert row(snapshot, 1).wait_share == 2.0, "two wait for it"
    assert snapshot.totals.wait_share == 5.0
    # Waiting since tick 1 of 4.
    assert row(build(fakes.deadlock(4), None), 3).wait_share == pytest.approx(0.75)
    assert snapshot.threads[1].waiting_ns == 6 * TICK_NS


def test_a_wait_over_several_intervals_is_counted_once() -> None:
    def one(tick: int, began: int | None, waits: list[int]) -> Raw:
        waiting = {"waiting_on": None if began is None else 1, "wait_started_ns": began}
        return reading(tick, [lock(1, "a", None, counters(2, waits), waiters_max=1)], [], [thread(1, **waiting)])

    began = CREATED_NS + TICK_NS // 2
    readings = [one(0, None, []), one(1, began, []), one(2, began, []), one(3, None, [2 * TICK_NS])]
    shares = [row(build(later, former), 1).wait_share for former, later in itertools.pairwise(readings)]
    assert shares == [0.5, 1.0, 0.5]


def test_another_process_is_no_base() -> None:
    earlier = fakes.few(2)
    earlier["process"] = fakes.process(created_ns=CREATED_NS - 1)
    assert build(fakes.few(3), earlier) == build(fakes.few(3), None)


def test_locks_that_are_gone_are_found_in_their_site() -> None:
    gone = counters(70, [4_000] * 5)
    before = reading(1, [lock(1, "a", 0, counters(50, [4_000] * 3)), lock(2, "b", 0)], [site("/a.py", 3, created=2)])
    after = reading(2, [lock(2, "b", 0)], [site("/a.py", 3, created=2, live=1, retired=gone)])
    snapshot = build(after, before)
    rest = row(snapshot, None)
    assert (rest.site, rest.retired, rest.acquisitions, rest.contended) == ("/a.py:3", 1, 20, 2)
    assert rest.waits.log2 == (*[0] * 11, 2)
    assert display_name(rest) == "<Lock> a.py:3 (1 gone)"
    assert snapshot.sites[0].acquisitions == 20
    assert (snapshot.sites[0].created, snapshot.sites[0].live) == (2, 1)


def test_a_lock_that_was_left_out_is_not_taken_for_gone() -> None:
    """The reader lists those with most waiting only."""
    before = reading(1, [lock(1, "a", 0, counters(50)), lock(2, "b", 0)], [site("/a.py", 3, created=2)])
    after = reading(2, [lock(2, "b", 0, counters(5))], [site("/a.py", 3, created=2, retired=counters(7))])
    after["totals"]["locks"] = 2
    assert row(build(after, before), None).acquisitions == 7
    merged = merge(build(before, None), build(after, before))
    assert row(merged, 1).acquisitions == 50


def test_a_lock_that_was_not_seen_before_has_no_more_waiting_than_there_can_have_been() -> None:
    before = reading(1)
    after = reading(2, [lock(9, "late", None, counters(9, [TICK_NS] * 50), waiters_max=3)])
    assert row(build(after, before), 9).wait_share == 3.0


def test_blames_have_shares_of_the_weight() -> None:
    hot = row(build(fakes.few(4), fakes.few(2)), 1)
    assert [blame.function for blame in hot.waiter_sites] == ["get", "put"]
    assert [blame.site for blame in hot.waiter_sites] == ["/srv/app/views.py:120", "/srv/app/views.py:171"]
    assert [blame.samples for blame in hot.waiter_sites] == [60, 20]
    assert hot.waiter_sites[0].share == pytest.approx(120 / 164)
    assert sum(blame.share for blame in hot.holder_sites) == pytest.approx(1)


def test_what_is_dropped_is_shown_without_zeros() -> None:
    assert build(fakes.hostile(), None).dropped == {"locks": 3, "strings": 17}
    assert build(fakes.few(), None).dropped == {}


# Names


def test_names_of_locks() -> None:
    snapshot = build(fakes.few(4), None)
    assert display_name(row(snapshot, 1)) == "cache.lock"
    assert display_name(row(snapshot, 2)) == "<Lock> pool.py:31"
    assert display_name(row(snapshot, 3)) == "<RLock> __init__.py:233"
    assert display_name(row(snapshot, None)) == "<Lock> pool.py:31 (44 gone)"
    bare = dataclasses.replace(row(snapshot, 2), site=None)
    assert display_name(bare) == "<Lock>"
    assert display_name(dataclasses.replace(bare, name="", kind="unknown")) == "<lock>"
    assert display_name(dataclasses.replace(bare, site=r"C:\app\pool.py:4")) == "<Lock> pool.py:4"
    assert snapshot.threads[0].waiting_on_name == "cache.lock"
    assert [cell.lock_name for cell in snapshot.threads[1].delays] == ["cache.lock", "<Lock> pool.py:31"]


def test_locks_that_are_not_listed_have_their_number() -> None:
    assert build(fakes.hostile(), None).threads[0].delays[1].lock_name == "#99999"


# Deadlocks


def test_deadlocks_are_found_once() -> None:
    found = build(fakes.deadlock(), None).cycles
    ring = Cycle((ident(1), ident(2), ident(3)), (2, 3, 1))
    assert found == (ring, Cycle((ident(4),), (4,)))
    assert build(fakes.few(), None).cycles == ()


def test_cycles_against_a_search_by_force() -> None:
    chance = random.Random(4)
    for _ in range(500):
        threads, locks = range(1, 8), range(1, 8)
        waiting = {one: chance.choice(locks) for one in threads if chance.random() < 0.8}
        owners = {one: chance.choice(threads) for one in locks if chance.random() < 0.8}
        expected = set()
        for start in threads:
            path, at = [], start
            while at in waiting and waiting[at] in owners and at not in path:
                path.append(at)
                at = owners[waiting[at]]
            if path and at == start:
                expected.add(frozenset(path))
        found = cycles(waiting, owners)
        assert {frozenset(cycle.threads) for cycle in found} == expected
        assert len(found) == len(expected)
        for cycle in found:
            assert cycle.threads[0] == min(cycle.threads)
            following = (*cycle.threads[1:], cycle.threads[0])
            for one, held, other in zip(cycle.threads, cycle.locks, following, strict=True):
                assert waiting[one] == held
                assert owners[held] == other


def test_a_very_long_chain_is_no_problem() -> None:
    size = 100_000
    chain = {number: number + 1 for number in range(size)}
    assert cycles(chain, {number: number for number in range(1, size + 1)}) == ()


# Locks whose owner has ended


def test_a_lock_is_abandoned_only_if_its_owner_is_known_to_have_ended() -> None:
    asked: list[int] = []

    def none_lives(native_id: int) -> bool:
        asked.append(native_id)
        return False

    raw = fakes.abandoned()
    assert row(build(raw, None, none_lives), 1).abandoned
    assert asked == [fakes.PID + 1]
    assert not row(build(raw, None), 1).abandoned, "nobody looked"
    assert not row(build(raw, None, lambda native_id: True), 1).abandoned
    unknown = copy.deepcopy(raw)
    unknown["threads"][0]["native_id"] = 0
    assert not row(build(unknown, None, none_lives), 1).abandoned, "nothing to look for"
    again = copy.deepcopy(raw)
    again["threads"].append(thread(1, "later", native_id=99))
    assert not row(build(again, None, lambda native_id: native_id == 99), 1).abandoned, "a later thread has the ident now"
    missing = copy.deepcopy(raw)
    del missing["threads"][0]
    assert not row(build(missing, None, none_lives), 1).abandoned, "no record of the owner"


# Merging


@pytest.mark.parametrize("seed", range(60))
def test_merged_intervals_count_what_the_whole_counts(seed: int) -> None:
    wild = fakes.Wild(seed)
    readings = []
    for _ in range(4):
        wild.live()
        readings.append(wild.reading())
    merged = build(readings[0], None)
    for former, later in itertools.pairwise(readings):
        merged = merge(merged, build(later, former))
    whole = build(readings[-1], None)
    assert {(one.id, one.site): counted(one) for one in merged.locks} == {(one.id, one.site): counted(one) for one in whole.locks}
    assert {one.site: counted(one) for one in merged.sites} == {one.site: counted(one) for one in whole.sites}
    assert merged.interval_ns == whole.interval_ns
    assert merged.at_ns == whole.at_ns
    assert (merged.totals.locks, merged.totals.acquisitions, merged.totals.contended) == (
        whole.totals.locks,
        whole.totals.acquisitions,
        whole.totals.contended,
    )
    for one in merged.threads:
        other = next(row for row in whole.threads if row.ident == one.ident)
        assert dataclasses.replace(one, delays=()) == dataclasses.replace(other, delays=())
    for one in merged.locks:
        if one.id is not None:
            other = row(whole, one.id)
            assert {(blame.site, blame.samples) for blame in one.waiter_sites} == {
                (blame.site, blame.samples) for blame in other.waiter_sites
            }
            assert one.waits == other.waits


def test_merged_shares_are_those_of_the_whole_time() -> None:
    a, b = fakes.few(2), fakes.few(6)
    merged, whole = merge(build(a, None), build(b, a)), build(b, None)
    for one, other in zip(merged.locks, whole.locks, strict=True):
        assert one.wait_share == pytest.approx(other.wait_share)
        assert one.waits == other.waits
        assert [blame.share for blame in one.waiter_sites] == pytest.approx([blame.share for blame in other.waiter_sites])
    assert merged.totals.wait_share == pytest.approx(whole.totals.wait_share)
    assert [one.site for one in merged.sites] == [one.site for one in whole.sites]


def test_a_lock_without_a_site_is_not_lost_when_it_is_gone() -> None:
    a, b = reading(1, [lock(1, "a", None, counters(50)), lock(2, "b", None, counters(8))]), reading(2)
    merged = merge(build(a, None), build(b, a))
    assert [(one.id, one.site, one.retired, one.acquisitions) for one in merged.locks] == [(None, None, 2, 58)]


def test_locks_without_a_site_do_not_pile_up_where_readings_leave_some_out() -> None:
    a, b = reading(1, [lock(number, "x", None, counters(1)) for number in range(9)]), reading(2, [lock(99, "y")])
    b["totals"]["locks"] = 5
    merged = merge(build(a, None), build(b, a))
    assert [(one.id, one.retired, one.acquisitions) for one in merged.locks] == [(None, 9, 9), (99, 0, 0)]


def test_blames_of_a_quiet_interval_weigh_little() -> None:
    def one(tick: int, waits: int, first: int, second: int) -> Raw:
        sites = [site("/a.py", 1), site("/a.py", 2)]
        charged = [fakes.blame(1, "waiter", 0, first, first * 1000), fakes.blame(1, "waiter", 1, second, second * 1000)]
        return reading(tick, [lock(1, "a", None, counters(waits, [1000] * waits))], sites, [], charged)

    a, b = one(1, 90, 90, 0), one(2, 100, 90, 10)
    for snapshot in (build(b, None), merge(build(a, None), build(b, a))):
        assert {blame.site: blame.share for blame in row(snapshot, 1).waiter_sites} == pytest.approx(
            {"/a.py:1": 0.9, "/a.py:2": 0.1}
        )


def test_snapshots_of_different_processes_are_not_added_up() -> None:
    other = fakes.few(3)
    other["process"] = fakes.process(pid=1)
    assert merge(build(fakes.few(2), None), build(other, None)) == build(other, None)


# Whatever is read


def finite(value: Any) -> bool:
    if dataclasses.is_dataclass(value):
        return all(finite(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, tuple):
        return all(finite(item) for item in value)
    return not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("seed", range(300))
def test_rubbish_is_built_merged_and_written(seed: int) -> None:
    earlier, later = fakes.rubbish(seed), fakes.rubbish(seed + 10_000)
    later["process"] = earlier["process"]
    kept = copy.deepcopy((earlier, later))
    first, second = build(earlier, None, lambda native_id: False), build(later, earlier)
    for snapshot in (first, second, merge(first, second)):
        assert finite(snapshot)
        assert from_json(json.loads(dumps(snapshot))) == snapshot
        assert all(one.wait_share >= 0 for one in (*snapshot.locks, *snapshot.sites, snapshot.totals))
        assert all(0 <= blame.share <= 1.000001 for one in snapshot.locks for blame in (*one.holder_sites, *one.waiter_sites))
    assert kept == (earlier, later), "readings are left as they were"


# Documents


@pytest.mark.parametrize("make", FAKES)
def test_documents_lose_nothing(make: Any) -> None:
    for snapshot in (build(make(tick=3), None), build(make(tick=5), make(tick=3))):
        text = dumps(snapshot)
        assert text.isascii()
        assert text.count("\n") == 1
        assert from_json(json.loads(text)) == snapshot


def test_documents_have_the_promised_keys() -> None:
    document = to_json(build(fakes.few(4), fakes.few(2)))
    assert next(iter(document)) == "schema"
    assert {"process", "at_ns", "interval_ns", "locks", "sites", "threads", "cycles", "dropped", "totals"} < set(document)
    assert {"name", "kind", "site", "acquisitions", "contended", "wait_share", "wait_ns", "owner", "waiters"} < set(
        document["locks"][0]
    )
    assert {"sum", "p50", "p90", "p99", "p999", "max"} < set(document["locks"][0]["wait_ns"])
    assert {"name", "native_id", "state", "waiting_on", "delays"} < set(document["threads"][0])
    assert document["locks"][0]["label"] == "cache.lock"


def test_unknown_keys_are_ignored() -> None:
    snapshot = build(fakes.few(4), None)
    document = to_json(snapshot)
    document["later"] = document["locks"][0]["later"] = document["process"]["later"] = [1]
    assert from_json(document) == snapshot


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda document: document.pop("schema"), "it has no schema"),
        (lambda document: document.update(schema="ticketlock.snapshot/2"), f"ticketlock.snapshot/2.*{SCHEMA}"),
        (lambda document: document.pop("totals"), "document: a key 'totals' expected"),
        (lambda document: document.update(locks={}), r"document\.locks: a list expected"),
        (
            lambda document: document["locks"][0].update(kind="Door"),
            r"document\.locks\[0\]\.kind: one of .* expected, not 'Door'",
        ),
        (lambda document: document["locks"][1]["wait_ns"].pop("sum"), r"document\.locks\[1\]\.wait_ns: a key 'sum'"),
        (lambda document: document["locks"][0].update(wait_share=float("nan")), r"wait_share: a number"),
        (lambda document: document["locks"][0].update(contended=True), r"contended: a whole number"),
        (lambda document: document["locks"][0].update(contended=-1), r"contended: a whole number from 0 on"),
        (lambda document: document["locks"][0].update(waiters=10**40), r"waiters: a whole number"),
        (lambda document: document["locks"][0]["wait_ns"].update(log2=[1] * 65), r"wait_ns: at most 64 classes"),
        (lambda document: document["locks"][0]["wait_ns"].update(log2=[1, -1]), r"log2\[1\]: a whole number"),
        (lambda document: document["threads"][0].update(name=7), r"threads\[0\]\.name: a text"),
        (lambda document: document["cycles"].append({"threads": [1, 2], "locks": [1]}), r"cycles\[0\]: as many"),
        (lambda document: document["process"].update(free_threaded=0), r"process\.free_threaded: true or false"),
        (lambda document: document["dropped"].update(locks="many"), r"dropped: a whole number"),
    ],
)
def test_what_is_no_document_is_refused(spoil: Any, said: str) -> None:
    document = json.loads(dumps(build(fakes.few(4), None)))
    spoil(document)
    with pytest.raises(ValueError, match=said):
        from_json(document)


@pytest.mark.parametrize("thing", [None, [], 7, "x", {}, {"schema": 1}, {"schema": SCHEMA}])
def test_what_is_no_object_is_refused(thing: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        from_json(thing)


@pytest.mark.parametrize("seed", range(200))
def test_damaged_documents_raise_nothing_but_value_error(seed: int) -> None:
    chance = random.Random(seed)
    document = json.loads(dumps(build(fakes.few(4), fakes.few(2))))
    at: Any = document
    while True:
        key = chance.choice(list(at)) if isinstance(at, dict) else chance.randrange(len(at))
        inner = at[key]
        if not isinstance(inner, (dict, list)) or not inner or chance.random() < 0.2:
            at[key] = chance.choice((None, -1, 1.5, 10**40, "x", [], {}, [None], True, float("inf")))
            break
        at = inner
    with contextlib.suppress(ValueError):
        snapshot = from_json(document)
        assert from_json(to_json(snapshot)) == snapshot
