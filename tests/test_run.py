"""`ticketlock run`: a program under it is the program without it, and what is reported at its end.

The program's stderr is compared whole: the report goes to a file, or is looked for behind what the program wrote.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import REAL, environment
from threads import needs_fork
from ticketlock.cli.run import split

PROGRAMS = Path(__file__).parent / "programs"
METHODS = [name for name in ("fork", "spawn", "forkserver") if os.name == "posix" or name == "spawn"]
QUIET = ["--report", "none"]
posix_only = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


def start(words, *, text="", folder=None, flags=(), **changes):
    return subprocess.run(
        [sys.executable, *flags, *map(str, words)],
        input=text,
        text=True,
        capture_output=True,
        timeout=50,
        cwd=folder,
        env=environment(**changes),
    )


def run(*words, own=(), flags=(), **how):
    """Under `ticketlock run`."""
    return start([*REAL[1:], "run", *own, *words], flags=flags, **how)


def check_same(words, tmp_path, *, own=(), **how):
    """The program behaves the same with and without us; returns the report."""
    report = tmp_path / "report.txt"
    plain = start(words, **how)
    under = run(*words, own=["--report-file", report, *own], **how)
    assert _timeless(under.stdout) == _timeless(plain.stdout)
    assert _timeless(under.stderr) == _timeless(plain.stderr)
    assert under.returncode == plain.returncode
    return report.read_text() if report.exists() else None


def _timeless(text):
    return re.sub(r" in \d+\.\d+s|0x[0-9a-f]+|Thread-\d+|\b\d{5,}\b", "*", text)


# --- eight programs, unmodified --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["thread_pool", "queue", "logging", "sqlite", "asyncio", "http_server"])
def test_program_is_the_same(name, tmp_path):
    report = check_same([PROGRAMS / f"run_{name}.py"], tmp_path)
    assert report.startswith("ticketlock run: ")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("children", [False, True])
def test_multiprocessing_is_the_same(method, children, tmp_path):
    report = check_same(
        [PROGRAMS / "run_multiprocessing.py", method], tmp_path, own=["--children"] if children else [], PYTHONPATH=_path()
    )
    assert report.count("ticketlock run: ") == 1, "only the parent reports"


def test_pytest_is_the_same(tmp_path):
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", tmp_path, PROGRAMS / "run_suite.py"]
    assert check_same(words, tmp_path) is not None


def _path():
    """Where the package under test comes from, so that children find it whatever their folder."""
    return os.environ.get("PYTHONPATH")


# --- how it was started ----------------------------------------------------------------------------------------------------


def probe_as(kind, folder):
    """The probe as a script, a module, code, a folder, an archive, a package, or from stdin: words, and the text of stdin."""
    text = (PROGRAMS / "run_probe.py").read_text()
    if kind in ("script", "relative", "link"):
        (folder / "probe.py").write_text(text)
        (folder / "linked.py").symlink_to(folder / "probe.py")
        return [{"script": folder / "probe.py", "relative": "./probe.py", "link": "linked.py"}[kind]], "line\n"
    if kind == "module":
        (folder / "probe_module.py").write_text(text)
        return ["-m", "probe_module"], "line\n"
    if kind == "package":
        (folder / "probe_package").mkdir()
        (folder / "probe_package" / "__init__.py").write_text("")
        (folder / "probe_package" / "__main__.py").write_text(text)
        return ["-mprobe_package"], "line\n"
    if kind == "code":
        return ["-c", text], "line\n"
    if kind == "folder":
        (folder / "whole").mkdir()
        (folder / "whole" / "__main__.py").write_text(text)
        return ["whole"], "line\n"
    if kind == "archive":
        with zipfile.ZipFile(folder / "whole.pyz", "w") as archive:
            archive.writestr("__main__.py", text)
        return ["whole.pyz"], "line\n"
    assert kind == "stdin"
    return ["-"], text


KINDS = ["script", "relative", "link", "module", "package", "code", "folder", "archive", "stdin"]


@pytest.mark.parametrize("kind", KINDS if os.name == "posix" else [kind for kind in KINDS if kind != "link"])
def test_program_cannot_tell_how_it_was_started(kind, tmp_path):
    words, text = probe_as(kind, tmp_path)
    check_same([*words, "--report", "x", "-m", "--", "--hold", "-5"], tmp_path, text=text, folder=tmp_path)


@pytest.mark.parametrize("flags", [["-u"], ["-X", "dev"], ["-W", "error::BytesWarning"], ["-O"], ["-s"], ["-P"], ["-bb", "-q"]])
def test_flags_of_the_interpreter_reach_the_program(flags, tmp_path):
    words, text = probe_as("script", tmp_path)
    report = check_same(words, tmp_path, text=text, folder=tmp_path, flags=flags)
    assert report is not None


def test_a_variable_of_the_users_path_is_as_it_was(tmp_path):
    words, text = probe_as("script", tmp_path)
    path = os.pathsep.join(filter(None, [_path(), str(tmp_path / "more"), ""]))
    check_same(words, tmp_path, text=text, folder=tmp_path, PYTHONPATH=path)


def test_a_sitecustomize_of_the_users_has_its_turn(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys, threading\nsys.customized = str(threading.Lock)\n")
    (tmp_path / "program.py").write_text("import sys, sitecustomize; print(sitecustomize.__file__, bool(sys.customized))\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), _path()]))
    check_same(["program.py"], tmp_path, folder=tmp_path, PYTHONPATH=path)
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('broken')\n")
    (tmp_path / "program.py").write_text("print('runs')\n")
    under, plain = (
        how(["program.py"], folder=tmp_path, PYTHONPATH=path) for how in (lambda w, **h: run(*w, own=QUIET, **h), start)
    )
    assert under.stdout == plain.stdout
    assert under.stderr == plain.stderr * 2, "once for the command, once for the program"


def test_isolated_interpreters_are_entered_too(tmp_path):
    # Only if the package is installed: nothing of the environment leads to it.
    if start(["-I", "-c", "import ticketlock._run"]).returncode:
        pytest.skip("ticketlock is not installed in this interpreter")
    (tmp_path / "program.py").write_text(
        "import os, sys, threading\nprint(threading.Lock, sys.path, os.environ['PYTHONHASHSEED'], sys.flags.no_user_site)\n"
        "print(os.environ.get('PYTHONPATH'))"
    )
    done = run(tmp_path / "program.py", own=QUIET, flags=["-I"], PYTHONHASHSEED="77", PYTHONPATH="/nowhere")
    plain = start([tmp_path / "program.py"], flags=["-I"], PYTHONHASHSEED="77", PYTHONPATH="/nowhere")
    assert done.stdout.startswith("<class 'ticketlock.Lock'>")
    assert done.stdout.partition(">")[2] == plain.stdout.partition(">")[2]


@posix_only
def test_neither_rich_nor_argparse_nor_the_monitor_is_loaded(tmp_path):
    code = "import sys; print([name for name in sys.modules if name.partition('.')[0] in ('rich', 'argparse', 'ticketlock')])"
    done = run("-c", code)
    assert "rich" not in done.stdout
    assert "argparse" not in done.stdout
    assert "monitor" not in done.stdout
    assert "cli" not in done.stdout
    # Not at the end either.
    code = "import atexit, sys; atexit._run_exitfuncs(); print([name for name in ('rich', 'argparse') if name in sys.modules])"
    assert run("-c", code, own=["--report-file", tmp_path / "report"]).stdout == "[]\n"
    assert (tmp_path / "report").exists()


# --- how it ends -----------------------------------------------------------------------------------------------------------

ENDS = {
    "number": "import sys; sys.exit(7)",
    "text": "import sys; sys.exit('last words')",
    "none": "import sys; sys.exit()",
    "large": "raise SystemExit(300)",
    "object": "raise SystemExit([1, 2])",
    "exception": "def f():\n    1 / 0\nf()",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e",
    "group": "raise ExceptionGroup('several', [ValueError(1), KeyError(2)])",
    "syntax": "def f(:\n    pass",
    "interrupt": "raise KeyboardInterrupt",
    "hook": "import sys\nsys.excepthook = lambda *what: print('hook', what[0])\n1 / 0",
    "bad hook": "import sys\nsys.excepthook = None\n1 / 0",
    "at exit": "import atexit, sys\natexit.register(lambda: print('out') or sys.stderr.write('err\\n'))\nsys.exit(4)",
    "failing at exit": "import atexit\natexit.register(lambda: 1 / 0)",
    "at once": "import os; print('lost?', flush=True); os._exit(9)",
    "thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0); t.start(); t.join(); print('on')",
    "late thread": "import threading as t, time\nt.Thread(target=lambda: (time.sleep(0.2), print('late'))).start(); print(1)",
    "daemon": "import threading as t\nl = t.Lock(); l.acquire()\nt.Thread(target=l.acquire, daemon=True).start()\nprint('main')",
    "finalizer": "class A:\n    def __del__(self): print('deleted')\na = A()",
    "closed": "import sys\nsys.stdout.close()",
    "closed all": "import os\nos.close(2)\nos.close(1)",
    "no streams": "import sys\nsys.stdout = sys.stderr = None\ndel sys.stdin",
    "no path": "import sys\nsys.path.clear()\nprint('on')",
    "exec": "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(\"another\")'])",
}
SIGNALS = {
    "SIGTERM": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "SIGINT": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
    "SIGINT by default": "import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGINT)",
    "abort": "import os; os.abort()",
}


@pytest.mark.parametrize("name", ENDS)
def test_every_end_is_the_same(name, tmp_path):
    (tmp_path / "program.py").write_text(ENDS[name] + "\n")
    report = check_same(["program.py"], tmp_path, folder=tmp_path)
    assert (report is None) == (name in ("at once", "exec")), "whoever leaves without the interpreter's end gets no report"


@posix_only
@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_that_ends_the_program_ends_the_process(name, tmp_path):
    (tmp_path / "program.py").write_text(SIGNALS[name] + "\n")
    report = check_same(["program.py"], tmp_path, folder=tmp_path)
    assert (report is not None) == (name == "SIGINT")


def test_errors_in_code_and_modules_are_the_same(tmp_path):
    (tmp_path / "broken.py").write_text("import nosuchmodule\n")
    for words in (["-c", "def f():\n  1/0\nf()"], ["-m", "broken"], ["-m", "nosuchmodule"], ["-m", "json.nosuch"], ["-c", "a b"]):
        check_same(words, tmp_path, folder=tmp_path)


def test_the_report_comes_behind_all_that_the_program_says(tmp_path):
    (tmp_path / "program.py").write_text(ENDS["at exit"] + "\n")
    done = run("program.py", folder=tmp_path)
    assert done.stdout == "out\n"
    assert done.stderr.startswith("err\nticketlock run: program.py: ")
    assert done.returncode == 4
    together = subprocess.run(
        [*REAL, "run", "program.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(),
        timeout=50,
    )
    assert together.stdout.startswith(b"err\nout\nticketlock run: ") or together.stdout.startswith(b"out\nerr\nticketlock run: ")


@posix_only
def test_a_reader_that_is_gone_changes_no_exit_code(tmp_path):
    for code in ("import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)", "pass"):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([*REAL, "run", "-c", code], stderr=writing, env=environment(), timeout=50)
        os.close(writing)
        assert done.returncode == 0


@posix_only
def test_a_program_that_took_over_descriptor_2_keeps_its_file_clean(tmp_path):
    file = tmp_path / "data"
    code = f"import os; os.close(2); d = os.open({str(file)!r}, os.O_CREAT | os.O_WRONLY); assert d == 2; os.write(2, b'mine')"
    assert run("-c", code).returncode == 0
    assert file.read_text() == "mine"


@needs_fork
def test_only_the_parent_reports(tmp_path):
    code = "import os, sys\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()\nprint('parent')"
    done = run("-c", code)
    assert done.stderr.count("ticketlock run: ") == 1


# --- what is replaced ------------------------------------------------------------------------------------------------------


def test_locks_are_ours_before_anything_of_the_program(tmp_path):
    code = (
        "import threading, _thread, queue, logging, tempfile\n"
        "print(threading.Lock(), threading.RLock(), _thread.allocate_lock(), queue.Queue().mutex, logging.getLogger().handlers)"
    )
    done = run("-c", code, own=QUIET)
    assert done.stdout.count("ticketlock.") == 4
    assert done.stderr == ""


def test_include_and_exclude(tmp_path):
    (tmp_path / "mine.py").write_text("import threading\nlock, event = threading.Lock(), threading.Event()\n")
    (tmp_path / "other.py").write_text("import threading\nlock, event = threading.Lock(), threading.Event()\n")
    (tmp_path / "program.py").write_text(
        "import mine, other\nprint([type(lock).__module__ for m in (mine, other) for lock in (m.lock, m.event._cond._lock)])\n"
    )
    for own, mine, other in (
        (["--include", "mine.py"], True, False),
        (["--exclude=mine.py"], False, True),
        (["--include", "*/mine.py", "--include", "other.py", "--exclude", "o*.py"], True, False),
        (["--exclude", "/usr/nosuch/*"], True, True),
    ):
        done = run("program.py", own=["--report", "none", *own], folder=tmp_path)
        expected = ["ticketlock" if ours else "_thread" for ours in (mine, mine, other, other)]
        assert done.stdout == f"{expected}\n", done.stderr


def test_emergency_switch(tmp_path):
    done = run("-c", "import threading; print(threading.Lock.__module__)", TICKETLOCK_PATCH="0")
    assert done.stdout == "_thread\n"
    assert done.stderr == "ticketlock run: TICKETLOCK_PATCH=0: locks are not replaced, and there will be no report\n"


def test_children_only_if_asked(tmp_path):
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import threading; print(threading.Lock())'])"
    assert "ticketlock" not in run("-c", code, own=QUIET).stdout
    done = run("-c", code, own=["--children"])
    assert "ticketlock.Lock" in done.stdout
    assert done.stderr.count("ticketlock run: ") == 1


# --- the report ------------------------------------------------------------------------------------------------------------

HOT = """\
import threading, time
hot = threading.Lock()
cold = threading.Lock()
def work():
    for _ in range(20):
        with hot:
            time.sleep(0.002)
        with cold:
            pass
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
"""


@pytest.fixture
def hot(tmp_path):
    (tmp_path / "hot.py").write_text(HOT)
    return tmp_path


def test_the_hot_lock_comes_first(hot):
    done = run("hot.py", folder=hot)
    rows = [line for line in done.stderr.splitlines()[1:] if "hot.py:" in line]
    assert "hot.py:2 " in rows[0]
    assert re.search(r"held by hot.py:[67] work", done.stderr), "newer versions release in the line of the `with`"
    assert re.search(r"unseen: \d+ standard locks", done.stderr)
    assert "\x1b" not in done.stderr


def test_json(hot):
    done = run("hot.py", own=["--report", "json", "--report-file", "r.json"], folder=hot)
    assert done.stderr == ""
    document = json.loads((hot / "r.json").read_text())
    assert document["schema"] == "ticketlock.snapshot/1"
    first = document["locks"][0]
    assert first["site"].endswith("hot.py:2")
    assert first["contended"] >= 40
    assert document["unseen"] >= 0


def test_page(hot):
    run("hot.py", own=["--report", "html", "--report-file", "r.html"], folder=hot)
    page = (hot / "r.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "hot.py:2" in page
    assert "http" not in page, "it needs nothing else"


@pytest.mark.parametrize("kind", ["pprof", "speedscope", "collapsed", "chrome", "prometheus", "csv"])
def test_exports(kind, hot):
    done = run("hot.py", own=["--report", "none", "--export", f"{kind}=out"], folder=hot)
    assert done.returncode == 0
    assert (hot / "out").stat().st_size > 20, done.stderr


def test_a_report_that_cannot_be_written_at_the_end_is_said_and_no_more(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    done = run("-c", f"import os; os.rmdir({str(folder)!r}); print('on')", own=["--report-file", folder / "report"])
    assert (done.stdout, done.returncode) == ("on\n", 0)
    assert done.stderr.startswith("ticketlock run: no report: ")
    assert "Traceback" not in done.stderr


def test_telemetry_off_is_said(tmp_path):
    done = run("-c", "print('on')", TICKETLOCK_TELEMETRY="0")
    assert (done.stdout, done.returncode) == ("on\n", 0)
    assert done.stderr.startswith("ticketlock run: no report: ")


def test_live_says_how_to_watch(tmp_path):
    done = run("-c", "import os; print(os.getpid())", own=["--live", "--report", "none"])
    assert done.stderr == f"ticketlock run: watch it with: ticketlock top {done.stdout.strip()}\n"


# --- the command line ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "own", "program"),
    [
        (["x.py", "--report", "y"], [], ["x.py", "--report", "y"]),
        (["--report", "json", "x.py"], ["--report", "json"], ["x.py"]),
        (["--report=json", "--", "--x.py", "--"], ["--report=json"], ["--x.py", "--"]),
        (["--live", "-m", "a", "-m"], ["--live"], ["-m", "a", "-m"]),
        (["-mpackage", "x"], [], ["-mpackage", "x"]),
        (["-c", "code", "--include", "x"], [], ["-c", "code", "--include", "x"]),
        (["--include", "-", "-", "x"], ["--include", "-"], ["-", "x"]),
        (["--children", "--nosuch", "x.py"], ["--children", "--nosuch"], ["x.py"]),
        (["--export"], ["--export"], []),
        ([], [], []),
    ],
)
def test_options_end_where_the_program_begins(words, own, program):
    assert split(words) == (own, program)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], ["script.py", "-m module"]),
        (["-m"], ["-m", "module"]),
        (["nosuch.py"], ["script", "'nosuch.py'"]),
        (["--", "-x"], ["'-x'"]),
        (["--report", "xml", "x.py"], ["--report", "'xml'", "table"]),
        (["--report", "html", "-c", "1"], ["--report html", "--report-file"]),
        (["--report-file", "/", "-c", "1"], ["--report-file", "'/'", "folder"]),
        (["--report-file", "/nosuch/x", "-c", "1"], ["--report-file", "'/nosuch/x'"]),
        (["--export", "nosuch=x", "-c", "1"], ["--export", "'nosuch=x'", "pprof"]),
        (["--export", "pprof", "-c", "1"], ["--export", "'pprof'", "KIND=FILE"]),
        (["--nosuch", "-c", "1"], ["--nosuch"]),
    ],
)
def test_wrong_usage_exits_2_before_the_program(words, said):
    done = run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("ticketlock run: ")
    assert all(word in done.stderr for word in said), done.stderr
    assert "Traceback" not in done.stderr


def test_without_site_it_is_refused():
    done = run("-c", "print(1)", flags=["-S"], PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    assert done.returncode == 2
    assert "-S" in done.stderr


@posix_only
def test_the_process_is_the_program(tmp_path):
    process = subprocess.Popen(
        [*REAL, "run", "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(30)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert int(process.stdout.readline()) == process.pid
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    assert "ticketlock run: " in errors
