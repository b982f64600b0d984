"""Locks under everything at once, for as long as TICKETLOCK_STRESS_SECONDS says for each kind (3 unless set).

The program behind it is lock_stress.py, in a process of its own: it forks, handles signals and is ended by its own watchdog.
"""

import json
import os
import random
import signal
import subprocess
import sys

import lock_stress
import pytest

DEFAULT_S = 3.0
SECONDS = float(os.environ.get("TICKETLOCK_STRESS_SECONDS", DEFAULT_S))
# In the default time.
DOUBLE_RELEASES = 10_000
# At least these, in the default time and on a machine that is busy with other things.
FEWEST = {"taken": 500, "refused": 100, "timeouts": 50, "taken by finalizers": 1}
FEWEST_WITH_SIGNALS = {"signals": 50}
FEWEST_WITH_FORKS = {"forks": 5, "forks while held": 1}
FEWEST_OF_RLOCK = {"reentries": 100}
# Twice what the program may take before its watchdog strikes: it is to be the first.
GRACE_S = 120


def stress(what, kind, amount, capsys):
    seed = random.randrange(1_000_000)
    done = subprocess.run(
        [sys.executable, lock_stress.__file__, what, kind, str(amount), str(seed)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS * 10 + GRACE_S,
    )
    assert done.returncode == 0, f"seed {seed}:\n{done.stderr}"
    assert done.stderr == "", done.stderr
    counts = json.loads(done.stdout)
    with capsys.disabled():
        print(f"\n{what} {kind}, seed {seed}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    return counts


@pytest.mark.timeout(SECONDS * 10 + GRACE_S + 30)
@pytest.mark.parametrize("kind", lock_stress.KINDS)
def test_everything_at_once(kind, capsys):
    counts = stress("all", kind, SECONDS, capsys)
    fewest = dict(FEWEST)
    if hasattr(signal, "setitimer"):
        fewest |= FEWEST_WITH_SIGNALS
    if lock_stress.FORKS:
        fewest |= FEWEST_WITH_FORKS
    if kind == "RLock":
        fewest |= FEWEST_OF_RLOCK
    few = {
        name: counts.get(name, 0) for name, least in fewest.items() if counts.get(name, 0) < least * min(1, SECONDS / DEFAULT_S)
    }
    assert not few, f"too little happened: {few}"


@pytest.mark.timeout(SECONDS * 10 + GRACE_S + 30)
@pytest.mark.parametrize("kind", [kind for kind in lock_stress.KINDS if kind != "RLock"])
def test_two_racing_releases_give_exactly_one_error(kind, capsys):
    stress("releases", kind, max(1, round(DOUBLE_RELEASES * SECONDS / DEFAULT_S)), capsys)
