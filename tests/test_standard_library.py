"""The standard library on our locks: its own tests and a few programs, in interpreters that have no other locks.

A virtual environment puts our types in place of `_thread`'s before anything else is imported, in every process that is
started with its interpreter: what the tests start, what `multiprocessing` spawns, and the import system of newer versions too.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import standard_tests
import ticketlock

TESTS = Path(__file__).parent
LIMIT_S = 120
START_METHODS = ["fork", "spawn"] if hasattr(os, "fork") else ["spawn"]

# CPython's own tests, with the number of tests that must run at least, and what is left out, each with its reason.
ELSEWHERE = "run by test_cpython_lock_tests.py"
NO_LOCKS = "nothing in it takes a lock that another thread wants"
SLEEPS = "seconds of sleep and next to no locking"
FORKSERVER = "fork and spawn are enough: the server is a third process that only forks"
INTERPRETERS = "most of its time goes into starting interpreters; programs/executors.py spawns a pool too"
WITH_THREADS = "sleeps for most of half a minute; the parent does the same with a pool of threads, which is run"
SUITES = {
    "thread": (["test.test_thread"], 20, {}),
    "threading": (
        ["test.test_threading"],
        60,
        {
            "test.test_threading.LockTests.*": ELSEWHERE,
            "test.test_threading.*RLockTests.*": ELSEWHERE,
            "test.test_threading.Condition*Tests.*": ELSEWHERE,
            "test.test_threading.EventTests.*": ELSEWHERE,
            "test.test_threading.*SemaphoreTests.*": ELSEWHERE,
            "test.test_threading.BarrierTests.*": ELSEWHERE,
            "*.test_print_exception_gh_102056": NO_LOCKS,
            "*.MiscTestCase.test__all__": "goes by the module that a type names as its home, which is another",
            "*.test_disallow_instantiation": "before 3.13 the standard type of locks cannot be called; ours can",
        },
    ),
    "threadsignals": (["test.test_threadsignals"], 6, {}),
    "queue": (["test.test_queue"], 50, {}),
    "logging": (
        [
            f"test.test_logging:{name}"
            for name in (
                "HandlerTest",
                "StreamHandlerTest",
                "MemoryHandlerTest",
                "QueueHandlerTest",
                "QueueListenerTest",
                "LoggerTest",
                "ManagerTest",
                "ChildLoggerTest",
                "RotatingFileHandlerTest",
                "ShutdownTest",
            )
        ],
        50,
        {"*.HandlerTest.test_race": SLEEPS},
    ),
    "futures": (
        [
            "test.test_concurrent_futures.test_future",
            "test.test_concurrent_futures.test_thread_pool",
            "test.test_concurrent_futures.test_wait",
            "test.test_concurrent_futures.test_as_completed",
            "test.test_concurrent_futures.test_shutdown",
        ],
        50,
        {
            "*Forkserver*": FORKSERVER,
            "*.ProcessPoolSpawn*ShutdownTest.*": INTERPRETERS,
            "*.ProcessPool*WaitTest.*": WITH_THREADS,
            "*.ProcessPool*AsCompletedTest.*": WITH_THREADS,
            "*.test_map_timeout": SLEEPS,
        },
    ),
    "to_thread": (["test.test_asyncio.test_threads"], 6, {}),
}
# Some versions of CPython do not install all packages of `test` (3.11 and 3.12 forget this one): the programs below stand in.
MAY_BE_MISSING = {"futures"}


@pytest.fixture(scope="module")
def only_our_locks(tmp_path_factory):
    """An interpreter whose locks are all ours, as are those of every process it starts."""
    home = tmp_path_factory.mktemp("only_our_locks")
    venv.EnvBuilder(symlinks=os.name == "posix").create(home)
    places = {"base": str(home), "platbase": str(home)}
    site_packages = Path(sysconfig.get_path("purelib", "venv", places))
    lines = [str(Path(ticketlock.__file__).parents[1]), str(TESTS), "import standard_locks; standard_locks.replace_everywhere()"]
    (site_packages / "only_our_locks.pth").write_text("\n".join(lines) + "\n")
    python = Path(sysconfig.get_path("scripts", "venv", places)) / ("python.exe" if os.name == "nt" else "python")
    # Also where nothing of the environment counts.
    run(python, "-I", "-c", "import standard_locks; standard_locks.check_replaced(); print('ok')", folder=home)
    return python


def run(python, *arguments, folder):
    done = subprocess.run(
        [python, "-X", "faulthandler", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n", done.stdout
    assert done.stderr == "", done.stderr


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("name", SUITES)
def test_cpythons_tests_pass(name, only_our_locks, standard_test_package, tmp_path):
    suites, fewest, excluded = SUITES[name]
    report = standard_tests.run(
        suites, excluded=excluded, limit_s=LIMIT_S, folder=tmp_path, python=only_our_locks, replaced_at_start=True
    )
    standard_tests.check(report)
    if report.missing and name in MAY_BE_MISSING:
        pytest.skip(f"this interpreter lacks {', '.join(report.missing)}")
    assert not report.missing
    if sys.platform != "win32":
        assert len(report.only("passed")) >= fewest, report.log


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("kind", ["threads", *START_METHODS])
def test_executors(kind, only_our_locks, tmp_path):
    run(only_our_locks, TESTS / "programs" / "executors.py", kind, folder=tmp_path)


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("method", START_METHODS)
def test_multiprocessing(method, only_our_locks, tmp_path):
    run(only_our_locks, TESTS / "programs" / "processes.py", method, folder=tmp_path)


@pytest.mark.timeout(LIMIT_S + 60)
def test_asyncio_to_thread(only_our_locks, tmp_path):
    run(only_our_locks, TESTS / "programs" / "to_thread.py", folder=tmp_path)
