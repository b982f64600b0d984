"""The segment that locks report to: where it is, who can do what with it, what becomes of it, and doing without."""

from __future__ import annotations

import fcntl
import gc
import mmap
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ticketlock
from conftest import environment
from segments import contend, descriptors, needs_memfd, own, reader_of, reading, row_of, start_ticks, waiting_for
from targets import NOBODY, WAIT, Target, needs_root
from threads import JOIN_S, Holder, in_forked_child, join, needs_fork, spawn
from ticketlock import _lab

pytestmark = needs_memfd

HERE = Path(__file__).parent
READY = f"import ticketlock\n{WAIT}"

# A lock that two threads quarrel about, for those that cannot import from here.
QUARREL = """
import threading, time, ticketlock
from ticketlock import _lab
def quarrel(lock, seconds=0.02):
    lock.acquire()
    waiter = threading.Thread(target=lambda: lock.acquire() and lock.release())
    waiter.start()
    # stats() counts the wait when it is over, so it cannot be seen begin without a segment.
    time.sleep(seconds)
    lock.release()
    waiter.join(20)
    assert not waiter.is_alive()
"""


def ran(source: str, *, stderr: str | None = "", **changes: str) -> str:
    """What a program writes, that must succeed; it has `quarrel`."""
    done = subprocess.run(
        [sys.executable, "-c", QUARREL + source],
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    if stderr is not None:
        assert done.stderr == stderr
    return done.stdout.strip()


# --- where it is, and who may write ----------------------------------------------------------------------------------------


def test_it_is_found_through_the_open_files_of_the_process() -> None:
    before = time.monotonic_ns()
    with Target(READY) as target:
        assert [os.readlink(path) for path in descriptors(target.pid)] == ["/memfd:ticketlock (deleted)"]
        with reader_of(target.pid) as reader:
            process = reader.process()
    assert process["pid"] == target.pid
    assert process["start_ticks"] > 0
    assert before < process["created_ns"] < time.monotonic_ns()
    assert process["python"] == sys.version.split()[0]
    assert process["version"] == ticketlock.__version__
    assert process["sites"] is False


def test_its_start_is_that_of_the_process() -> None:
    with Target(READY) as target, reader_of(target.pid) as reader:
        assert reader.process()["start_ticks"] == start_ticks(target.pid)


def test_it_takes_a_number_that_no_program_counts_on() -> None:
    with Target(READY) as target:
        (path,) = descriptors(target.pid)
        assert int(Path(path).name) >= 512


def refused() -> Any:
    return pytest.raises(OSError, match="not permitted|denied|busy")


def test_nobody_can_write_to_it() -> None:
    with Target(READY) as target:
        (path,) = descriptors(target.pid)
        # Whoever may open it at all (its own user and root) may open it for writing, and that is all.
        descriptor = os.open(path, os.O_RDWR)
        try:
            length = os.fstat(descriptor).st_size
            with refused():
                os.pwrite(descriptor, b"x", 0)
            for new_length in (0, length - 4_096, length + 4_096):
                with refused():
                    os.ftruncate(descriptor, new_length)
            with refused():
                mmap.mmap(descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            with refused():
                fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
            with mmap.mmap(descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ) as readable:
                assert readable[:8] == b"TKTLOCK1"
        finally:
            os.close(descriptor)
        with refused():
            os.truncate(path, 0)
        with refused():
            os.open(path, os.O_RDWR | os.O_TRUNC)
        with reader_of(target.pid) as reader:
            assert reader.process()["pid"] == target.pid
        target.end()


def test_it_is_not_passed_on_to_programs_that_are_started() -> None:
    listing = "import os; print([f for f in os.listdir('/proc/self/fd') if 'memfd' in os.path.realpath('/proc/self/fd/' + f)])"
    command = f"[sys.executable, '-c', {listing!r}]"
    assert ran(f"import subprocess, sys; print(subprocess.check_output({command}, close_fds=False, text=True))") == "[]"


def test_nothing_is_left_when_the_process_is_killed(tmp_path: Path) -> None:
    with Target(READY, XDG_RUNTIME_DIR=str(tmp_path)) as target:
        with reader_of(target.pid) as reader:
            target.process.kill()
            target.process.wait(JOIN_S)
            # Whoever has it open sees the last state.
            assert reader.process()["pid"] == target.pid
        assert list(tmp_path.iterdir()) == []
        assert not [name for name in os.listdir("/dev/shm") if str(target.pid) in name]


# --- forked and other children ---------------------------------------------------------------------------------------------


def own_inode() -> int:
    """Of this process's segment."""
    gc.collect()  # readers of others that something still refers to
    (path,) = descriptors()
    return os.stat(path).st_ino


def check_a_fresh_segment(names: dict[int, str | None], parent: int, inode: int) -> None:
    """In a child: a segment of its own, with the parent's locks, which have counted nothing."""
    (path,) = descriptors()
    assert os.stat(path).st_ino != inode
    raw = reading()
    assert raw["process"]["pid"] == os.getpid() != parent
    assert raw["process"]["start_ticks"] == start_ticks()
    assert {row["id"]: row["name"] for row in raw["locks"] if row["id"] in names} == names
    for row in raw["locks"]:
        # Locks of the native benchmarks, which other tests have run here, count no acquisitions.
        assert row["counters"]["acquisitions"] == (None if row["kind"] == "native" else 0)
        assert row["counters"]["contended"] == row["counters"]["wait_ns_sum"] == 0
        assert row["counters"]["wait_ns_log2"] == []
        assert (row["waiters"], row["waiters_max"]) == (0, 0)
    assert all(site["retired"]["contended"] == 0 for site in raw["sites"])
    assert raw["totals"]["contended"] == raw["totals"]["wait_ns_sum"] == 0
    assert (raw["next_event"], own().events(0)) == (0, [])
    assert [row["native_id"] for row in raw["threads"] if row["native_id"] != threading.get_native_id()] == []


@needs_fork
@pytest.mark.parametrize("generations", [1, 2])
def test_a_forked_child_has_a_fresh_segment_of_its_own(generations: int) -> None:
    gc.collect()  # locks of other tests, which would end while this one counts those that live
    _lab.set_sites(True)
    try:
        locks = [ticketlock.Lock(name="first"), ticketlock.RLock(name="second"), ticketlock.TicketLock()]
    finally:
        _lab.set_sites(False)
    for lock in locks:
        contend(lock)
    names: dict[int, str | None] = {locks[0].id: "first", locks[1].id: "second", locks[2].id: None}
    before = [row_of(lock) for lock in locks]
    sites = reading()["sites"]

    def body(left: int) -> None:
        parent, inode = os.getpid(), own_inode()

        def child() -> None:
            check_a_fresh_segment(names, parent, inode)
            assert [row_of(lock)["site"] for lock in locks] == [row["site"] for row in before]
            places = [(site["path"], site["line"], site["function"], site["live"]) for site in reading()["sites"]]
            assert places == [(site["path"], site["line"], site["function"], site["live"]) for site in sites]
            for lock in locks:
                contend(lock)
                row = row_of(lock)
                assert (row["counters"]["contended"], row["counters"]["acquisitions"]) == (1, 2)
            if left > 1:
                body(left - 1)

        in_forked_child(child)

    body(generations)
    assert [row_of(lock) for lock in locks] == before


@needs_fork
def test_a_childs_sites_created_the_locks_that_live() -> None:
    _lab.set_sites(True)
    try:
        locks = [ticketlock.Lock() for _ in range(3)]
    finally:
        _lab.set_sites(False)

    def child() -> None:
        number = row_of(locks[0])["site"]
        assert number is not None
        site = reading()["sites"][number]
        assert site["created"] == site["live"] == 3

    in_forked_child(child)


@needs_fork
@pytest.mark.parametrize("make", [ticketlock.Lock, ticketlock.RLock, ticketlock.TicketLock])
def test_a_thread_may_fork_while_others_wait(make: Any) -> None:
    busy = make()
    inode, parent = own_inode(), os.getpid()
    failed = []

    def fork() -> None:
        def child() -> None:
            check_a_fresh_segment({busy.id: None}, parent, inode)
            # Of threads that stayed behind.
            lock = make()
            contend(lock)
            assert row_of(lock)["counters"]["contended"] == 1
            assert row_of(busy)["waiters"] == 0

        try:
            contend(make())  # so that the thread has a record
            in_forked_child(child)
        except BaseException as problem:  # noqa: BLE001 - told below
            failed.append(problem)

    busy.acquire()
    with waiting_for(busy, 3):
        join([spawn(fork)])
        assert failed == []
        assert row_of(busy)["waiters"] == 3
    assert row_of(busy)["counters"]["contended"] == 3


@needs_fork
def test_a_child_that_releases_what_its_thread_waited_for_counts_no_wait() -> None:
    """The wait was its parent's."""
    lock = ticketlock.Lock()
    with Holder(lock, 0.02):
        lock.acquire()

    def child() -> None:
        lock.release()
        assert row_of(lock)["counters"]["contended"] == lock.stats()["contended"] == 0

    in_forked_child(child)
    lock.release()
    assert row_of(lock)["counters"]["contended"] == 1


@needs_fork
def test_a_child_does_not_take_over_acquisitions_of_its_parent() -> None:
    """Nor those before anybody waited, which the lock has counted by itself."""
    lock = ticketlock.Lock()
    for _ in range(1_000):
        lock.acquire()
        lock.release()
    lock.acquire()

    def child() -> None:
        lock.release()
        contend(lock)
        assert row_of(lock)["counters"]["acquisitions"] == lock.stats()["acquisitions"] == 2

    with waiting_for(lock):
        in_forked_child(child)


@needs_fork
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str, tmp_path: Path) -> None:
    """Workers report for themselves, however they are started."""
    program = tmp_path / "program.py"
    program.write_text(
        QUARREL
        + """
import multiprocessing, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
lock = ticketlock.Lock(name="shared by name only")
def worker(number):
    quarrel(lock)
    raw = _lab.own_segment().sample()
    (row,) = (row for row in raw["locks"] if row["id"] == lock.id)
    return raw["process"]["pid"] == os.getpid(), row["name"], row["counters"]["contended"]
if __name__ == "__main__":
    quarrel(lock)
    quarrel(lock)
    with multiprocessing.get_context(sys.argv[1]).Pool(2, maxtasksperchild=1) as pool:
        answers = pool.map(worker, range(4), chunksize=1)
    assert answers == [(True, "shared by name only", 1)] * 4, answers
    (row,) = (row for row in _lab.own_segment().sample()["locks"] if row["id"] == lock.id)
    assert row["counters"]["contended"] == 2, row
    print("ok")
"""
    )
    done = subprocess.run(
        [sys.executable, str(program), method], env=environment(), capture_output=True, text=True, timeout=50, cwd=tmp_path
    )
    assert (done.stdout.strip(), done.stderr) == ("ok", "")


# --- daemons ---------------------------------------------------------------------------------------------------------------

CLOSES_ALL = """
import os, sys
lock = ticketlock.Lock(name="of the daemon")
quarrel(lock)
(old,) = (int(number) for number in os.listdir("/proc/self/fd")
          if os.path.realpath("/proc/self/fd/" + number).startswith("/memfd:ticketlock"))
"""
AFTERWARDS = f"""
os.closerange(3, 65_536)
foreign = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(foreign, b"foreign")
os.dup2(foreign, old)
assert _lab.own_segment() is None
deadline = time.monotonic() + 20
while _lab.own_segment() is None:
    assert time.monotonic() < deadline, "it stays lost"
    quarrel(lock)
assert os.path.samestat(os.fstat(old), os.fstat(foreign)), "somebody else's file was closed"
{WAIT}
"""


@pytest.mark.parametrize("how", ["closes all", "forks twice and closes all"])
def test_a_daemon_that_closes_everything_is_found_again(how: str, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    become_daemon = "" if how == "closes all" else "os.setsid() if os.fork() == 0 else os._exit(0)\nif os.fork(): os._exit(0)\n"
    become_daemon += "print('pid', os.getpid(), file=sys.stderr, flush=True)\n"
    source = QUARREL + CLOSES_ALL + become_daemon + AFTERWARDS
    process = subprocess.Popen(
        [sys.executable, "-c", source, str(foreign)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        pid = int(process.stderr.readline().split()[1])
        with reader_of(pid) as reader:
            raw = reader.sample()
        assert raw["process"]["pid"] == pid
        assert raw["process"]["start_ticks"] == start_ticks(pid)
        (row,) = (row for row in raw["locks"] if row["name"] == "of the daemon")
        # What was counted before is still there.
        assert row["counters"]["contended"] >= 2
        assert row["counters"]["acquisitions"] == 2 * row["counters"]["contended"]
        assert foreign.read_bytes() == b"foreign"
    finally:
        process.stdin.close()
        process.wait(JOIN_S)
        process.stdout.close()
        process.stderr.close()


# --- switched off, or to a file --------------------------------------------------------------------------------------------


def test_switched_off_locks_work_as_before() -> None:
    source = """
import os
lock, again, strict = ticketlock.Lock(name="x"), ticketlock.RLock(), ticketlock.TicketLock()
for one in (lock, again, strict):
    quarrel(one)
stats = lock.stats()
links = [os.path.realpath("/proc/self/fd/" + number) for number in os.listdir("/proc/self/fd")]
assert not any("ticketlock" in link and "memfd" in link for link in links), links
assert _lab.own_segment() is None
assert _lab.telemetry()["state"] == "off" and _lab.telemetry()["path"] is None
assert (stats["acquisitions"], stats["contended"]) == (2, 1), stats
assert stats["wait_ns_sum"] == stats["wait_ns_max"] > 0
assert again.stats()["contended"] == 1 and strict.acquisitions == 2
assert lock.acquire() and not lock.acquire(timeout=0.01) and lock.stats()["timeouts"] == 1
lock.release()
if hasattr(os, "fork"):
    child = os.fork()
    if child == 0:
        quarrel(lock)
        os._exit(0 if lock.stats()["contended"] == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert lock.stats()["contended"] == 1
print("ok")
"""
    assert ran(source, TICKETLOCK_TELEMETRY="0") == "ok"
    assert ran(source, TICKETLOCK_TELEMETRY="0", TICKETLOCK_SITES="1") == "ok"


STATE = "quarrel(ticketlock.Lock()); t = _lab.telemetry(); print(t['state'], t['path'], _lab.own_segment() is not None)"


def test_a_file_is_its_users_own(tmp_path: Path) -> None:
    with Target(READY, TICKETLOCK_TELEMETRY="file", XDG_RUNTIME_DIR=str(tmp_path)) as target:
        folder = tmp_path / "ticketlock"
        (file,) = folder.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.name == f"{target.pid}-{start_ticks(target.pid)}.v1"
        assert descriptors(target.pid) == []
        with file.open("rb") as opened:
            assert _lab.SegmentReader(opened.fileno()).process()["pid"] == target.pid
            # That its process lives is told by the lock on it.
            with pytest.raises(BlockingIOError):
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert ran(STATE, TICKETLOCK_TELEMETRY="file", XDG_RUNTIME_DIR=str(tmp_path)).startswith(f"file {folder}/")


def test_files_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    switches = {"TICKETLOCK_TELEMETRY": "file", "XDG_RUNTIME_DIR": str(tmp_path)}
    with Target(READY, **switches) as living:
        with Target(READY, **switches):
            pass  # killed
        files = {int(file.name.partition("-")[0]): file for file in (tmp_path / "ticketlock").iterdir()}
        assert len(files) == 2
        assert ran(STATE, **switches).startswith("file ")
        left = {int(file.name.partition("-")[0]) for file in (tmp_path / "ticketlock").iterdir()}
        assert living.pid in left
        assert len(left) == 2, "the living one, and the one that has just ended"
        assert not (set(files) - {living.pid}) & left


def unsafe_folders(folder: Path, how: str) -> None:
    if how == "a link":
        target = folder.parent / "elsewhere"
        target.mkdir(mode=0o700)
        folder.symlink_to(target)
        return
    if how == "a file":
        folder.write_text("")
        return
    folder.mkdir(mode=0o700)
    if how == "another user's":
        os.chown(folder, NOBODY, NOBODY)
    else:
        folder.chmod(int(how, 8))


@pytest.mark.parametrize("how", ["755", "770", "777", "1777", "a link", "a file", "another user's"])
def test_a_folder_that_others_could_use_is_refused_and_nothing_fails(how: str, tmp_path: Path) -> None:
    if how == "another user's":
        needs_root()
    unsafe_folders(tmp_path / "ticketlock", how)
    assert ran(STATE, TICKETLOCK_TELEMETRY="file", XDG_RUNTIME_DIR=str(tmp_path)) == "off None False"
    if (tmp_path / "ticketlock").is_dir():
        assert list((tmp_path / "ticketlock").iterdir()) == []


def test_without_the_folder_above_nothing_fails(tmp_path: Path) -> None:
    assert ran(STATE, TICKETLOCK_TELEMETRY="file", XDG_RUNTIME_DIR=str(tmp_path / "missing")) == "off None False"


@needs_fork
def test_a_forked_child_leaves_its_parents_file_alone(tmp_path: Path) -> None:
    source = """
import os
lock = ticketlock.Lock(name="x")
quarrel(lock)
child = os.fork()
if child == 0:
    quarrel(lock)
    quarrel(lock)
    os._exit(0 if lock.stats()["contended"] == 2 and _lab.telemetry()["path"] is None else 1)
assert os.waitpid(child, 0)[1] == 0
raw = _lab.own_segment().sample()
assert raw["process"]["pid"] == os.getpid()
assert [row["counters"]["contended"] for row in raw["locks"] if row["id"] == lock.id] == [1]
print(_lab.telemetry()["state"], os.path.exists(_lab.telemetry()["path"]))
"""
    assert ran(source, TICKETLOCK_TELEMETRY="file", XDG_RUNTIME_DIR=str(tmp_path)) == "file True"


def test_processes_that_start_at_once_all_get_their_file(tmp_path: Path) -> None:
    switches = environment(TICKETLOCK_TELEMETRY="file", XDG_RUNTIME_DIR=str(tmp_path))
    source = (
        "import sys; sys.stdin.readline(); import ticketlock; from ticketlock import _lab; import os\n"
        "t = _lab.telemetry(); print(t['state'], t['path'] and os.path.exists(t['path']), flush=True); sys.stdin.readline()"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", source], env=switches, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(12)
    ]
    try:
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.stdout.readline().strip() for process in started]  # type: ignore[union-attr]
        files = len(list((tmp_path / "ticketlock").iterdir()))
    finally:
        for process in started:
            process.communicate("\n", timeout=JOIN_S)
    assert said == ["file True"] * 12
    assert files == 12


@pytest.mark.parametrize(
    ("variable", "value", "accepted"),
    [("TICKETLOCK_TELEMETRY", "maybe", "auto, file or 0"), ("TICKETLOCK_SITES", "yes", "0 or 1")],
)
def test_a_value_that_is_not_understood_is_named_once_and_ignored(variable: str, value: str, accepted: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUARREL + STATE + "\nimport ticketlock.bench"],
        env=environment(**{variable: value}),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.stdout.strip() == "memfd None True"
    (line,) = done.stderr.splitlines()
    assert f'{variable}="{value}"' in line
    assert accepted in line


# --- where there is no room ------------------------------------------------------------------------------------------------

# Virtual memory may grow by so many MiB, of which threads take 1/4 each.
LITTLE_MEMORY = """
import resource, sys, threading
threading.stack_size(256 << 10)
import subprocess, time
with open("/proc/self/statm") as statm:
    pages = int(statm.read().split()[0])
limit = pages * resource.getpagesize() + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
"""
WORKS = """
lock = ticketlock.Lock(name="x")
quarrel(lock)
kept = [ticketlock.RLock() for _ in range(100)]
for one in kept:
    quarrel(one, 0.0001)
assert lock.stats()["contended"] == 1, lock.stats()
assert lock.acquire() and not lock.acquire(timeout=0.001) and lock.stats()["timeouts"] == 1
lock.release()
del kept
print(_lab.telemetry()["state"])
"""


@pytest.mark.parametrize(("room_mib", "states"), [(8, {"off"}), (24, {"file", "off"}), (400, {"memfd"})])
@pytest.mark.parametrize("sites", ["0", "1"])
def test_a_program_that_may_use_little_memory_works(room_mib: int, states: set[str], sites: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LITTLE_MEMORY + QUARREL + WORKS)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(room_mib)],
        env=environment(TICKETLOCK_SITES=sites, XDG_RUNTIME_DIR=str(tmp_path), MALLOC_ARENA_MAX="1"),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.stderr == ""
    assert done.stdout.strip() in states


FEW_DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (16, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
"""


def test_a_program_that_may_open_few_files_works() -> None:
    source = FEW_DESCRIPTORS + QUARREL + f"lock = ticketlock.Lock(name='x')\nquarrel(lock)\n{WAIT}"
    with Target(source) as target, reader_of(target.pid) as reader:
        (path,) = descriptors(target.pid)
        assert int(Path(path).name) < 16
        assert [row["name"] for row in reader.sample()["locks"]] == ["x"]


@needs_fork
def test_a_child_that_can_open_nothing_reports_to_nobody_and_works() -> None:
    source = """
import os, resource
lock = ticketlock.Lock(name="x")
quarrel(lock)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
child = os.fork()
if child == 0:
    quarrel(lock)
    ok = lock.stats()["contended"] == 1 and _lab.own_segment() is None and _lab.telemetry()["state"] == "off"
    os._exit(0 if ok else 1)
assert os.waitpid(child, 0)[1] == 0
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
quarrel(lock)
print(lock.stats()["contended"], _lab.telemetry()["state"])
"""
    assert ran(source) == "2 memfd"


# --- interpreters ----------------------------------------------------------------------------------------------------------

# 3.13 and later have `_interpreters`, 3.11 and 3.12 `_xxsubinterpreters`.
INTERPRETERS = """
try:
    import _interpreters
    def run_in_another(code):
        interpreter = _interpreters.create("legacy")
        ended = _interpreters.exec(interpreter, code)
        assert ended is None, ended
        _interpreters.destroy(interpreter)
except ImportError:
    import _xxsubinterpreters
    def run_in_another(code):
        interpreter = _xxsubinterpreters.create(isolated=False)
        _xxsubinterpreters.run_string(interpreter, code)
        _xxsubinterpreters.destroy(interpreter)
"""


def run_with_interpreters(source: str, **changes: str) -> str:
    try:
        import _interpreters  # noqa: F401
    except ImportError:
        pytest.importorskip("_xxsubinterpreters")
    return ran(INTERPRETERS + source, **changes)


def test_locks_of_all_interpreters_report_to_one_segment() -> None:
    source = f"""
INNER = {QUARREL!r} + '''
for number in range(3):
    quarrel(ticketlock.Lock(name="inner"))
    exec(compile("ticketlock.RLock()", "made.py", "exec"))
'''
quarrel(ticketlock.Lock(name="outer"))
for _ in range(3):
    run_in_another(INNER)
lock = ticketlock.Lock(name="outer")
quarrel(lock)
raw = _lab.own_segment().sample()
assert raw["totals"]["contended"] == 3 * 3 + 2, raw["totals"]
assert [site["created"] for site in raw["sites"] if site["path"] == "made.py"] == [9], raw["sites"]
assert [row["name"] for row in raw["locks"]] == ["outer"], raw["locks"]
print("ok")
"""
    assert run_with_interpreters(source, TICKETLOCK_SITES="1") == "ok"


def test_another_interpreter_leaves_the_switch_for_sites_alone() -> None:
    source = """
_lab.set_sites(True)
run_in_another("import ticketlock")
print(_lab.telemetry()["sites"])
"""
    assert run_with_interpreters(source) == "True"


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes")
def test_a_file_whose_name_is_no_text_makes_locks_as_any_other(tmp_path: Path) -> None:
    script = os.path.join(os.fsencode(tmp_path), b"caf\xe9.py")
    with open(script, "w") as file:
        file.write("import ticketlock\nprint(ticketlock.Lock(), ticketlock.RLock(), ticketlock.TicketLock())\n")
    done = subprocess.run(
        [sys.executable, script], env={**os.environ, "TICKETLOCK_SITES": "1"}, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("unlocked") == 3


@needs_fork
def test_a_child_without_room_for_a_segment_leaves_its_parents_alone() -> None:
    source = """
import os, resource, warnings
warnings.simplefilter("ignore")
lock = ticketlock.Lock()
def others():
    with lock: time.sleep(0.01)
threads = [threading.Thread(target=others) for _ in range(3)]
stop = threading.Event()
def idle():
    lock.acquire(timeout=0.001)
    stop.wait()
keeper = threading.Thread(target=idle)
with lock:
    keeper.start()
    for thread in threads: thread.start()
    time.sleep(0.1)
for thread in threads: thread.join()
before = [row["native_id"] for row in _lab.own_segment().sample()["threads"]]
used = int([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmSize")][0]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), resource.RLIM_INFINITY))
child = os.fork()
if child == 0:
    with lock: pass
    os._exit(0 if _lab.own_segment() is None else 7)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
after = [row["native_id"] for row in _lab.own_segment().sample()["threads"]]
assert keeper.native_id in before and keeper.native_id in after, (before, after)
stop.set()
keeper.join()
print("intact")
"""
    assert ran(source).split() == ["intact"]
