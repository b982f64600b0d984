"""The stubs of the native modules say what the modules are."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.timeout(300)  # mypy reads the standard library's stubs anew
@pytest.mark.parametrize("module", ["ticketlock._core", "ticketlock._lab"])
def test_stubs_agree_with_the_module(module, tmp_path):
    pytest.importorskip("mypy.stubtest")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", module, "--mypy-config-file", ROOT / "pyproject.toml"],
        capture_output=True,
        text=True,
        cwd=tmp_path,  # the installed package, not the one in the checkout
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
