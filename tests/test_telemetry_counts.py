"""What locks report: counts, times, lines and names, against what was planted."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import ticketlock
from kinds import KINDS
from segments import (
    contend,
    eventually,
    known,
    line_here,
    needs_segment,
    own,
    reading,
    row_of,
    site_at,
    thread_rows,
    waiting_for,
)
from threads import JOIN_S, Holder, alarm, join, needs_timers, python, raise_interrupt, run_together, spawn
from ticketlock import _lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ticketlock.monitor.raw import RawBlame

pytestmark = needs_segment

EVERY_KIND: dict[str, Callable[[], Any]] = {**KINDS, "TicketLock": ticketlock.TicketLock}
every_kind = pytest.mark.parametrize("make", EVERY_KIND.values(), ids=EVERY_KIND.keys())


@pytest.fixture
def sites() -> Iterator[None]:
    """Locks made in the test note where."""
    _lab.set_sites(True)
    yield
    _lab.set_sites(False)


# --- counts and times ------------------------------------------------------------------------------------------------------


@every_kind
def test_waits_are_counted_with_their_time(make: Callable[[], Any]) -> None:
    """The sum is within 2 % of what the waiters' own clocks say, each wait in the class of its length, or the next."""
    waits_each, held_s = 3, 0.05

    def measure() -> float:
        lock = make()
        waited: list[int] = []

        def wait() -> None:
            before = time.monotonic_ns()
            lock.acquire()
            waited.append(time.monotonic_ns() - before)
            lock.release()

        for _ in range(waits_each):
            lock.acquire()
            waiters = [spawn(wait) for _ in range(2)]
            eventually(lambda: known(lock) and row_of(lock)["waiters"] == 2)
            time.sleep(held_s)
            lock.release()
            join(waiters)
        row = row_of(lock)
        counters = row["counters"]
        assert counters["contended"] == len(waited) == 2 * waits_each
        assert counters["acquisitions"] == 3 * waits_each
        assert row["waiters_max"] == 2
        assert row["waiters"] == 0
        # What the thread waits for its interpreter is not the lock's.
        assert counters["wait_ns_sum"] <= sum(waited)
        assert counters["wait_ns_max"] <= max(waited)
        classes = [number for number, count in enumerate(counters["wait_ns_log2"]) for _ in range(count)]
        assert len(classes) == len(waited)
        for found, ns in zip(classes, sorted(waited), strict=True):
            assert found <= ns.bit_length() - 1
        if any(abs(found - (ns.bit_length() - 1)) > 1 for found, ns in zip(classes, sorted(waited), strict=True)):
            return 1.0
        return 1 - counters["wait_ns_sum"] / sum(waited)

    # Other load on the machine can only make the difference larger.
    errors = []
    while len(errors) < 6 and not any(error < 0.02 for error in errors):
        errors.append(measure())
    assert min(errors) < 0.02, errors


@every_kind
def test_counts_of_many_threads_are_exact(make: Callable[[], Any]) -> None:
    lock, turns, threads = make(), 2_000, 4
    run_together(threads, lambda _: [lock.acquire() and lock.release() for _ in range(turns)])
    contend(lock)
    counters = row_of(lock)["counters"]
    assert counters["acquisitions"] == turns * threads + 2
    assert sum(counters["wait_ns_log2"]) == counters["contended"]
    assert counters["timeouts"] == 0
    if hasattr(lock, "stats"):
        stats = lock.stats()
        assert {key: stats[key] for key in counters} == counters


def test_totals_count_locks_that_are_gone() -> None:
    gc.collect()
    before = reading()["totals"]
    lock = ticketlock.Lock()
    contend(lock, 0.02)
    counters = row_of(lock)["counters"]
    alive = reading()["totals"]
    del lock
    gc.collect()
    after = reading()["totals"]
    assert alive["contended"] - before["contended"] == after["contended"] - before["contended"] == counters["contended"] == 1
    assert after["wait_ns_sum"] - before["wait_ns_sum"] == counters["wait_ns_sum"] >= 15_000_000
    assert after["acquisitions"] - before["acquisitions"] == 2
    assert after["locks"] == alive["locks"] - 1


def test_the_wait_for_a_lock_that_ends_while_it_is_held_is_not_counted() -> None:
    """So it is with the locks that conditions make for those who wait for news: that is no contention."""
    before = reading()["totals"]
    lock = ticketlock.Lock()
    with Holder(lock, 0.02):
        lock.acquire()
    del lock
    gc.collect()
    assert reading()["totals"]["contended"] - before["contended"] == 0


def test_waits_that_are_given_up_count_as_timeouts_with_their_time() -> None:
    lock = ticketlock.Lock()
    with Holder(lock):
        for _ in range(2):
            assert not lock.acquire(timeout=0.05)
        counters = row_of(lock)["counters"]
    assert counters["timeouts"] == lock.stats()["timeouts"] == 2
    assert counters["wait_ns_sum"] >= 2 * 50_000_000
    assert counters["contended"] == counters["wait_ns_max"] == 0
    assert counters["wait_ns_log2"] == []
    # Waits that got the lock, alone.
    assert lock.stats()["wait_ns_sum"] == 0
    (row,) = thread_rows(threading.get_ident())
    assert min(row["recent_waits_ns"][-2:]) >= 50_000_000


def test_tries_do_not_wait() -> None:
    lock = ticketlock.Lock()
    contend(lock)
    before = row_of(lock)["counters"]
    with lock:
        assert not lock.acquire(False)
        assert not lock.acquire(timeout=0)
    counters = row_of(lock)["counters"]
    assert counters["contended"] == before["contended"]
    assert counters["acquisitions"] == before["acquisitions"] + 1  # type: ignore[operator]
    assert counters["timeouts"] <= 1, "a timeout of 0 may be one"


def test_a_lock_that_nobody_waits_for_takes_no_room() -> None:
    lock = ticketlock.Lock()
    for _ in range(100):
        with lock:
            pass
    assert not known(lock)
    contend(lock)
    assert row_of(lock)["counters"]["acquisitions"] == 102


# --- who holds, who waits --------------------------------------------------------------------------------------------------


@every_kind
def test_holder_and_waiters_are_shown_while_it_lasts(make: Callable[[], Any]) -> None:
    lock = make()
    before = time.monotonic_ns()
    lock.acquire()
    with waiting_for(lock, 2) as waiters:
        row = row_of(lock)
        assert row["owner"] == threading.get_ident()
        assert row["waiters"] == 2
        assert row["kind"] == type(lock).__name__
        for waiter in waiters:
            assert waiter.ident is not None
            (thread,) = thread_rows(waiter.ident)
            assert thread["native_id"] == waiter.native_id
            assert thread["waiting_on"] == lock.id
            assert thread["state"] in {"spinning", "parked"}
            assert thread["wait_started_ns"] is not None
            assert before < thread["wait_started_ns"] < time.monotonic_ns()
    row = row_of(lock)
    assert (row["owner"], row["waiters"]) == (None, 0)


def test_a_waiter_that_got_its_lock_waits_no_longer() -> None:
    lock = ticketlock.Lock()
    got, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        with lock:
            got.set()
            go_on.wait(JOIN_S)

    with Holder(lock, 0.02):
        waiter = spawn(wait)
        assert got.wait(JOIN_S)
        assert waiter.ident is not None
        (thread,) = thread_rows(waiter.ident)
        assert (thread["state"], thread["waiting_on"], thread["wait_started_ns"]) == ("running", None, None)
        assert (thread["waits"], len(thread["recent_waits_ns"])) == (1, 1)
        assert thread["wait_ns_sum"] == thread["recent_waits_ns"][0] > 0
        assert row_of(lock)["owner"] == waiter.ident
        go_on.set()
        join([waiter])


def test_the_latest_waits_of_a_thread_are_kept() -> None:
    lock = ticketlock.Lock()
    lengths = []

    def wait() -> None:
        for number in range(40):
            assert not lock.acquire(timeout=0.001 if number < 39 else 0.05)
        lengths.extend(thread_rows(threading.get_ident())[0]["recent_waits_ns"])

    with Holder(lock):
        join([spawn(wait)])
    assert len(lengths) == 32
    assert all(length >= 1_000_000 for length in lengths)
    assert lengths[-1] >= 50_000_000, "the latest one comes last"


def test_an_rlock_counts_what_is_taken_once_more_as_nothing() -> None:
    lock = ticketlock.RLock()
    contend(lock)
    before = row_of(lock)["counters"]["acquisitions"]
    assert before == 2
    for _ in range(5):
        lock.acquire()
    row = row_of(lock)
    assert (row["owner"], row["counters"]["acquisitions"]) == (threading.get_ident(), 3)
    for _ in range(4):
        lock.release()
        assert row_of(lock)["owner"] == threading.get_ident()
    lock.release()
    assert row_of(lock)["owner"] is None


def test_a_release_by_another_thread() -> None:
    lock = ticketlock.Lock()
    with Holder(lock, 0.02):
        lock.acquire()
    assert row_of(lock)["owner"] == threading.get_ident()
    join([spawn(lock.release)])
    row = row_of(lock)
    assert row["owner"] is None
    assert (row["counters"]["contended"], row["counters"]["acquisitions"]) == (1, 2)
    contend(lock)
    assert row_of(lock)["counters"]["acquisitions"] == 4


def test_a_wait_is_that_of_the_thread_that_waited_whoever_releases() -> None:
    lock = ticketlock.Lock()
    since = reading()["next_event"]
    with Holder(lock, 0.02):
        lock.acquire()
    join([spawn(lock.release)])
    (event,) = (event for event in own().events(since) if event["lock"] == lock.id)
    assert event["ident"] == threading.get_ident()


# --- names -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a", "a"),
        ("x" * 63, "x" * 63),
        ("x" * 64, "x" * 63 + "…"),
        ("é" * 31 + "x", "é" * 31 + "x"),
        ("é" * 32, "é" * 31 + "…"),
        ("x" + "日" * 21, "x" + "日" * 20 + "…"),
        ("🔒" * 16, "🔒" * 15 + "…"),
        ("[/] a[0] \x1b]0;x\x07\n", "[/] a[0] \x1b]0;x\x07\n"),
        ("y" * 10_000, "y" * 63 + "…"),
    ],
)
@pytest.mark.parametrize("make", [ticketlock.Lock, ticketlock.RLock])
def test_names_of_locks(make: Callable[..., Any], name: str, shown: str) -> None:
    lock = make(name=name)
    contend(lock, 0)
    assert lock.name == name
    assert row_of(lock)["name"] == shown


def test_no_name_is_none() -> None:
    lock = ticketlock.Lock()
    contend(lock, 0)
    assert row_of(lock)["name"] is None


def test_an_rlock_that_gets_its_name_late_reports_it() -> None:
    class Named(ticketlock.RLock):
        def __init__(self, name: str) -> None:
            contend(self, 0)
            assert row_of(self)["name"] is None
            super().__init__(name=name)

    lock = Named("late")
    assert row_of(lock)["name"] == "late"
    ticketlock.RLock.__init__(lock, name="again" * 20)
    assert row_of(lock)["name"] == ("again" * 20)[:63] + "…"


@pytest.mark.parametrize("name", ["worker-1", "日本語", "z" * 100])
def test_threads_are_called_as_python_calls_them(name: str) -> None:
    lock = ticketlock.Lock()
    shown: dict[str, str | None] = {}

    def hold() -> None:
        with lock:
            held.set()
            go_on.wait(JOIN_S)

    def wait() -> None:
        with lock:
            pass

    held, go_on = threading.Event(), threading.Event()
    # The holder itself never waits.
    holder = threading.Thread(target=hold, name=f"{name}h"[-100:], daemon=True)
    waiter = threading.Thread(target=wait, name=name, daemon=True)
    holder.start()
    assert held.wait(JOIN_S)
    waiter.start()
    eventually(lambda: known(lock) and row_of(lock)["waiters"] == 1)
    for thread in (holder, waiter):
        assert thread.ident is not None
        # What it is called is written a moment after it began to wait.
        (row,) = eventually(lambda ident=thread.ident: [row for row in thread_rows(ident) if row["name"]])
        shown[thread.name] = row["name"]
        assert row["native_id"] == thread.native_id
    go_on.set()
    join([holder, waiter])
    for called, seen in shown.items():
        assert seen is not None
        assert seen == called or (seen.endswith("…") and called.startswith(seen[:-1]) and len(seen) == 64)


def test_a_thread_that_is_renamed_is_called_anew() -> None:
    lock = ticketlock.Lock()
    seen: list[str | None] = []

    def work() -> None:
        me = threading.current_thread()
        for name in ("before", "after"):
            me.name = name
            deadline = time.monotonic() + JOIN_S
            while time.monotonic() < deadline:
                lock.acquire(timeout=0.01)
                (row,) = thread_rows(threading.get_ident())
                if row["name"] == name:
                    seen.append(name)
                    break

    with Holder(lock):
        join([spawn(work)])
    assert seen == ["before", "after"]


def test_threads_that_come_and_go_leave_nothing_behind() -> None:
    lock = ticketlock.Lock()
    before = reading()["dropped"]
    seen = set()

    def wait() -> None:
        lock.acquire(timeout=0.0001)
        seen.add(threading.get_native_id())

    with Holder(lock):
        for _ in range(200):
            run_together(25, lambda _: wait())
    assert reading()["dropped"] == before
    alive = {thread.native_id for thread in threading.enumerate()}

    def left() -> list[Any]:
        return [row for row in reading()["threads"] if row["waits"] and row["native_id"] in seen - alive]

    # A joined Python thread may still be on its way out of the system.
    eventually(lambda: not left(), "the end of the last threads")


# --- events ----------------------------------------------------------------------------------------------------------------


def events_of(lock: Any, since: int) -> list[Any]:
    return [event for event in own().events(since) if event["lock"] == lock.id]


def test_a_wait_is_an_event() -> None:
    lock = ticketlock.Lock(fairness="throughput")
    since, before = reading()["next_event"], time.monotonic_ns()
    lock.acquire()
    with waiting_for(lock) as (waiter,):
        time.sleep(0.02)
        assert events_of(lock, since) == [], "not before it has released"
    (event,) = events_of(lock, since)
    assert event["ident"] == waiter.ident
    assert event["outcome"] in {"acquired", "handed_over"}
    assert 15_000_000 < event["duration_ns"] == row_of(lock)["counters"]["wait_ns_sum"]
    assert before < event["started_ns"] < event["started_ns"] + event["duration_ns"] < time.monotonic_ns()
    assert since <= event["sequence"] < reading()["next_event"]


def test_a_lock_handed_over_says_so() -> None:
    lock = ticketlock.Lock(fairness="strict")
    since = reading()["next_event"]
    lock.acquire()
    with waiting_for(lock, 2):
        time.sleep(0.05)
    outcomes = [event["outcome"] for event in events_of(lock, since)]
    counters = row_of(lock)["counters"]
    assert outcomes.count("handed_over") == counters["hand_overs"] == lock.stats()["hand_overs"] >= 1


def test_a_wait_given_up_says_so() -> None:
    lock = ticketlock.Lock()
    since = reading()["next_event"]
    with Holder(lock):
        assert not lock.acquire(timeout=0.02)
        (event,) = events_of(lock, since)
    assert event["outcome"] == "timed_out"
    assert event["duration_ns"] >= 20_000_000
    assert event["ident"] == threading.get_ident()


@needs_timers
def test_a_wait_ended_by_a_handler_says_so() -> None:
    lock = ticketlock.Lock()
    since = reading()["next_event"]
    with Holder(lock):
        with alarm(raise_interrupt, 0.1), pytest.raises(KeyboardInterrupt):
            lock.acquire()
        (event,) = events_of(lock, since)
        assert row_of(lock)["waiters"] == 0
        (row,) = thread_rows(threading.get_ident())
        assert row["waiting_on"] is None
    assert event["outcome"] == "interrupted"
    assert row_of(lock)["counters"]["timeouts"] == 0


@needs_timers
def test_a_handler_that_does_not_raise_does_not_split_a_wait() -> None:
    lock = ticketlock.Lock()
    since = reading()["next_event"]
    handled: list[int] = []
    with Holder(lock, 0.2), alarm(lambda *_: handled.append(1), 0.05, 0.02):
        lock.acquire()
    signal.setitimer(signal.ITIMER_REAL, 0)
    lock.release()
    assert handled
    (event,) = events_of(lock, since)
    assert event["duration_ns"] == row_of(lock)["counters"]["wait_ns_sum"]
    assert row_of(lock)["counters"]["contended"] == 1


def test_a_handler_that_waits_itself_counts_apart() -> None:
    if not hasattr(signal, "setitimer"):
        pytest.skip("needs timers that signal")
    outer, inner = ticketlock.Lock(), ticketlock.Lock()

    def handler(*_: object) -> None:
        assert not inner.acquire(timeout=0.02)

    with Holder(inner), Holder(outer, 0.3):
        with alarm(handler, 0.05):
            outer.acquire()
        outer.release()
    assert row_of(outer)["counters"]["contended"] == 1
    assert row_of(inner)["counters"]["timeouts"] == 1
    (row,) = thread_rows(threading.get_ident())
    assert (row["waiting_on"], row["state"]) == (None, "running")


def test_the_ring_forgets_the_oldest_and_never_makes_anything_up() -> None:
    """Every event is one that was planted, whoever writes meanwhile; what is lost is a gap in the numbers."""
    capacity, threads = 65_536, 4
    lock = ticketlock.Lock()
    began, since = time.monotonic_ns(), reading()["next_event"]
    idents: set[int] = set()
    stop = threading.Event()

    def wait(_: int) -> None:
        idents.add(threading.get_ident())
        while not stop.is_set():
            lock.acquire(timeout=1e-5)

    def check(events: list[Any]) -> None:
        numbers = [event["sequence"] for event in events]
        assert numbers == sorted(set(numbers))
        for event in events:
            assert (event["lock"], event["outcome"]) == (lock.id, "timed_out")
            assert event["ident"] in idents
            assert began < event["started_ns"] < time.monotonic_ns()
            assert 5_000 <= event["duration_ns"] < time.monotonic_ns() - began

    with Holder(lock, 300):
        waiters = [spawn(wait, number) for number in range(threads)]
        read = since
        deadline = time.monotonic() + 50
        while read < since + capacity + 2_000 and time.monotonic() < deadline:
            events = own().events(read)
            check(events)
            read = events[-1]["sequence"] + 1 if events else read
            time.sleep(0.02)
        stop.set()
        join(waiters)
        ended = reading()["next_event"]
        if ended < since + capacity + 1:
            pytest.skip("this machine is too slow today for so many waits")
        kept = own().events(since)
    check(kept)
    assert kept[-1]["sequence"] == ended - 1
    assert kept[0]["sequence"] == ended - capacity > since
    assert len(kept) == capacity, "at rest there is none missing"
    assert row_of(lock)["counters"]["timeouts"] >= ended - since


# --- lines -----------------------------------------------------------------------------------------------------------------


def test_a_lock_made_while_sites_are_off_has_none() -> None:
    lock = ticketlock.Lock()
    contend(lock)
    assert row_of(lock)["site"] is None
    assert not reading()["process"]["sites"]


@pytest.mark.usefixtures("sites")
@every_kind
def test_a_lock_knows_where_it_was_made(make: Callable[[], Any]) -> None:
    lock = ticketlock.TicketLock() if make is ticketlock.TicketLock else ticketlock.Lock()
    line = line_here() - 1
    row = row_of(lock)
    assert row["site"] is not None
    site = reading()["sites"][row["site"]]
    assert (site["path"], site["line"]) == (__file__, line)
    assert site["function"] == sys._getframe().f_code.co_qualname
    assert not site["internal"]
    assert site["live"] >= 1
    assert reading()["process"]["sites"]


@pytest.mark.usefixtures("sites")
def test_what_the_standard_library_makes_is_its_callers_and_internal(monkeypatch: pytest.MonkeyPatch) -> None:
    import queue

    monkeypatch.setattr(threading, "Lock", ticketlock.Lock)
    made: Any = queue.Queue()
    line = line_here() - 1
    row = row_of(made.mutex)
    assert row["site"] is not None
    site = reading()["sites"][row["site"]]
    assert (site["path"], site["line"], site["internal"]) == (__file__, line, True)


@pytest.mark.usefixtures("sites")
def test_a_lock_that_ends_leaves_its_counts_with_its_site() -> None:
    def one() -> tuple[Any, int]:
        return ticketlock.Lock(), line_here()

    counters = []
    for number in range(3):
        lock, line = one()
        contend(lock, 0.01)
        with Holder(lock):
            assert not lock.acquire(timeout=0.01)
        counters.append(row_of(lock)["counters"])
        _, site = site_at(line, __file__)
        assert (site["created"], site["live"]) == (number + 1, 1)
        del lock
    gc.collect()
    number, site = site_at(line, __file__)
    assert (site["created"], site["live"]) == (3, 0)
    retired = site["retired"]
    for key in ("acquisitions", "contended", "wait_ns_sum", "parks", "timeouts", "hand_overs"):
        assert retired[key] == sum(each[key] for each in counters)  # type: ignore[literal-required]
    assert retired["wait_ns_max"] == max(each["wait_ns_max"] for each in counters)
    assert sum(retired["wait_ns_log2"]) == 3
    blames = [blame for blame in reading().get("retired_blames", []) if blame["of_site"] == number]
    assert {blame["role"] for blame in blames} >= {"waiter"}


def test_the_planted_hot_lock_comes_first_with_its_line_and_the_lines_to_blame() -> None:
    """Of 20 locks one is hot; one line holds it for long, another for a moment."""
    source = """
import sys, threading, time, ticketlock
from ticketlock import _lab
locks = [ticketlock.Lock() for _ in range(10)]
hot = ticketlock.Lock()
locks += [ticketlock.RLock() for _ in range(9)]
stop = time.monotonic() + 1
def long():
    while time.monotonic() < stop:
        hot.acquire()
        time.sleep(0.01)
        hot.release()
        time.sleep(0.001)
def short():
    while time.monotonic() < stop:
        with hot:
            pass
        for lock in locks:
            with lock:
                time.sleep(0.00001)
threads = [threading.Thread(target=long), *(threading.Thread(target=short) for _ in range(3))]
for thread in threads: thread.start()
for thread in threads: thread.join(20)
raw = _lab.own_segment().sample()
first = raw["locks"][0]
site = raw["sites"][first["site"]]
print(first["id"] == hot.id, site["path"], site["line"])
for role in ("waiter", "holder"):
    blames = [b for b in raw["blames"] if b["lock"] == hot.id and b["role"] == role]
    heaviest = max(blames, key=lambda b: b["weight_ns"])
    place = raw["sites"][heaviest["site"]]
    print(role, place["path"], place["line"], place["function"], heaviest["samples"] > 0)
"""
    lines = source.splitlines()
    compiled = f"import os; os.environ['TICKETLOCK_SITES'] = '1'; exec(compile({source!r}, '/planted.py', 'exec'))"
    first, waiter, holder = python(compiled).splitlines()
    assert first == f"True /planted.py {lines.index('hot = ticketlock.Lock()') + 1}"
    assert waiter == f"waiter /planted.py {lines.index('        with hot:') + 1} short True"
    assert holder == f"holder /planted.py {lines.index('        hot.release()') + 1} long True"


def blames_of(lock: Any, role: str) -> list[RawBlame]:
    return [blame for blame in reading()["blames"] if (blame["lock"], blame["role"]) == (lock.id, role)]


@every_kind
def test_lines_that_wait_and_lines_that_hold(make: Callable[[], Any]) -> None:
    lock = make()

    def wait() -> int:
        lock.acquire()
        waits = line_here() - 1
        lock.release()
        return waits

    for _ in range(3):
        with Holder(lock, 0.03):
            line = wait()
    number, _ = site_at(line, __file__)
    (waited,) = blames_of(lock, "waiter")
    assert (waited["site"], waited["samples"]) == (number, 3)
    assert waited["weight_ns"] == row_of(lock)["counters"]["wait_ns_sum"]
    held = max(blames_of(lock, "holder"), key=lambda blame: blame["weight_ns"])
    place = reading()["sites"][held["site"]]
    assert place["function"] == "Holder.__init__.<locals>.hold"
    assert held["samples"] == 3


# --- many ------------------------------------------------------------------------------------------------------------------

SHORT_LIVED = """
import gc, os, ticketlock
from ticketlock import _lab
def resident():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
make = ticketlock.Lock
def some(count):
    for _ in range(count):
        lock = make()
        lock.acquire()
        lock.release()
some(1_000)
before = resident()
some(199_000)
grown = resident() - before
raw = _lab.own_segment().sample()
sites = {(site["function"], site["created"], site["live"], site["retired"]["acquisitions"]) for site in raw["sites"][1:]}
print(sites, [row["id"] for row in raw["locks"]], set(raw["dropped"].values()), grown < 8 << 20 or grown)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_locks_that_come_and_go_leave_their_counts_and_no_memory() -> None:
    source = f"import os; os.environ['TICKETLOCK_SITES'] = '1'\n{SHORT_LIVED}"
    assert python(source) == "{('some', 200000, 0, 200000)} [] {0} True"


TOO_MANY = """
import gc, threading, time, ticketlock
from ticketlock import _lab
def quarrel(lock):
    lock.acquire()
    waiter = threading.Thread(target=lambda: lock.acquire() and lock.release())
    waiter.start()
    time.sleep(0.02)
    lock.release()
    waiter.join(20)
def read():
    raw = _lab.own_segment().sample(100_000)
    (site,) = (site for site in raw["sites"] if site["function"] == "<listcomp>" or site["function"] == "make")
    return raw, site
def make(count):
    locks = []
    while len(locks) < count:
        locks.append(ticketlock.Lock())
    return locks
locks = make(70_000)
raw, site = read()
assert len(raw["locks"]) == 65_536, len(raw["locks"])
assert raw["dropped"]["locks"] == 70_000 - 65_536, raw["dropped"]
assert (site["created"], site["live"]) == (70_000, 70_000), site
quarrel(locks[-1])
quarrel(locks[0])
assert locks[-1].acquire() and not locks[-1].acquire(timeout=0.01)
locks[-1].release()
raw, site = read()
assert not any(row["id"] == locks[-1].id for row in raw["locks"])
assert locks[-1].stats()["contended"] == 1 and locks[-1].stats()["timeouts"] == 1, locks[-1].stats()
assert site["retired"]["contended"] == 1 and site["retired"]["timeouts"] == 1, site
assert site["retired"]["wait_ns_sum"] >= locks[-1].stats()["wait_ns_sum"] + 10_000_000, site
assert raw["totals"]["contended"] == 2, raw["totals"]
assert raw["locks"][0]["id"] == locks[0].id
locks.clear()
gc.collect()
raw, site = read()
assert (site["created"], site["live"]) == (70_000, 0), site
assert site["retired"]["contended"] == 2 and site["retired"]["acquisitions"] == 5, site
assert raw["locks"] == [] and raw["totals"]["contended"] == 2
again = make(10)
raw, site = read()
assert len(raw["locks"]) == 10 and (site["created"], site["live"]) == (70_010, 10)
assert raw["dropped"]["locks"] == 70_000 - 65_536
print("ok")
"""


def test_more_locks_than_there_is_room_for() -> None:
    assert python(f"import os; os.environ['TICKETLOCK_SITES'] = '1'\n{TOO_MANY}") == "ok"
