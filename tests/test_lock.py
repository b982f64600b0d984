"""The contract that Lock shares with threading.Lock: shape, arguments, messages, release, counts."""

import copy
import gc
import inspect
import pickle
import re
import sys
import threading
import time
import weakref
from decimal import Decimal
from fractions import Fraction

import contract
import pytest
import ticketlock
from contract import Untrue
from threads import Holder, in_forked_child, join, needs_fork, python, run_together, spawn
from ticketlock import Lock, LockLike, RLock, TicketLock

KINDS = [Lock, RLock]
FAIRNESS = ["throughput", "balanced", "strict"]
STATS = {"acquisitions", "contended", "wait_ns_sum", "wait_ns_max", "wait_ns_log2", "parks", "timeouts", "hand_overs"}


class Index:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


# --- shape ---------------------------------------------------------------------------------------------------------------


def test_signatures():
    def shown(value):
        return str(inspect.signature(value))

    lock = Lock()
    assert shown(Lock) == shown(RLock) == "(*, name=None, fairness='balanced')"
    for kind in KINDS:
        assert shown(kind().acquire) == "(blocking=True, timeout=-1)"
        assert shown(kind().__exit__) == "(*exc_info)"
        assert shown(kind()._acquire_restore) == "(state, /)"
        for name in ("release", "locked", "__enter__", "_release_save", "_at_fork_reinit", "stats"):
            assert shown(getattr(kind(), name)) == "()"
    assert shown(lock.acquire_lock) == "(blocking=True, timeout=-1)"
    for name in ("release_lock", "locked_lock"):
        assert shown(getattr(lock, name)) == "()"


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_documented(kind):
    for name, member in vars(kind).items():
        if name not in {"__new__", "__init__", "__repr__", "__module__", "__doc__", "__weaklistoffset__"}:
            assert member.__doc__, name
    assert "drop-in" in kind.__doc__


def test_members_are_those_of_the_standard_lock():
    """What probes a lock for what it can do (threading.Condition does) must find the same."""
    standard = {name for name in dir(threading.Lock()) if not name.startswith("__")}
    assert standard <= {*dir(Lock())}
    assert not hasattr(Lock(), "_is_owned"), "a condition takes this for a recursive lock"
    standard = {name for name in dir(threading.RLock()) if not name.startswith("__")}
    assert standard <= {*dir(RLock())}


def test_repr_follows_the_standard_pattern():
    lock = Lock()
    assert re.fullmatch(r"<unlocked ticketlock\.Lock object at 0x[0-9a-f]+>", repr(lock))
    assert hex(id(lock)) in repr(lock)
    with lock:
        assert re.fullmatch(r"<locked .* object (.*)?at .*>", repr(lock))
    assert re.fullmatch(r"<unlocked ticketlock\.Lock object name='a \"b\"' at 0x[0-9a-f]+>", repr(Lock(name='a "b"')))


def test_type_is_final_and_closed():
    assert isinstance(Lock, type)
    assert Lock.__module__ == "ticketlock"
    assert Lock | None
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (Lock,), {})
    for kind in KINDS:
        with pytest.raises((TypeError, AttributeError)):
            kind.extra = 1
        with pytest.raises(AttributeError):
            kind().extra = 1
        for name in ("name", "fairness", "id"):
            with pytest.raises(AttributeError):
                setattr(kind(), name, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_identity_and_truth(kind):
    lock, other = kind(), kind()
    assert lock == lock
    assert lock != other
    assert bool(lock)
    assert len({lock, other, lock}) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_is_seen_by_the_collector_and_frees_its_type(kind):
    assert gc.is_tracked(kind())
    gc.collect()
    before = sys.getrefcount(kind)
    for _ in range(1000):
        kind(name="x")
    gc.collect()
    assert abs(sys.getrefcount(kind) - before) < 10


@pytest.mark.parametrize("kind", KINDS)
def test_weak_references(kind):
    lock = kind()
    died = []
    reference = weakref.ref(lock, died.append)
    assert reference() is lock
    lock.acquire()  # a lock may go while it is held
    del lock
    gc.collect()
    assert reference() is None
    assert died == [reference]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_pickle(kind, protocol):
    with pytest.raises(TypeError, match=rf"^cannot pickle '(ticketlock\.)?{kind.__name__}' object$"):
        pickle.dumps(kind(), protocol)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_no_copy(kind, duplicate):
    with pytest.raises(TypeError, match=rf"cannot pickle '(ticketlock\.)?{kind.__name__}' object"):
        duplicate(kind())


def test_memory_is_given_back():
    """Also the counts of a lock that was waited for."""

    def waited_for():
        lock = Lock(name="a name that does not fit anywhere else")
        with Holder(lock):
            assert not lock.acquire(timeout=1e-6)
            waiter = spawn(lock.acquire)
        join([waiter])
        return lock

    ids = [waited_for().id for _ in range(20)]
    assert len(set(ids)) == 20


def test_lock_like():
    assert isinstance(Lock(), LockLike)
    assert isinstance(RLock(), LockLike)
    assert isinstance(threading.Lock(), LockLike)
    assert not isinstance(threading.Event(), LockLike)
    assert ticketlock.LockStats.__required_keys__ == STATS


def test_types_for_annotations_are_loaded_on_use():
    heavy = "import sys, ticketlock; print(*{'typing', 'threading', 'ticketlock._typing'} & {*sys.modules} - set(%r))"
    already = python("import sys; print(*{'typing', 'threading'} & {*sys.modules})").split()
    assert python(heavy % already) == ""


# --- constructor ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_name(kind):
    assert kind().name is None
    assert kind(name=None).name is None
    for name in ("", "orders", "größe\0\N{LOCK}"):
        assert kind(name=name).name == name
    for name in (1, b"orders", ["x"], True):
        with pytest.raises(TypeError, match=f"^name must be a str or None, not {type(name).__name__}$"):
            kind(name=name)
    with pytest.raises(UnicodeEncodeError):
        kind(name="\ud800")


@pytest.mark.parametrize("kind", KINDS)
def test_fairness(kind):
    assert kind().fairness == "balanced"
    for fairness in FAIRNESS:
        lock = kind(fairness=fairness)
        assert lock.fairness == fairness
        with lock:
            assert lock.locked()
    for fairness in ("", "Balanced", "fair", "\ud800"):
        with pytest.raises(ValueError, match="'throughput', 'balanced' and 'strict'") as refused:
            kind(fairness=fairness)
        assert repr(fairness) in str(refused.value)
    for fairness in (None, 1, b"strict"):
        with pytest.raises(TypeError, match=f"not {type(fairness).__name__}: .*'strict'"):
            kind(fairness=fairness)


@pytest.mark.parametrize("kind", KINDS)
def test_constructor_takes_nothing_by_position(kind):
    for args in ((None,), ("name",), (1, 2)):
        with pytest.raises(TypeError, match=rf"{kind.__name__}\(\) takes .*position"):
            kind(*args)
    with pytest.raises(TypeError, match="keyword"):
        kind(blocking=True)


def test_ids_are_unique():
    locks = [kind() for kind in (*KINDS, TicketLock) for _ in range(100)]
    ids = {lock.id for lock in locks}
    assert len(ids) == 300
    assert min(ids) > 0
    newest = max(ids)
    del locks
    assert Lock().id > newest, "an id is never used again"


# --- acquire and release -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acquire", ["acquire", "acquire_lock", "__enter__"])
@pytest.mark.parametrize("release", ["release", "release_lock", "__exit__", "_release_save"])
def test_every_spelling(acquire, release):
    lock = Lock()
    assert getattr(lock, acquire)() is True
    assert lock.locked() is True
    assert lock.locked_lock() is True
    assert getattr(lock, release)() is None
    assert lock.locked() is False


@pytest.mark.parametrize("kind", KINDS)
def test_context_manager(kind):
    lock = kind()
    with lock as entered:
        assert entered is True
        assert lock.locked()
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert not lock.locked()
    lock.acquire()
    assert lock.__exit__(1, 2, 3, 4, 5) is None
    lock.acquire()
    assert lock.__exit__() is None
    with pytest.raises(TypeError):
        lock.__exit__(kind=None)
    with pytest.raises(TypeError):
        lock.__enter__(1)
    assert not lock.locked()


@pytest.mark.parametrize("false", [False, 0, None, [], ""])
def test_a_try_fails_on_a_held_lock_and_only_there(false):
    lock = Lock()
    assert lock.acquire(false) is True
    assert lock.acquire(false) is False
    assert lock.acquire(blocking=false) is False
    assert lock.acquire(false, -1) is False
    assert lock.acquire(false, timeout=-1.0) is False
    assert lock.acquire(timeout=0) is False
    assert lock.acquire(True, -0.0) is False
    lock.release()
    assert lock.acquire(blocking=false) is True
    lock.release()
    assert lock.acquire(timeout=0) is True
    assert lock.stats()["acquisitions"] == 3
    assert lock.stats()["timeouts"] == 0, "a try is no wait"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((True,), {}),
        ((1, -1), {}),
        (("yes", -1.0), {}),
        ((), {"blocking": [0]}),
        ((), {"timeout": -1}),
        ((True,), {"timeout": 1}),
        ((), {"timeout": 0.5, "blocking": True}),
        ((), {"timeout": True}),
        ((), {"timeout": Index(3)}),
        ((), {"timeout": Index(-1)}),
        ((), {"timeout": Decimal("0.5")}),
        ((), {"timeout": Fraction(1, 2)}),
        ((), {"timeout": 1e-300}),
        ((), {"timeout": -0.9999999999}),  # rounded away from zero it is -1
        ((), {"timeout": threading.TIMEOUT_MAX}),
        ((), {"timeout": int(threading.TIMEOUT_MAX)}),
    ],
)
def test_a_free_lock_is_taken(kind, args, kwargs):
    lock = kind()
    assert lock.acquire(*args, **kwargs) is True
    assert lock.locked()
    lock.release()


OUT_OF_RANGE = (OverflowError, "^timestamp out of range for C PyTime_t$")
NEGATIVE = (ValueError, "^timeout value must be a non-negative number$")
NON_BLOCKING = (ValueError, "^can't specify a timeout for a non-blocking call$")
NAN = (ValueError, r"^Invalid value NaN \(not a number\)$")

REFUSED = [
    # In the order in which the arguments are looked at: their number and names, blocking, timeout, the two together.
    ((1, 2, 3), {}, TypeError, r"^acquire\(\) takes at most 2 arguments \(3 given\)$"),
    ((1, 2), {"timeout": 3}, TypeError, r"^acquire\(\) takes at most 2 arguments \(3 given\)$"),
    ((), {"wait": Untrue()}, TypeError, r"^acquire\(\) got an unexpected keyword argument 'wait'$"),
    ((True,), {"blocking": True}, TypeError, r"^argument for acquire\(\) given by name \('blocking'\) and position \(1\)$"),
    ((True, None), {}, TypeError, "^must be real number, not NoneType$"),
    ((), {"timeout": "1"}, TypeError, "^must be real number, not str$"),
    ((False, None), {}, TypeError, "^must be real number, not NoneType$"),
    ((True, float("nan")), {}, *NAN),
    ((False, float("nan")), {}, *NAN),
    ((True, float("inf")), {}, *OUT_OF_RANGE),
    ((False, float("-inf")), {}, *OUT_OF_RANGE),
    ((True, 1e100), {}, *OUT_OF_RANGE),
    ((True, 10**30), {}, *OUT_OF_RANGE),
    ((True, -(10**30)), {}, *OUT_OF_RANGE),
    ((True, Index(2**63)), {}, *OUT_OF_RANGE),
    ((True, 9223372037), {}, *OUT_OF_RANGE),
    ((True, -9223372037), {}, *OUT_OF_RANGE),
    ((False, 0), {}, *NON_BLOCKING),
    ((False, 1), {}, *NON_BLOCKING),
    ((False, -2), {}, *NON_BLOCKING),
    ((), {"timeout": 0.0, "blocking": 0}, *NON_BLOCKING),
    ((True, -2), {}, *NEGATIVE),
    ((True, -1e-10), {}, *NEGATIVE),
    ((True, -0.5), {}, *NEGATIVE),
    ((True, -1.0000000001), {}, *NEGATIVE),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("args", "kwargs", "error", "message"), REFUSED)
def test_other_arguments_are_refused(kind, args, kwargs, error, message):
    """Also where the lock could be had without a wait: it is free, or this thread's own."""
    lock = kind()
    for _ in range(1 if kind is Lock else 2):
        before = repr(lock)
        with pytest.raises(error, match=message):
            lock.acquire(*args, **kwargs)
        assert repr(lock) == before
        if kind is RLock:
            lock.acquire()
    assert lock.stats()["acquisitions"] == (kind is RLock)


@pytest.mark.parametrize(("args", "kwargs", "error", "message"), REFUSED)
def test_the_standard_lock_refuses_them_too(args, kwargs, error, message):
    """What this file holds Lock to is what the interpreter at hand does, if not always in these words."""
    with pytest.raises(error):
        threading.Lock().acquire(*args, **kwargs)


@pytest.mark.parametrize("kind", KINDS)
def test_an_argument_without_truth(kind):
    lock = kind()
    with pytest.raises(ZeroDivisionError):
        lock.acquire(Untrue(), None)
    assert not lock.locked()
    assert lock.stats()["acquisitions"] == 0


def test_a_timeout_above_the_standard_ones_is_refused():
    for kind in KINDS:
        with pytest.raises(OverflowError):
            kind().acquire(timeout=threading.TIMEOUT_MAX + 1)


def test_no_keywords_may_also_be_an_empty_tuple():
    for kind in KINDS:
        lock = kind()
        assert contract.called_with_empty_keywords(lock.acquire) is True
        assert lock.locked()


def test_release_of_a_free_lock():
    lock = Lock()
    for release in (lock.release, lock.release_lock, lock.__exit__, lock._release_save):
        with pytest.raises(RuntimeError, match="^release unlocked lock$"):
            release()
    with lock:
        pass
    with pytest.raises(RuntimeError):
        lock.release()
    assert lock.acquire(False)


def test_another_thread_may_release():
    lock = Lock()
    for _ in range(100):
        lock.acquire()
        join([spawn(lock.release)])
        assert not lock.locked()


def test_two_racing_releases_give_exactly_one_error():
    lock = Lock()
    assert contract.check_racing_releases(lock) == lock.stats()["acquisitions"]


def test_every_acquisition_is_released_once():
    contract.check_every_acquisition_is_released_once(Lock())


# --- counts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_stats_of_a_lock_that_nobody_waits_for(kind):
    lock = kind()
    zeros = dict.fromkeys(STATS, 0) | {"wait_ns_log2": []}
    assert lock.stats() == zeros
    for _ in range(10):
        with lock:
            pass
        lock.acquire(timeout=1)
        lock.release()
    assert lock.stats() == zeros | {"acquisitions": 20}
    assert lock.stats() is not lock.stats(), "a copy, which does not change"


@pytest.mark.parametrize("kind", KINDS)
def test_stats_of_waits(kind):
    lock = kind()
    with Holder(lock) as holder:
        assert not lock.acquire(timeout=0.01)
        assert not lock.acquire(timeout=0.01)
        given_up = lock.stats()
        assert given_up.pop("parks") >= 2, "who gave up has slept"
        assert given_up == dict.fromkeys(STATS - {"parks"}, 0) | {"acquisitions": 1, "timeouts": 2, "wait_ns_log2": []}
        start = time.monotonic()

        def wait():
            lock.acquire()
            held.append(lock.stats()["contended"])
            lock.release()

        held = []
        waiter = spawn(wait)
        time.sleep(0.1)
        holder.let_go()
        join([waiter])
        assert held == [0], "what a wait took is counted after the release that it led to"
        longest = (time.monotonic() - start) * 1e9
    stats = lock.stats()
    assert stats["contended"] == 1
    assert 0.05e9 < stats["wait_ns_sum"] == stats["wait_ns_max"] <= longest
    assert stats["parks"] >= 1
    assert stats["hand_overs"] in (0, 1)
    bucket = stats["wait_ns_max"].bit_length() - 1
    assert stats["wait_ns_log2"] == [0] * bucket + [1]
    assert stats["timeouts"] == 2


def test_stats_of_many_waits_add_up():
    lock = Lock()

    def work(me):
        for turn in range(200):
            with lock:
                if turn % 10 == 0:
                    time.sleep(0.0002)  # lets others find the lock held

    run_together(4, work)
    stats = lock.stats()
    assert stats["acquisitions"] == 800
    assert 0 < stats["contended"] <= 800
    assert sum(stats["wait_ns_log2"]) == stats["contended"]
    assert stats["wait_ns_max"] <= stats["wait_ns_sum"]
    assert stats["hand_overs"] <= stats["contended"]
    assert len(stats["wait_ns_log2"]) == stats["wait_ns_max"].bit_length()


@pytest.mark.parametrize("kind", KINDS)
def test_reinit_keeps_identity_and_counts(kind):
    lock = kind(name="kept", fairness="strict")
    lock.acquire()
    before = lock.id, lock.name, lock.fairness, lock.stats()
    lock._at_fork_reinit()
    assert not lock.locked()
    assert (lock.id, lock.name, lock.fairness, lock.stats()) == before
    with lock:
        assert lock.locked()
    assert not lock.locked()


# --- where code runs unasked ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_finalizers_may_use_a_lock_that_is_used_all_over(kind):
    """The collector runs them in whichever thread allocates, which may be about to take or release the same kind of lock."""
    lock, busy = kind(), kind()
    finalized = []

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            with lock:
                finalized.append(None)

    def work(me):
        for _ in range(300):
            Cycle()
            with busy:
                pass

    former = gc.get_threshold()
    gc.set_threshold(10)
    try:
        run_together(4, work)
    finally:
        gc.set_threshold(*former)
    gc.collect()
    assert len(finalized) == 1200
    assert not lock.locked()
    assert not busy.locked()


@needs_fork
def test_a_lock_held_at_a_fork_stays_held_in_the_child():
    mine, others = Lock(), Lock()

    def body():
        assert mine.locked()
        assert not mine.acquire(timeout=0.01)
        mine.release()
        assert others.locked()
        others.release()  # any thread may
        for lock in (mine, others):
            with lock:
                assert lock.locked()

    with mine, Holder(others):
        in_forked_child(body)
