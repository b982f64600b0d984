"""Finding processes that report, opening what they report, and saying why that fails."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import monitor_fakes as fakes
import pytest
from targets import BUSY, NOBODY, WAIT, Target, as_user, needs_root, ran

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

from ticketlock.monitor import files, find, proc

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")

IMPORTS = f"import ticketlock; lock = ticketlock.Lock(); lock.acquire()\n{WAIT}"


class JsonReader:
    """A reader of segments that are JSON."""

    def __init__(self, descriptor: int) -> None:
        text = os.pread(descriptor, 1 << 20, 0)
        if text == b"garbage":
            raise ValueError("it is version 7, and this is version 1")
        # This process may have a real one as well.
        self._process = json.loads(text) if text.startswith(b"{") else fakes.process(inner_pid=-1)

    def process(self) -> Any:
        return self._process

    def sample(self, limit: int = 1000) -> Any:
        return {**fakes.few(), "process": self._process}

    def events(self, since: int, limit: int = 65536) -> Any:
        return []


@pytest.fixture
def segment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Puts memory files among the open files of this very process, which is the one that is looked at."""
    monkeypatch.setattr(find, "reader_of", JsonReader)
    monkeypatch.setattr(find, "_RETRY_S", 0.0)
    made: list[int] = []

    def make(text: str | None = None, **changes: Any) -> int:
        own = proc.stat(os.getpid())
        assert own is not None
        process = fakes.process(**{"inner_pid": proc.inner_pid(os.getpid()), "start_ticks": own.start_ticks, **changes})
        descriptor = os.memfd_create("ticketlock")
        os.write(descriptor, (json.dumps(process) if text is None else text).encode())
        made.append(descriptor)
        return descriptor

    yield make
    for descriptor in made:
        with contextlib.suppress(OSError):
            os.close(descriptor)


@pytest.fixture
def opened() -> Iterator[Callable[[int], find.Segment]]:
    """Opens segments and closes them again."""
    made: list[find.Segment] = []

    def open_one(pid: int) -> find.Segment:
        made.append(find.open_segment(pid))
        return made[-1]

    yield open_one
    for one in made:
        one.close()


def here() -> int:
    return os.getpid()


def test_a_segment_is_found_and_closed_again(segment: Any) -> None:
    segment()
    before = set(os.listdir("/proc/self/fd"))
    found = find.open_segment(here())
    assert found.reader.process()["inner_pid"] == here()
    assert found.still_named()
    found.close()
    found.close()
    assert set(os.listdir("/proc/self/fd")) == before


def test_of_several_segments_the_one_that_fits_is_taken(segment: Any, opened: Any) -> None:
    segment(inner_pid=here() + 1)
    segment(start_ticks=1)
    segment("garbage")
    segment(version="the one")
    assert opened(here()).reader.process()["version"] == "the one"


def test_row_7_a_segment_of_a_former_owner_of_the_pid_is_refused(segment: Any) -> None:
    segment(start_ticks=1)
    with pytest.raises(find.NotInstrumentedError):
        find.open_segment(here())


def test_row_19_an_inherited_segment_is_refused(segment: Any) -> None:
    segment(inner_pid=os.getppid())
    with pytest.raises(find.NotInstrumentedError):
        find.open_segment(here())


def test_row_18_another_version_is_named_with_exit_code_5(segment: Any) -> None:
    segment("garbage")
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(find.IncompatibleError, match="version 7, and this is version 1") as refused:
        find.open_segment(here())
    assert refused.value.exit_code == 5
    assert set(os.listdir("/proc/self/fd")) == before


def test_row_18_files_that_only_have_the_name_are_left_alone(segment: Any, tmp_path: Path) -> None:
    folder = tmp_path / "ticketlock"
    folder.mkdir()
    pipe = folder / f"{here()}-5.v1"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(find.NotInstrumentedError):
            find.open_segment(here())
    finally:
        os.close(descriptor)


def test_a_file_of_another_user_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.touch()
    uid = os.geteuid()
    descriptor = files.open_safely(str(file), (uid,))
    assert descriptor is not None
    os.close(descriptor)
    assert files.open_safely(str(file), (uid + 1,)) is None


@pytest.mark.parametrize(("mode", "found"), [(0o700, True), (0o755, False), (0o770, False)])
def test_the_folder_of_files_must_be_closed_to_others(
    segment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, found: bool
) -> None:
    segment_in_folder(tmp_path, monkeypatch).chmod(mode)
    if found:
        find.open_segment(here()).close()
    else:
        with pytest.raises(find.NotInstrumentedError):
            find.open_segment(here())


def test_a_folder_of_files_that_is_a_link_is_refused(segment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = segment_in_folder(tmp_path, monkeypatch)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(find.NotInstrumentedError):
        find.open_segment(here())


def segment_in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own = proc.stat(here())
    assert own is not None
    folder = tmp_path / "ticketlock"
    folder.mkdir(mode=0o700)
    process = fakes.process(inner_pid=here(), start_ticks=own.start_ticks)
    (folder / f"{here()}-{own.start_ticks}.v1").write_text(json.dumps(process))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return folder


def test_row_7_no_such_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(find.NotFoundError, match=f"no process {child.pid}") as missing:
        find.open_segment(child.pid)
    assert missing.value.exit_code == 3


def test_row_7_a_process_that_has_ended_but_is_still_listed() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        with pytest.raises(find.NotFoundError, match="no process"):
            find.open_segment(child.pid)
    finally:
        child.wait()


def test_a_thread_is_no_process() -> None:
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait)
    thread.start()
    try:
        with pytest.raises(find.NotFoundError, match=f"is a thread of process {here()}"):
            find.open_segment(thread.native_id or 0)
    finally:
        go_on.set()
        thread.join()


def test_row_8_a_program_without_ticketlock() -> None:
    with Target(WAIT) as target, pytest.raises(find.NotInstrumentedError, match="does not use ticketlock") as silent:
        find.open_segment(target.pid)
    assert silent.value.exit_code == 3


# The path of the library is what tells that a process uses it; in a development tree it may be linked from elsewhere.
def library_shows() -> bool:
    from ticketlock import _core

    return find.LIBRARY in os.path.realpath(_core.__file__)


def test_row_8_telemetry_switched_off() -> None:
    with Target(IMPORTS, TICKETLOCK_TELEMETRY="0") as target:
        with pytest.raises(find.NotInstrumentedError) as silent:
            find.open_segment(target.pid)
        if library_shows():
            assert "TICKETLOCK_TELEMETRY=0" in silent.value.cause


def test_row_19_a_daemon_that_closed_its_files_is_told_apart() -> None:
    closing = "import os, ticketlock; lock = ticketlock.Lock(); lock.acquire(); os.closerange(3, 65536)\n" + WAIT
    with Target(closing) as target, pytest.raises(find.NotInstrumentedError, match="has closed the file"):
        find.open_segment(target.pid)


def test_a_real_process_is_opened_and_listed(opened: Any) -> None:
    with Target(IMPORTS, "-X", "dev") as target:
        found = opened(target.pid)
        assert found.reader.process()["inner_pid"] == target.pid
        assert target.pid in {one.pid for one in find.instrumented().processes}
        assert here() not in {one.pid for one in find.instrumented().processes}


def test_a_real_process_with_a_file_is_opened(opened: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with Target(IMPORTS, TICKETLOCK_TELEMETRY="file", XDG_RUNTIME_DIR=str(tmp_path)) as target:
        assert [stat.S_ISREG(path.stat().st_mode) for path in (tmp_path / "ticketlock").iterdir()] == [True]
        assert opened(target.pid).reader.process()["inner_pid"] == target.pid


def test_row_8_another_user_is_refused_with_4_and_the_reason() -> None:
    with Target(IMPORTS) as target:
        for arguments in (["top", str(target.pid)], ["dump", str(target.pid)]):
            done = as_user(NOBODY, *arguments)
            assert (done.returncode, done.stdout) == (4, "")
            assert done.stderr.startswith(
                f"ticketlock {arguments[0]}: process {target.pid} belongs to user root, and you are user "
            )
            assert "run ticketlock as that user or as root" in done.stderr
            assert done.stderr.count("\n") == 1


def test_row_8_processes_of_others_are_counted_not_guessed() -> None:
    with Target(IMPORTS) as target:
        done = as_user(NOBODY, "ps", "--json")
        document = json.loads(done.stdout)
        assert document["hidden"] >= 1
        assert target.pid not in {one["pid"] for one in document["processes"]}


def undumpable() -> str:
    return (
        f"import ctypes, os, ticketlock\nlock = ticketlock.Lock(); lock.acquire()\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n{WAIT}"
    )


def test_row_8_a_process_that_lets_nobody_look() -> None:
    needs_root()
    # The user is left before the process closes itself, so that it is one of the same user as the viewer's.
    source = undumpable().replace("ctypes.CDLL", f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); ctypes.CDLL", 1)
    with Target(source) as target:
        done = as_user(NOBODY, "top", str(target.pid))
        assert done.returncode == 4
        assert f"process {target.pid} lets nobody look into it (PR_SET_DUMPABLE is 0" in done.stderr


def test_row_8_the_same_without_root() -> None:
    with Target(undumpable()) as target:
        if os.access(f"/proc/{target.pid}/fd", os.R_OK) and has_ptrace():
            pytest.skip("this user may look into everything")
        with pytest.raises(find.NotPermittedError) as refused:
            find.open_segment(target.pid)
        assert refused.value.exit_code == 4


def has_ptrace() -> bool:
    status = Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1]
    return bool(int(effective, 16) & 1 << 19)


def test_row_8_the_pid_of_a_namespace_inside_is_understood(opened: Any) -> None:
    prefix = ("unshare", "--pid", "--fork")
    try:
        subprocess.run([*prefix, "true"], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("namespaces cannot be made here")
    with Target(IMPORTS, prefix=prefix) as outside:
        (inside,) = proc.children(outside.pid)
        try:
            assert proc.inner_pid(inside) == 1
            found = opened(inside)
            assert found.reader.process()["inner_pid"] == 1
            assert proc.Threads(inside).alive(1)
            assert not proc.Threads(inside).alive(12345)
        finally:
            os.kill(inside, signal.SIGKILL)


def test_names_of_programs_do_not_confuse_the_reading_of_stat(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    fields = ["Z", "3", "1", "1", "0", "-1", str(0x0020_0000), *["0"] * 12, "99", "0"]
    (tmp_path / "7" / "stat").write_text("7 (a) S 1 (b) ) " + " ".join(fields))
    found = proc.stat(7, tmp_path)
    assert found == proc.Stat(parent=3, state="Z", kernel=True, start_ticks=99)
    assert found.ended
    for broken in ("", "7", "7 (x)", "7 (x) S", "7 (x) S a b c d e f g"):
        (tmp_path / "7" / "stat").write_text(broken)
        assert proc.stat(7, tmp_path) is None


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ([], "?"),
        ([""], "?"),
        (["/bin/sh", "-c", "x"], "sh"),
        (["/usr/bin/python3", "/srv/server.py", "-m", "x"], "server.py"),
        (["python3.14", "-uW", "ignore", "-X", "dev", "a.py"], "a.py"),
        (["python", "-Wignore", "-I", "b.py"], "b.py"),
        (["python", "--check-hash-based-pycs", "c.py"], "c.py"),
        (["python3", "-um", "http.server", "80"], "http.server"),
        (["python3", "-mhttp.server"], "http.server"),
        (["python3", "-c", "import x"], "python3 -c"),
        (["python3"], "python3"),
    ],
)
def test_what_a_process_is_called(command: list[str], name: str) -> None:
    assert proc.program(command) == name


@pytest.mark.parametrize("with_descriptor", [True, False])
@pytest.mark.parametrize(("end", "words"), [("5", "exited (5)"), ("kill", "killed by signal 9")])
def test_row_7_the_end_of_a_process_is_seen(monkeypatch: pytest.MonkeyPatch, with_descriptor: bool, end: str, words: str) -> None:
    if not with_descriptor:
        monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    with Target(WAIT) as target:
        seen = proc.stat(target.pid)
        assert seen is not None
        with proc.Watch(target.pid, seen.start_ticks) as watch:
            assert not watch.ended(0.01)
            if end == "kill":
                target.process.kill()
                target.process.wait()
            else:
                target.end(int(end))
            assert watch.ended(5.0)
            # Only newer kernels tell how.
            assert watch.ending() in ((words, "exited") if with_descriptor else ("exited",))


def refuse(pid: int, flags: int = 0) -> int:
    raise OSError(38, "not here")


def test_row_7_a_pid_that_was_given_away_again_is_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    own = proc.stat(here())
    assert own is not None
    with proc.Watch(here(), own.start_ticks) as same, proc.Watch(here(), own.start_ticks - 1) as other:
        assert (same.ended(), other.ended()) == (False, True)


def test_row_9_uptime_is_counted_in_ticks_of_the_machine() -> None:
    own = proc.stat(here())
    assert own is not None
    uptime = proc.uptime_ns(own.start_ticks)
    assert uptime is not None
    assert 0 < uptime < 86_400 * 10**9
    assert proc.uptime_ns(0) is None


def test_descendants_in_the_order_of_generations() -> None:
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WAIT!r}])"
    child = subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        select.select([child.stdout], [], [], 20)
        found = proc.descendants(child.pid)
        assert len(found) == 1
        assert found[0] in proc.descendants(here())
        assert proc.descendants(here()).index(child.pid) < proc.descendants(here()).index(found[0])
    finally:
        child.communicate(b"0\n", timeout=20)


def test_threads_that_live() -> None:
    threads = proc.Threads(here())
    assert threads.alive(threading.get_native_id())
    assert threads.alive(0), "nobody knows"
    assert not threads.alive(2**22 + 5)


def test_ps_lists_what_can_be_watched() -> None:
    with Target(BUSY) as target:
        done = ran("ps")
        row = next(line.split() for line in done.stdout.splitlines() if line.strip().startswith(str(target.pid)))
        assert row[1:3] == ["python" + row[1].removeprefix("python"), "-c"]
        document = json.loads(ran("ps", "--json").stdout)
        (one,) = [process for process in document["processes"] if process["pid"] == target.pid]
        assert document["schema"] == "ticketlock.ps/1"
        assert one["locks"] >= 2
        assert one["contended"] > 0
        assert one["command"][1] == "-c"
        assert 0 < one["uptime_ns"] < 600 * 10**9
