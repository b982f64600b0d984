"""The contract of the Python TicketLock: what threading.Lock promises, and what a strict ticket lock adds and cannot do."""

import copy
import gc
import inspect
import pickle
import re
import sys
import threading
import time
import weakref
from contextlib import contextmanager

import contract
import pytest
import ticketlock
from threads import FREE_THREADED, JOIN_S, Holder, alarm, in_forked_child, join, needs_fork, needs_timers, python, spawn
from ticketlock import TicketLock, _core, _lab

BACKOFFS = ["none", "proportional:50", "proportional-v1:50", "auto", "auto-shared", "auto-v1:2", "auto-v1:2.7"]
LARGEST_DELAY = _lab.machine()["delay_cap"] * (1 + 36 / 256)  # one step of growth from just below the cap


@contextmanager
def calm_gil():
    """No forced switches: a thread that was let run keeps the GIL until it waits."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def queue_up(lock, target, *args):
    """Start a thread whose first act is `lock.acquire()`, and return when it is in line (`lock` is held by the caller)."""
    ready = threading.Event()

    def run():
        ready.set()
        target(*args)

    # With a GIL, the setter of `ready` keeps running until it detaches, which is after drawing its ticket.
    with calm_gil():
        thread = spawn(run)
        assert ready.wait(JOIN_S)
        time.sleep(0.05 if FREE_THREADED else 0.005)
    return thread


# --- shape ---------------------------------------------------------------------------------------------------------------


def test_version_is_the_packages():
    assert ticketlock.__version__ == _core.__version__ == _lab.machine()["build"]["version"]


def test_signatures():
    def shown(value):
        return str(inspect.signature(value))

    lock = TicketLock()
    assert shown(TicketLock) == "(backoff='auto')"
    assert shown(lock.acquire) == shown(lock.acquire_lock) == "(blocking=True)"
    assert shown(lock.__exit__) == "(*exc_info)"
    for name in ("release", "release_lock", "locked", "locked_lock", "__enter__", "_at_fork_reinit"):
        assert shown(getattr(lock, name)) == "()"


def test_everything_is_documented():
    for name, member in vars(TicketLock).items():
        if name not in {"__new__", "__repr__", "__module__", "__doc__", "__weaklistoffset__"}:
            assert member.__doc__, name
    assert "cannot be interrupted" in TicketLock.__doc__
    assert "fork" in TicketLock.__doc__


def test_repr_follows_the_standard_pattern():
    lock = TicketLock("proportional:7")
    assert re.fullmatch(r"<unlocked ticketlock\.TicketLock object backoff=proportional:7 at 0x[0-9a-f]+>", repr(lock))
    assert hex(id(lock)) in repr(lock)
    with lock:
        assert re.fullmatch(r"<locked .* object (.*)?at .*>", repr(lock))


def test_type_is_final_and_closed():
    assert isinstance(TicketLock, type)
    assert TicketLock.__module__ == "ticketlock"
    assert TicketLock | None
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (TicketLock,), {})
    with pytest.raises((TypeError, AttributeError)):
        TicketLock.extra = 1
    with pytest.raises(AttributeError):
        TicketLock().extra = 1
    for name in ("backoff", "id", "acquisitions"):
        with pytest.raises(AttributeError):
            setattr(TicketLock(), name, 1)


def test_identity_and_truth():
    lock, other = TicketLock(), TicketLock()
    assert lock == lock
    assert lock != other
    assert hash(lock) != hash(other) or lock is other
    assert bool(lock)


def test_works_as_a_class_attribute():
    class Holder:
        lock = TicketLock()

    with Holder().lock:
        assert Holder.lock.locked()


def test_is_seen_by_the_collector_and_frees_its_type():
    lock = TicketLock()
    assert gc.is_tracked(lock)
    assert any(known is lock for known in gc.get_objects())
    del lock
    gc.collect()
    before = sys.getrefcount(TicketLock)
    for _ in range(1000):
        TicketLock()
    gc.collect()
    assert abs(sys.getrefcount(TicketLock) - before) < 10


def test_weak_references():
    lock = TicketLock()
    died = []
    reference = weakref.ref(lock, died.append)
    assert reference() is lock
    assert weakref.getweakrefcount(lock) == 1
    del lock
    gc.collect()
    assert reference() is None
    assert died == [reference]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_pickle(protocol):
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(TicketLock(), protocol)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_no_copy(duplicate):
    with pytest.raises(TypeError, match="cannot pickle"):
        duplicate(TicketLock())


# --- constructor ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backoff", BACKOFFS)
def test_backoff_by_name(backoff):
    lock = TicketLock(backoff)
    assert lock.backoff == backoff
    with lock:
        assert lock.locked()


def test_backoff_by_number_and_default():
    assert TicketLock().backoff == "auto"
    assert TicketLock(backoff=50).backoff == "proportional:50"
    assert TicketLock(1).backoff == "proportional:1"
    assert TicketLock(1_000_000).backoff == "proportional:1000000"


@pytest.mark.parametrize("backoff", ["", "Auto", "proportional", "proportional:0", "ticket", "\ud800", 0, -1, 1_000_001, 10**30])
def test_other_backoffs_are_refused(backoff):
    with pytest.raises(ValueError, match="proportional-v1:N") as refused:
        TicketLock(backoff)
    assert repr(backoff) in str(refused.value)
    assert "1000000" in str(refused.value)


@pytest.mark.parametrize("backoff", [True, None, 1.5, b"auto", [50]])
def test_other_types_are_refused(backoff):
    with pytest.raises(TypeError, match=f"not {type(backoff).__name__}: .*auto-shared"):
        TicketLock(backoff)


def test_constructor_arguments():
    with pytest.raises(TypeError, match="at most 1 argument"):
        TicketLock("auto", 2)
    with pytest.raises(TypeError, match="keyword"):
        TicketLock(factor=2)


def test_ids_are_unique():
    locks = [TicketLock() for _ in range(100)]
    ids = {lock.id for lock in locks}
    assert len(ids) == 100
    assert min(ids) > 0
    newest = max(ids)
    del locks
    assert TicketLock().id > newest, "an id is never used again"


# --- acquire and release -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acquire", ["acquire", "acquire_lock", "__enter__"])
@pytest.mark.parametrize("release", ["release", "release_lock", "__exit__"])
def test_every_spelling(acquire, release):
    lock = TicketLock()
    assert getattr(lock, acquire)() is True
    assert lock.locked() is True
    assert lock.locked_lock() is True
    assert getattr(lock, release)() is None
    assert lock.locked() is False


def test_context_manager():
    lock = TicketLock()
    with lock as entered:
        assert entered is True
        assert lock.locked()
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert not lock.locked()
    lock.acquire()
    assert lock.__exit__(1, 2, 3, 4, 5) is None
    with pytest.raises(TypeError):
        lock.__exit__(kind=None)


@pytest.mark.parametrize("false", [False, 0, None, [], ""])
def test_a_try_fails_on_a_held_lock_and_only_there(false):
    lock = TicketLock()
    assert lock.acquire(false) is True
    assert lock.acquire(false) is False
    assert lock.acquire(blocking=false) is False
    lock.release()
    assert lock.acquire(blocking=false) is True
    assert lock.acquisitions == 2


def test_true_values_block():
    lock = TicketLock()
    for true in (True, 1, "x", [0]):
        assert lock.acquire(true) is True
        lock.release()
        assert lock.acquire(blocking=true) is True
        lock.release()


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((True, 1.0), {}, "takes no timeout.*belongs to Lock"),
        ((), {"timeout": -1}, "takes no timeout.*belongs to Lock"),
        ((False,), {"timeout": 0}, "takes no timeout.*belongs to Lock"),
        ((True, 1, 2), {}, "at most 1 argument"),
        ((), {"wait": True}, "unexpected keyword argument 'wait'"),
        ((True,), {"blocking": True}, "multiple values"),
    ],
)
def test_other_arguments_are_refused(args, kwargs, message):
    lock = TicketLock()
    with pytest.raises(TypeError, match=message):
        lock.acquire(*args, **kwargs)
    assert not lock.locked()


def test_no_keywords_may_also_be_an_empty_tuple():
    lock = TicketLock()
    assert contract.called_with_empty_keywords(lock.acquire) is True
    assert lock.locked()


def test_an_argument_without_truth():
    lock = TicketLock()
    with pytest.raises(ZeroDivisionError):
        lock.acquire(contract.Untrue())
    assert not lock.locked()
    assert lock.acquisitions == 0


def test_release_of_a_free_lock():
    lock = TicketLock()
    for release in (lock.release, lock.release_lock, lock.__exit__):
        with pytest.raises(RuntimeError, match="^release unlocked lock$"):
            release()
    with lock:
        pass
    with pytest.raises(RuntimeError):
        lock.release()
    assert lock.acquire(False)


def test_another_thread_may_release():
    lock = TicketLock()
    lock.acquire()
    join([spawn(lock.release)])
    assert not lock.locked()


def test_two_racing_releases_give_exactly_one_error():
    lock = TicketLock()
    assert contract.check_racing_releases(lock) == lock.acquisitions


def test_every_acquisition_is_released_once():
    lock = TicketLock()
    assert contract.check_every_acquisition_is_released_once(lock) == lock.acquisitions


# --- contention ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backoff", BACKOFFS)
def test_exclusion_and_exact_counts(backoff):
    lock = TicketLock(backoff)
    assert contract.check_exclusion(lock) == lock.acquisitions


def test_waiters_are_served_in_order():
    lock = TicketLock("auto")
    served = []

    def work(me):
        with lock:
            served.append(me)

    lock.acquire()
    threads = [queue_up(lock, work, me) for me in range(8)]
    assert not lock.acquire(False), "a try does not overtake a line"
    lock.release()
    join(threads)
    assert served == list(range(8))


def test_a_waiter_is_detached():
    """The collector and other threads go on while a thread waits."""
    lock = TicketLock()
    lock.acquire()
    waiter = queue_up(lock, lock.acquire)
    gc.collect()
    join([spawn(sum, range(1000))])
    assert waiter.is_alive()
    lock.release()
    join([waiter])
    assert lock.locked()


@needs_fork
def test_fork_with_a_waiter_and_reinit():
    lock = TicketLock()
    lock.acquire()
    waiter = queue_up(lock, lock.acquire)

    def body():
        # The waiter does not exist here, but its ticket does.
        lock._at_fork_reinit()
        assert not lock.locked()
        assert lock.acquire(False)
        assert not lock.acquire(False)
        lock.release()
        with lock:
            pass

    in_forked_child(body)
    lock.release()
    join([waiter])


def test_reinit_keeps_identity_and_count():
    lock = TicketLock()
    lock.acquire()
    before = lock.id, lock.acquisitions
    lock._at_fork_reinit()
    assert not lock.locked()
    assert (lock.id, lock.acquisitions) == before
    with lock:
        pass


@needs_timers
def test_a_signal_is_handled_after_the_grant():
    lock = TicketLock()
    handled = []
    with Holder(lock, 0.4), alarm(lambda *_: handled.append(time.monotonic()), 0.05):
        start = time.monotonic()
        assert lock.acquire()
        assert time.monotonic() - start > 0.2
        for _ in range(1000):
            if handled:
                break
    assert handled
    assert handled[0] - start > 0.2, "the handler ran while waiting"
    assert lock.locked()


def test_daemon_threads_in_line_at_exit():
    source = """
import threading, time
from ticketlock import TicketLock
lock = TicketLock()
lock.acquire()
for _ in range(4):
    threading.Thread(target=lock.acquire, daemon=True).start()
time.sleep(0.1)
lock.release()
"""
    python(source, runs=3)


# --- interpreters --------------------------------------------------------------------------------------------------------


SUBINTERPRETER = """
import threading, time
from ticketlock import TicketLock, _core
try:
    import _interpreters
    def run(code):
        interpreter = _interpreters.create("isolated")
        ended = _interpreters.exec(interpreter, code)
        assert ended is None, ended
        _interpreters.destroy(interpreter)
except ImportError:
    import _xxsubinterpreters
    def run(code):
        interpreter = _xxsubinterpreters.create()
        _xxsubinterpreters.run_string(interpreter, code)
        _xxsubinterpreters.destroy(interpreter)

def contend(watched, lock):
    lock.acquire()
    threads = [threading.Thread(target=lambda: (lock.acquire(), lock.release())) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    lock.release()
    for thread in threads:
        thread.join()
    return bool(watched)

events = []
_core._set_delay_watch(events.append)
run('''
from ticketlock import TicketLock, _core
with TicketLock() as entered:
    assert entered is True
_core._set_delay_watch(print)
''')
assert contend(events, TicketLock()), "another interpreter's watch is another's"
print("ok")
"""


def test_subinterpreters_can_import():
    try:
        import _interpreters  # noqa: F401
    except ImportError:
        pytest.importorskip("_xxsubinterpreters")
    assert python(SUBINTERPRETER) == "ok"


@pytest.mark.skipif(not FREE_THREADED, reason="has a GIL")
def test_import_leaves_the_gil_off():
    assert python("import sys; from ticketlock import _core, _lab; print(sys._is_gil_enabled())") == "False"


def test_import_loads_the_locks_only():
    heavy = python("import sys, ticketlock; print(*{'rich', 'argparse', 'json', 'ticketlock._lab'} & {*sys.modules})")
    assert heavy == ""


# --- delays and the delay watch ------------------------------------------------------------------------------------------


@contextmanager
def watching(callback):
    _lab.set_delay_watch(callback)
    try:
        yield
    finally:
        _lab.set_delay_watch(None)


def hold_until_tuned(lock, *workers):
    """Queue the workers up behind a hold that is long enough for the delays of all but the first to grow."""
    lock.acquire()
    threads = [queue_up(lock, worker) for worker in workers]
    time.sleep(0.1)
    lock.release()
    return threads


def pass_through(lock):
    def work():
        with lock:
            pass

    return work


def test_delays_name_the_lock_by_id():
    lock = TicketLock()
    for generation in (0, 1):
        go, natives = threading.Event(), []

        def work(go=go, natives=natives):
            with lock:
                natives.append(threading.get_native_id())
            go.wait(JOIN_S)

        threads = hold_until_tuned(lock, work, work, work)
        deadline = time.monotonic() + JOIN_S
        while len(natives) < 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        rows = [row for row in _lab.delays() if row[1] == lock.id and row[0] in natives]
        go.set()
        join(threads)
        # The first in line polls without tuning; the two behind it have learnt a delay each.
        assert len(rows) == 2, rows
        for _, _, found, slot, delay, hits, collisions in rows:
            assert found == generation
            assert 0 <= slot < 64
            assert 1 < delay <= LARGEST_DELAY
            assert hits >= 0
            assert collisions == 0
        lock._at_fork_reinit()
    # A joined Python thread may still be on its way out of the system.
    deadline = time.monotonic() + JOIN_S
    while (left := [row for row in _lab.delays() if row[0] in natives]) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not left, "delays of threads that ended"


def test_shared_delays_have_no_slot():
    lock = TicketLock("auto-shared")
    go, done = threading.Event(), []

    def work():
        with lock:
            done.append(threading.get_native_id())
        go.wait(JOIN_S)

    threads = hold_until_tuned(lock, work, work)
    deadline = time.monotonic() + JOIN_S
    while len(done) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    rows = [row for row in _lab.delays() if row[0] == done[1]]
    go.set()
    join(threads)
    assert [(row[1], row[3]) for row in rows] == [(0, -1)]
    assert rows[0][4] > 1


def test_the_watch_reports_after_release_and_names_the_line():
    lock = TicketLock()
    events, before_release, states = [], [], []

    def callback(event):
        events.append(event)
        states.append((lock.locked(), threading.get_native_id()))

    def work():
        lock.acquire()  # the line to be named
        before_release.append(list(events))
        lock.release()

    with watching(callback):
        join(hold_until_tuned(lock, pass_through(lock), work))
    (report,) = events
    assert before_release == [[]], "a report before the release"
    assert states == [(False, report["native_id"])], "not in the thread that waited, or with the lock held"
    assert set(report) == {"lock", "delay", "previous_max", "native_id", "traceback"}
    assert report["lock"] == lock.id
    assert report["delay"] > report["previous_max"] * 4 / 3
    assert 1 <= report["previous_max"] <= report["delay"] <= LARGEST_DELAY
    filename, lineno, _ = report["traceback"][-1]
    assert filename == __file__
    assert lineno == work.__code__.co_firstlineno + 1
    assert report["traceback"][0][0].endswith("threading.py"), "outermost first"


def test_with_is_named_too():
    lock = TicketLock()
    events = []

    def work():
        with lock:
            pass

    with watching(events.append):
        join(hold_until_tuned(lock, pass_through(lock), work))
    assert [event["traceback"][-1][:2] for event in events] == [(__file__, work.__code__.co_firstlineno + 1)]


def test_no_report_once_switched_off():
    lock = TicketLock()
    events = []
    with watching(events.append):
        pass
    join(hold_until_tuned(lock, pass_through(lock), pass_through(lock)))
    assert events == []


def test_a_report_whose_watch_went_away_is_dropped():
    lock = TicketLock()
    events = []

    def work():
        lock.acquire()
        _lab.set_delay_watch(None)
        lock.release()

    with watching(events.append):
        join(hold_until_tuned(lock, pass_through(lock), work))
    assert events == []
    assert not lock.locked()


def test_a_lock_may_die_with_a_report():
    events = []

    def work(lock):
        lock.acquire()  # never released

    with watching(events.append):
        lock = TicketLock()
        lock.acquire()
        threads = [queue_up(lock, pass_through(lock)), queue_up(lock, work, lock)]
        time.sleep(0.05)
        lock.release()
        join(threads)
        del lock, threads
        gc.collect()
    assert events == []


def test_the_callback_may_use_the_lock_and_does_not_report_itself():
    lock, other = TicketLock(), TicketLock()
    events = []

    def callback(event):
        events.append((event["lock"], event["native_id"]))
        with lock:  # not held: this would wait for ever
            pass
        if event["lock"] == lock.id:
            # Contends, behind two others, long enough for a delay to grow.
            other.acquire()
            helpers = [queue_up(other, pass_through(other)) for _ in range(2)]
            release = threading.Timer(0.1, other.release)
            release.start()
            with other:
                pass
            join([*helpers, release])

    with watching(callback):
        join(hold_until_tuned(lock, pass_through(lock), pass_through(lock)))
    (waited,) = [native_id for lock_id, native_id in events if lock_id == lock.id]
    # One of the helpers, a thread of its own, had somebody ahead and reports; the thread inside its callback must not.
    assert [native_id for lock_id, native_id in events if lock_id == other.id and native_id == waited] == []
    assert len(events) == 2


def test_errors_of_the_callback_go_to_the_unraisable_hook(monkeypatch):
    lock = TicketLock()
    caught = []
    monkeypatch.setattr(sys, "unraisablehook", lambda failed: caught.append((failed.exc_type, failed.object)))

    def callback(_):
        raise LookupError("from the callback")

    with watching(callback):
        join(hold_until_tuned(lock, pass_through(lock), pass_through(lock)))
    assert caught == [(LookupError, callback)]
    assert not lock.locked()
    del caught[:]


def test_the_watch_wants_a_callable():
    with pytest.raises(TypeError, match="callable, or None"):
        _lab.set_delay_watch(5)
    with pytest.raises(TypeError):
        _lab.set_delay_watch()


def test_the_callback_is_freed():
    class Callback:
        def __call__(self, event):
            pass

    for successor in (print, None):
        callback = Callback()
        reference = weakref.ref(callback)
        _lab.set_delay_watch(callback)
        del callback
        gc.collect()
        assert reference() is not None
        _lab.set_delay_watch(successor)
        gc.collect()
        assert reference() is None
        _lab.set_delay_watch(None)
