"""Type checkers see the package as its users should: tests/typed/ holds what they must accept and what they must refuse."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "typed" / "locks.py"
WRONG = "\nLock().stats() + 1\n"


def mypy(folder):
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "--python-version", "3.11", PROGRAM.name]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def pyright(folder):
    settings = {
        "include": [PROGRAM.name],
        "strict": [PROGRAM.name],
        "pythonVersion": "3.11",
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def pyright_runs():
    """Its package on PyPI fetches the checker, which is a program for Node.js, when it is first used."""
    if importlib.util.find_spec("pyright") is None:
        return False
    try:
        done = subprocess.run([sys.executable, "-m", "pyright", "--version"], capture_output=True, check=False, timeout=120)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def available(checker):
    if checker is mypy:
        pytest.importorskip("mypy")
    elif not pyright_runs():
        pytest.skip("pyright is not installed, or could not fetch its checker")


@pytest.mark.timeout(300)  # a checker reads the standard library's stubs anew
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_checkers_agree_with_the_program(checker, tmp_path):
    available(checker)
    shutil.copy(PROGRAM, tmp_path)  # beside the installed package, not the one in the checkout
    done = checker(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr

    # They do look at it, and know the types.
    with (tmp_path / PROGRAM.name).open("a") as program:
        program.write(WRONG)
    done = checker(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "LockStats" in done.stdout
