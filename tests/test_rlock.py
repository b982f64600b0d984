"""The contract that RLock shares with threading.RLock, beyond what test_lock.py asks of both locks."""

import gc
import re
import sys
import threading
import weakref
from contextlib import suppress

import pytest
from threads import Holder, in_forked_child, join, needs_fork, run_together, spawn
from ticketlock import RLock

NOT_OWNED = "^cannot release un-acquired lock$"


def elsewhere(function):
    """What `function()` returns or raises in another thread."""
    outcome = []

    def run():
        try:
            outcome.append(function())
        except Exception as error:  # noqa: BLE001 - whatever it raises is what is asked for
            outcome.append(error)

    join([spawn(run)])
    return outcome[0]


def test_the_owner_may_take_it_again():
    lock = RLock()
    for count in range(1, 6):
        assert lock.acquire(count % 2 == 0) is True
        assert lock._recursion_count() == count
    assert lock.acquire(timeout=0) is True
    with lock as entered:
        assert entered is True
        assert lock._recursion_count() == 7
    for count in range(6, 0, -1):
        assert lock._recursion_count() == count
        assert lock.locked()
        assert elsewhere(lambda: lock.acquire(False)) is False
        assert lock.release() is None
    assert lock._recursion_count() == 0
    assert not lock.locked()
    assert elsewhere(lambda: lock.acquire(False)) is True
    assert lock.stats()["acquisitions"] == 2, "taken again is not taken"


def test_ownership_is_per_thread():
    lock = RLock()
    assert not lock._is_owned()
    with lock, lock:
        assert lock._is_owned()
        assert elsewhere(lock._is_owned) is False
        assert elsewhere(lock._recursion_count) == 0
        assert elsewhere(lock.locked) is True
    assert not lock._is_owned()
    assert lock._recursion_count() == 0


@pytest.mark.parametrize("release", ["release", "__exit__", "_release_save"])
def test_only_the_owner_releases(release):
    lock = RLock()
    with pytest.raises(RuntimeError, match=NOT_OWNED):
        getattr(lock, release)()
    lock.acquire()
    error = elsewhere(getattr(lock, release))
    assert isinstance(error, RuntimeError)
    assert re.match(NOT_OWNED, str(error))
    assert lock._recursion_count() == 1
    lock.release()
    with pytest.raises(RuntimeError, match=NOT_OWNED):
        getattr(lock, release)()


def test_repr():
    lock = RLock()
    free = r"<unlocked ticketlock\.RLock object owner=0 count=0 at 0x[0-9a-f]+>"
    assert re.fullmatch(free, repr(lock))
    with lock, lock:
        held = f"<locked ticketlock.RLock object owner={threading.get_ident()} count=2 at {hex(id(lock))}>"
        assert repr(lock) == held
        assert elsewhere(lambda: repr(lock)) == held
    assert re.fullmatch(free, repr(lock))
    assert "object name='orders' owner=0" in repr(RLock(name="orders"))


def test_repr_is_of_one_moment():
    lock = RLock()
    stop = threading.Event()

    def work():
        while not stop.is_set():
            for _ in range(100):
                with lock:
                    pass

    thread = spawn(work)
    seen = [re.search(r"owner=(\d+) count=(\d+)", repr(lock)).groups() for _ in range(2000)]
    stop.set()
    join([thread])
    torn = [pair for pair in seen if (pair[0] == "0") != (pair[1] == "0")]
    assert len(torn) <= 2, "looks again while what it reads does not belong together"


def test_release_save_and_acquire_restore():
    lock = RLock()
    for _ in range(3):
        lock.acquire()
    saved = lock._release_save()
    assert saved == (3, threading.get_ident())
    assert not lock.locked()
    assert elsewhere(lambda: lock.acquire() and lock.release()) is None
    assert lock._acquire_restore(saved) is None
    assert lock._recursion_count() == 3
    for _ in range(3):
        lock.release()
    assert not lock.locked()


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (None, TypeError, "not NoneType"),
        ([1, 2], TypeError, "not list"),
        ((1,), TypeError, "tuple that _release_save"),
        ((1, 2, 3), TypeError, "tuple that _release_save"),
        (("1", 2), TypeError, "'str' object cannot be interpreted as an integer"),
        ((1, 2.0), TypeError, "'float' object cannot be interpreted as an integer"),
        ((-1, 2), OverflowError, "negative"),
        ((2**64, 2), OverflowError, "int too (large|big) to convert"),
        ((0, 1), ValueError, "not 0"),
        ((1, 0), ValueError, "not 0"),
    ],
)
def test_other_states_are_refused(state, error, message):
    lock = RLock()
    with pytest.raises(error, match=message):
        lock._acquire_restore(state)
    assert not lock.locked()


def test_release_save_gives_up_nothing_that_a_finalizer_gave_up():
    """Making its answer may run the collector, in this thread, between the look at the owner and the release."""
    lock, armed = RLock(), []
    taken, over = threading.Event(), threading.Event()
    released = []

    def take():
        with lock:
            taken.set()
            over.wait(10)
        released.append(True)

    class Finalized:
        def __init__(self):
            self.me = self

        def __del__(self):
            if armed:
                armed.clear()
                lock.release()
                armed_thread.start()
                taken.wait(10)

    armed_thread = threading.Thread(target=take)
    thresholds = gc.get_threshold()
    gc.disable()
    try:
        lock.acquire()
        Finalized()
        pairs = [(number, number) for number in range(5_000)]  # none is left to be used again
        save = lock._release_save
        armed.append(True)
        gc.set_threshold(1, 1, 1)
        gc.enable()
        with suppress(RuntimeError):
            save()
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    if armed:  # this interpreter collects elsewhere
        armed.clear()
        armed_thread.start()
    assert taken.wait(10)
    assert not lock._is_owned()
    over.set()
    armed_thread.join(10)
    assert released == [True]
    assert len(pairs) == 5_000


def test_the_count_does_not_wrap():
    lock = RLock()
    lock._acquire_restore((2**64 - 1, threading.get_ident()))
    for acquire in (lock.acquire, lock.__enter__, lambda: lock.acquire(False), lambda: lock.acquire(timeout=1)):
        with pytest.raises(OverflowError, match="^internal lock count overflowed$"):
            acquire()
    assert lock._recursion_count() == 2**64 - 1
    lock.release()
    assert lock.acquire() is True
    assert lock._recursion_count() == 2**64 - 1
    lock._at_fork_reinit()
    assert not lock.locked()
    assert lock._recursion_count() == 0


def test_exclusion_with_recursion():
    lock = RLock()
    total = 0

    def work(me):
        nonlocal total
        for _ in range(500):
            with lock:
                seen = total
                with lock:
                    total = seen + 1

    run_together(4, work)
    assert total == 2000
    assert lock.stats()["acquisitions"] == 2000


def test_condition_on_top():
    lock = RLock()
    condition = threading.Condition(lock)
    items, got = [], []

    def consume(me):
        for _ in range(100):
            with condition, condition:  # twice: wait must give up both
                while not items:
                    condition.wait()
                got.append(items.pop())

    threads = [spawn(consume, me) for me in range(3)]
    for item in range(300):
        with condition:
            items.append(item)
            condition.notify()
    join(threads)
    assert sorted(got) == list(range(300))
    assert not lock.locked()
    with pytest.raises(RuntimeError, match="un-acquired"):
        condition.wait()


# --- derived types -------------------------------------------------------------------------------------------------------


class Labelled(RLock):
    """Other arguments, attributes, and a count of its own."""

    def __init__(self, label, *, fairness="balanced"):
        super().__init__(name=label, fairness=fairness)
        self.label = label
        self.entered = 0

    def __enter__(self):
        self.entered += 1
        return super().__enter__()


def test_a_derived_lock_is_a_lock():
    lock = Labelled("orders", fairness="strict")
    assert isinstance(lock, RLock)
    assert (lock.name, lock.fairness, lock.label) == ("orders", "strict", "orders")
    with lock as entered:
        assert entered is True
        assert lock._is_owned()
        assert elsewhere(lambda: lock.acquire(False)) is False
    assert lock.entered == 1
    assert lock.__dict__ == {"label": "orders", "entered": 1}
    assert re.fullmatch(rf"<unlocked {__name__}\.Labelled object name='orders' owner=0 count=0 at 0x[0-9a-f]+>", repr(lock))
    with pytest.raises(TypeError):
        Labelled()
    with pytest.raises(TypeError, match="cannot pickle"):
        lock.__reduce_ex__(4)


def test_a_derived_lock_without_init_is_called_as_rlock_is():
    class Plain(RLock):
        pass

    assert Plain(name="x").name == "x"
    assert Plain().name is None
    with pytest.raises(TypeError, match="position"):
        Plain("x")


def test_a_derived_init_need_not_call_the_base():
    class Careless(RLock):
        def __init__(self, *args):
            self.args = args

    lock = Careless(1, 2)
    with lock:
        assert lock.args == (1, 2)
        assert lock.fairness == "balanced"


def test_init_may_run_again():
    lock = RLock(name="first", fairness="strict")
    with lock:
        number = lock.id
        lock.__init__(name="second")
        assert (lock.name, lock.fairness, lock.id, lock._recursion_count()) == ("second", "balanced", number, 1)
        with pytest.raises(ValueError, match="not accepted"):
            lock.__init__(name="third", fairness="x")
        assert lock.name == "second"


def test_renaming_while_others_look():
    lock = RLock(name="a" * 50)

    def work(me):
        for turn in range(2000):
            if me == 0:
                lock.__init__(name=("a" if turn % 2 else "b") * 50)
            else:
                assert set(lock.name) in ({"a"}, {"b"})

    run_together(3, work)


def test_more_bases_and_slots():
    class Mixin:
        def hello(self):
            return "hello"

    class Both(Mixin, RLock):
        __slots__ = ("extra",)

    lock = Both()
    lock.extra = 1
    assert lock.hello() == "hello"
    with lock:
        assert lock.locked()
    with pytest.raises(TypeError, match="lay-?out"):
        type("Conflict", (RLock, int), {})


def test_derived_locks_are_collected():
    class Node(RLock):
        def __init__(self):
            super().__init__(name="in a circle")
            self.me = self

    died = []
    node = Node()
    reference = weakref.ref(node, died.append)
    node.acquire()
    del node
    gc.collect()
    assert reference() is None
    assert died == [reference]

    before = sys.getrefcount(Node)
    for _ in range(200):
        Node()
    gc.collect()
    assert abs(sys.getrefcount(Node) - before) < 10

    class Plain:
        pass

    # The type itself goes, too; but free-threaded 3.13 keeps every type that it has once seen.
    gone, others_go = weakref.ref(Node), weakref.ref(Plain)
    del Node, Plain
    gc.collect()
    assert gone() is None or others_go() is not None


def test_a_finalizer_of_a_derived_lock_may_use_it():
    seen = []

    class Last(RLock):
        def __del__(self):
            with self:
                seen.append(self._recursion_count())

    Last()
    gc.collect()
    assert seen == [1]


@needs_fork
def test_the_forking_thread_still_owns_its_locks_in_the_child():
    lock, others = RLock(), RLock()

    def body():
        assert lock._recursion_count() == 2
        lock.release()
        lock.release()
        with lock:
            assert lock._is_owned()
        assert others.locked()
        assert not others._is_owned()
        assert not others.acquire(timeout=0.01)
        others._at_fork_reinit()
        with others, others:
            assert others._recursion_count() == 2

    with lock, lock, Holder(others):
        in_forked_child(body)
