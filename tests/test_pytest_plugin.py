"""`pytest --ticketlock-report`: tests with their locks replaced, and a report behind them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from conftest import environment

SUITE = """\
import threading, time
lock = threading.Lock()
def test_kind():
    print("KIND", type(lock).__module__)
def test_waits():
    def work():
        for _ in range(10):
            with lock:
                time.sleep(0.002)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads: t.start()
    for t in threads: t.join()
"""


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "test_small.py").write_text(SUITE)
    (tmp_path / "conftest.py").write_text("import threading\nprint('CONFTEST', type(threading.Lock()).__module__)\n")
    return tmp_path


def run(folder, *words, **changes):
    """With the plugin loaded by name, as its entry point would, so that no installation is needed."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "ticketlock.pytest_plugin", "-p", "no:cacheprovider", "-q", "-s", *words],
        capture_output=True,
        text=True,
        timeout=50,
        cwd=folder,
        env=environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **changes),
    )


def test_nothing_happens_without_the_option(suite):
    done = run(suite)
    assert done.returncode == 0, done.stdout
    assert "CONFTEST _thread" in done.stdout
    assert "KIND _thread" in done.stdout
    assert "ticketlock" not in done.stdout


def test_the_option_alone_loads_nothing(suite):
    (suite / "test_small.py").write_text(
        "import sys\ndef test_loaded():\n    print(sorted(name for name in sys.modules if name.startswith('ticketlock')))\n"
    )
    assert "['ticketlock', 'ticketlock._core', 'ticketlock.pytest_plugin']" in run(suite).stdout


def test_a_section_at_the_end(suite):
    done = run(suite, "--ticketlock-report")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CONFTEST ticketlock" in done.stdout, "before the first file of the tests"
    assert "KIND ticketlock" in done.stdout
    section = done.stdout.partition("= ticketlock =")[2]
    assert "pytest: " in section
    assert "test_small.py:2" in section
    assert "2 passed" in section


def test_a_path_behind_the_option_is_no_file_to_write(suite):
    for words in (
        ["--ticketlock-report", "test_small.py"],
        ["--ticketlock-report", "."],
        ["test_small.py", "--ticketlock-report"],
    ):
        done = run(suite, *words)
        assert "2 passed" in done.stdout, done.stdout + done.stderr
        assert (suite / "test_small.py").read_text() == SUITE


@pytest.mark.parametrize("name", ["r.json", "r.html", "r.txt"])
def test_a_file(name, suite):
    done = run(suite, f"--ticketlock-report={name}", "test_small.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"report written to {suite / name}" in done.stdout
    text = (suite / name).read_text()
    assert "test_small.py:2" in text
    if name.endswith("json"):
        assert json.loads(text)["schema"] == "ticketlock.snapshot/1"


def test_options_of_a_file_count_too(suite):
    (suite / "pytest.ini").write_text("[pytest]\naddopts = --ticketlock-report=r.json\n")
    assert "report written to" in run(suite).stdout
    assert (suite / "r.json").exists()


def test_mistakes_are_told_before_any_test(suite):
    done = run(suite, f"--ticketlock-report={os.sep}nosuch{os.sep}x")
    assert done.returncode == 4
    assert "--ticketlock-report: " in done.stderr
    assert "passed" not in done.stdout


def test_emergency_switch(suite):
    done = run(suite, "--ticketlock-report", TICKETLOCK_PATCH="0")
    assert done.returncode == 0
    assert "KIND _thread" in done.stdout
    assert "TICKETLOCK_PATCH=0: locks were not replaced" in done.stdout


def test_the_exit_code_stays_pytests(suite):
    (suite / "test_small.py").write_text("def test(): assert 0\n")
    assert run(suite, "--ticketlock-report").returncode == 1
