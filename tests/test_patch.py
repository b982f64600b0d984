"""`patch()`, `unpatch()` and `patched()`: what is replaced, what is left, and that all of it comes back.

Each test has an interpreter of its own. Names of tests that end in ddtrace stand for a bug that the best-known lock profiler
for Python had in the same place.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from conftest import environment
from threads import needs_fork

# What the programs below can use.
PRELUDE = """\
import _thread, gc, importlib, os, pickle, queue, sys, tempfile, threading, time, types, typing, weakref
import ticketlock
from ticketlock import Lock, RLock

def standard():
    places = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in sys.stdlib_module_names and type(module) is types.ModuleType:
            places.update({(name, key): value for key, value in list(vars(module).items())})
    return places

def changed(before, after):
    plain = {place: value for place, value in before.items() if place in after and not place[1].startswith("__")}
    return [place for place, value in plain.items() if after[place] is not value]
"""


def check(program, *flags, **changes):
    done = subprocess.run(
        [sys.executable, "-W", "error", *flags, "-c", PRELUDE + textwrap.dedent(program) + "\nprint('ok')\n"],
        capture_output=True,
        text=True,
        timeout=50,
        env=environment(**changes),
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ok\n", "", 0)


# --- what is replaced ------------------------------------------------------------------------------------------------------


def test_names_hold_the_types_themselves():
    check("""
        import functools, logging, multiprocessing.dummy
        assert ticketlock.patch() is True
        assert threading.Lock is _thread.allocate_lock is _thread.LockType is threading._allocate_lock is Lock
        assert threading.RLock is threading._CRLock is _thread.RLock is functools.RLock is RLock
        assert tempfile._allocate_lock is multiprocessing.dummy.Lock is Lock
        assert multiprocessing.dummy.RLock is RLock
        for value in (threading.Lock(), queue.Queue().mutex, threading.Event()._cond._lock, threading._PyRLock()._block):
            assert type(value) is Lock
        for value in (threading.RLock(), threading.Condition()._lock, logging.Handler().lock):
            assert type(value) is RLock
    """)


def test_names_of_other_modules_are_left_alone():
    check("""
        mine = types.ModuleType("mine")
        mine.Lock = saved = threading.Lock
        sys.modules["mine"] = mine
        assert ticketlock.patch()
        assert mine.Lock is saved
        assert type(saved()) is not Lock
        assert ticketlock._core.Lock is Lock
    """)


def test_threading_may_be_imported_later():
    program = "import sys; sys.modules.pop('threading', None); import ticketlock; ticketlock.patch()\n"
    program += "import threading; print(threading.Lock, threading.RLock)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, env=environment())
    assert done.stdout == "<class 'ticketlock.Lock'> <class 'ticketlock.RLock'>\n", done.stderr


def test_everything_comes_back():
    check("""
        before = {place: value for place, value in standard().items() if place[0] != "time"}  # set anew by `_strptime`
        held = threading.Lock()
        for _ in range(3):
            ticketlock.patch()
            made, again, event = threading.Lock(), threading.RLock(), threading.Event()
            import _strptime, concurrent.futures, multiprocessing.dummy, sched
            ticketlock.unpatch()
            assert not changed(before, standard()), changed(before, standard())
            assert not [place for place, value in standard().items() if value is Lock or value is RLock]
            # What was made meanwhile goes on working.
            with made, again, again:
                assert made.locked()
            threading.Timer(0.05, event.set).start()
            assert event.wait(10)
        assert type(threading.Lock()) is type(held)
        assert multiprocessing.dummy.Lock is threading.Lock and multiprocessing.dummy.RLock is threading.RLock
        ticketlock.unpatch()
    """)


def test_what_somebody_else_has_put_there_stays():
    check("""
        ticketlock.patch()
        theirs = threading.Lock = lambda: "theirs"
        ticketlock.unpatch()
        assert threading.Lock is theirs
        assert ticketlock.patch()
        assert threading.Lock is theirs
        ticketlock.unpatch()
    """)


def test_context_and_repetition():
    check("""
        before = standard()
        with ticketlock.patched():
            assert threading.Lock is Lock
            with ticketlock.patched():
                pass
            assert threading.Lock is Lock
            assert ticketlock.patch()
            try:
                ticketlock.patch(exclude="x.py")
            except RuntimeError as problem:
                assert "unpatch()" in str(problem) and "x.py" not in str(problem)
            else:
                raise AssertionError
        assert not changed(before, standard())
        try:
            with ticketlock.patched():
                raise KeyError
        except KeyError:
            pass
        assert not changed(before, standard())
        for wrong in (5, [5], [b"x"]):
            try:
                ticketlock.patch(wrong)
            except TypeError:
                continue
            raise AssertionError
        assert not changed(before, standard())
    """)


def test_emergency_switch():
    check(
        """
        before = standard()
        assert ticketlock.patch() is False
        with ticketlock.patched():
            assert not changed(before, standard())
        """,
        TICKETLOCK_PATCH="0",
    )


def test_locks_that_were_there_before_are_counted():
    check("""
        locks = [threading.Lock() for _ in range(1000)] + [threading.RLock() for _ in range(500)]
        ticketlock.patch()
        from ticketlock import _patch
        assert 1500 <= _patch.unseen() < 1600
        ticketlock.unpatch()
        assert _patch.unseen() == 0
    """)


def test_patching_from_many_threads():
    check("""
        before = standard()
        def turn():
            for _ in range(30):
                ticketlock.patch()
                with threading.Lock():
                    ticketlock.unpatch()
        threads = [threading.Thread(target=turn) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        ticketlock.unpatch()
        assert not changed(before, standard())
    """)


# --- by file ---------------------------------------------------------------------------------------------------------------

BY_FILE = """
    def make(file, text="lock, rlock, event = threading.Lock(), threading.RLock(), threading.Event()"):
        names = {"threading": threading, "RLock": threading.RLock}
        exec(compile(text, file, "exec"), names)
        return names
    def kinds(file):
        made = make(file)
        ours = [type(one) in (Lock, RLock) for one in (made["lock"], made["rlock"], made["event"]._cond._lock)]
        assert len(set(ours)) == 1, ours
        return ours[0]
"""


@pytest.mark.parametrize(
    ("include", "exclude", "ours", "standard"),
    [
        (["app.py"], [], ["/a/app.py", "app.py"], ["/a/b.py", "/app.py/x.py", "<string>"]),
        (["a*/*.py"], [], ["/x/app/m.py", "/x/a/b.py"], ["/x/b/c.py"]),
        (["/x/*"], ["secret.py"], ["/x/a.py", "/x/y/b.py"], ["/x/secret.py", "/y/x/a.py"]),
        ([], ["*/vendor/*"], ["/x/a.py", "<string>"], ["/x/vendor/a.py"]),
        ([], ["*/threading.py"], [], []),
    ],
)
def test_include_and_exclude(include, exclude, ours, standard):
    check(
        BY_FILE
        + f"""
    ticketlock.patch(include={include}, exclude={exclude})
    assert all(kinds(file) for file in {ours})
    assert not any(kinds(file) for file in {standard})
    """
    )


def test_a_lock_that_the_library_makes_belongs_to_its_file_too():
    check(
        BY_FILE
        + """
    ticketlock.patch(exclude="*/queue.py")
    made = make("/x/a.py", "import queue; lock, mutex = threading.Lock(), queue.Queue().mutex")
    assert type(made["lock"]) is Lock
    assert type(made["mutex"]) is not Lock
    ticketlock.unpatch()
    ticketlock.patch(include="queue.py")
    made = make("/x/a.py", "import queue; lock, mutex = threading.Lock(), queue.Queue().mutex")
    assert type(made["lock"]) is not Lock
    assert type(made["mutex"]) is Lock
    """
    )


def test_what_chooses_by_file_still_stands_in_for_a_type():
    check("""
        before = standard()
        old = threading.Lock(), threading.RLock()
        ticketlock.patch(include="<string>")
        assert type(threading.Lock()) is Lock and type(threading.RLock()) is RLock
        assert threading.Lock | None == Lock | None
        assert typing.Optional[threading.Lock]
        for one in (*old, threading.Lock(), threading.RLock()):
            assert isinstance(one, threading.Lock) != isinstance(one, threading.RLock)
        class Mine(threading.RLock):
            pass
        assert issubclass(Mine, threading.RLock) and isinstance(Mine(), RLock)
        class Holder:
            make = threading.Lock
        assert type(Holder().make()) is Lock
        assert pickle.loads(pickle.dumps(threading.Lock)) is _thread.allocate_lock
        assert "ticketlock.Lock" in repr(threading.Lock)
        ticketlock.unpatch()
        assert not changed(before, standard())
    """)


# --- what another profiler had to learn --------------------------------------------------------------------------------------


def test_unions_ddtrace():
    check("""
        ticketlock.patch()
        def take(lock: threading.Lock | None, again: "threading.RLock | threading.Lock" = None): pass
        assert typing.get_type_hints(take)["lock"] == Lock | None
        assert isinstance(threading.Lock(), threading.Lock | None)
        assert isinstance(threading.RLock(), (threading.Lock, threading.RLock))
    """)


def test_subclasses_ddtrace():
    check("""
        ticketlock.patch()
        class Mine(threading.RLock):
            def __init__(self, label):
                super().__init__()
                self.label = label
        mine = Mine("x")
        with mine, mine, threading.Condition(mine):
            assert mine._is_owned()
        assert mine.label == "x"
        try:
            type("No", (threading.Lock,), {})
        except TypeError:
            pass
        else:
            raise AssertionError
        class Guard(threading.Condition): pass
        class Signal(threading.Event): pass
        with Guard(threading.Lock()) as entered:
            assert entered
        Signal().set()
    """)


def test_pickling_ddtrace():
    check("""
        import copy
        ticketlock.patch()
        assert pickle.loads(pickle.dumps(threading.Lock)) is Lock
        assert pickle.loads(pickle.dumps(threading.RLock)) is RLock
        for lock in (threading.Lock(), threading.RLock()):
            for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
                try:
                    attempt(lock)
                except TypeError as problem:
                    assert "cannot pickle" in str(problem)
                else:
                    raise AssertionError
        assert weakref.ref(lock)() is lock
    """)


@pytest.mark.skipif(os.name == "nt", reason="a server that forks")
def test_forkserver_ddtrace(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, threading, ticketlock\n"
        "def work(kind):\n    with kind():\n        return kind.__name__, threading.active_count()\n"
        "if __name__ == '__main__':\n    ticketlock.patch()\n"
        "    with multiprocessing.get_context('forkserver').Pool(2) as pool:\n"
        "        print(pool.map(work, [threading.Lock, threading.RLock]))\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=50, env=environment())
    assert [name for name, _ in eval(done.stdout)] == ["Lock", "RLock"], done.stderr
    assert done.stderr == ""


def test_threading_imported_again_ddtrace():
    check("""
        first = threading
        ticketlock.patch()
        del sys.modules["threading"]
        import threading
        assert threading is not first
        assert threading.Lock is Lock and type(threading.RLock()) is RLock
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        importlib.reload(threading)
        ticketlock.unpatch()
        for module in (first, threading):
            assert type(module.Lock()) is not Lock and type(module.RLock()) is not RLock
        sys.modules["threading"] = first
    """)


@pytest.mark.parametrize(("module", "call"), [("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")])
def test_green_threads_are_refused_ddtrace(module, call):
    check(f"""
        before = standard()
        patcher = types.ModuleType("{module}")
        patcher.{call} = lambda name: name in ("threading", "thread")
        sys.modules["{module}"] = patcher
        for attempt in (ticketlock.patch, lambda: ticketlock.patched().__enter__()):
            try:
                attempt()
            except RuntimeError as problem:
                assert "{module.partition(".")[0]} has replaced" in str(problem)
            else:
                raise AssertionError
        assert not changed(before, standard())
        patcher.{call} = lambda name: False
        assert ticketlock.patch()
    """)


def test_green_threads_that_come_later_find_what_they_know_ddtrace():
    check("""
        before = standard()
        from ticketlock import _gevent, _patch
        event = types.SimpleNamespace(module_name="socket")
        _gevent.will_patch(event)
        ticketlock.patch()
        _gevent.will_patch(event)
        assert threading.Lock is Lock
        event.module_name = "threading"
        _gevent.will_patch(event)
        assert not changed(before, standard())
        assert _patch.successor() == "gevent"
    """)


GEVENT = """
    import gevent.monkey
    gevent.monkey.patch_all()
    import gevent
    lock, found = threading.RLock(), []
    def work(number):
        for _ in range(3):
            with lock:
                gevent.sleep(0.001)
                found.append(number)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert len(found) == 9
"""


@pytest.mark.parametrize("first", [True, False])
def test_gevent_itself_ddtrace(first):
    if subprocess.run([sys.executable, "-c", "import gevent"], capture_output=True, timeout=50).returncode:
        pytest.skip("gevent is not installed")
    if first:
        # Through its entry point, so the package must be installed.
        return check("ticketlock.patch()\n" + textwrap.dedent(GEVENT))
    refused = "try: ticketlock.patch()\nexcept RuntimeError as problem: assert 'gevent has replaced' in str(problem)"
    return check(textwrap.dedent(GEVENT) + refused + "\nelse: raise AssertionError\n")


def test_logging_does_not_recurse_ddtrace():
    check("""
        import io, logging
        ticketlock.patch()
        class Chatty(logging.Handler):
            def emit(self, record):
                if record.levelno > logging.INFO:
                    with self.lock:
                        logging.getLogger("x").info("again")
        logger = logging.getLogger("x")
        logger.setLevel(logging.DEBUG)
        logger.addHandler(Chatty())
        threads = [threading.Thread(target=lambda: [logger.error("e") for _ in range(50)]) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """)


def test_failed_acquires_are_no_acquisitions_ddtrace():
    check("""
        ticketlock.patch()
        for lock in (threading.Lock(), threading.RLock()):
            lock.acquire()
            found = []
            def attempt():
                found.extend([lock.acquire(False), lock.acquire(timeout=0.01)])
            thread = threading.Thread(target=attempt)
            thread.start()
            thread.join()
            assert found == [False, False]
            counted = lock.stats()
            assert (counted["acquisitions"], counted["timeouts"]) == (1, 1), counted
            assert counted["wait_ns_sum"] == 0
    """)


def test_release_by_another_thread_ddtrace():
    check("""
        ticketlock.patch()
        lock = threading.Lock()
        for _ in range(100):
            lock.acquire()
            thread = threading.Thread(target=lock.release)
            thread.start()
            with lock:
                pass
            thread.join()
        counted = lock.stats()
        assert counted["acquisitions"] == 200
        assert 0 <= counted["wait_ns_sum"] < 50e9
        assert counted["wait_ns_max"] <= counted["wait_ns_sum"]
    """)


def test_the_interpreter_ends_with_threads_that_still_run_or_wait_ddtrace():
    check("""
        ticketlock.patch()
        lock, gone = threading.Lock(), threading.Event()
        lock.acquire()
        threading.Thread(target=lock.acquire, daemon=True).start()
        threading.Thread(target=gone.wait, daemon=True).start()
        threading.Thread(target=lambda: time.sleep(0.2)).start()
        import concurrent.futures
        pool = concurrent.futures.ThreadPoolExecutor(2)
        pool.submit(time.sleep, 0.1)
        import atexit
        atexit.register(lambda: threading.Lock().acquire())
        # Started elsewhere, known to `threading` by a stand-in.
        _thread.start_new_thread(lambda: (threading.current_thread(), time.sleep(0.1)), ())
        time.sleep(0.05)
    """)


@needs_fork
def test_forks_while_locks_are_held_ddtrace():
    check("""
        ticketlock.patch()
        import logging
        lock, stop = threading.Lock(), threading.Event()
        def hold():
            while not stop.is_set():
                with lock:
                    time.sleep(0.001)
        thread = threading.Thread(target=hold)
        thread.start()
        import warnings
        warnings.simplefilter("ignore")
        for _ in range(10):
            child = os.fork()
            if not child:
                lock._at_fork_reinit()
                with lock:
                    threading.Thread(target=lambda: logging.getLogger("x").info("y")).start()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        thread.join()
    """)


def test_no_code_of_python_runs_in_a_lock_ddtrace():
    check("""
        ticketlock.patch()
        calls = []
        lock, rlock = threading.Lock(), threading.RLock()
        sys.setprofile(lambda frame, event, _: calls.append(event) if event == "call" else None)
        for _ in range(3):
            with lock, rlock:
                lock.locked()
            threading.Lock()
        sys.setprofile(None)
        assert not calls
    """)


def test_importing_the_package_loads_nothing_for_it():
    code = "import sys, ticketlock; print(sorted(name for name in sys.modules if name.startswith('ticketlock')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, env=environment())
    assert done.stdout == "['ticketlock', 'ticketlock._core']\n"
