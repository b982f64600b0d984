"""Answers like `ticketlock._lab`, from a script: what a round measured is what the test says.

`python fake_lab.py ARGUMENTS` runs the `ticketlock` command on it, so that terminals, pipes and signals can be tested with
rounds of known length and content. Environment: FAKE_ROUND_S (real length of a round), FAKE_INVALID (a lock whose rounds are
all invalid), FAKE_SIGNAL_AT (N:NAME, the signal that the N-th round sends to the process).
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from typing import Any

LOCKS = [
    ("lock", "mutex", False),
    ("lock:throughput", "mutex", False),
    ("lock:strict", "mutex", False),
    ("ticket", "ticket", True),
    ("proportional:N", "ticket", True),
    ("auto", "ticket", True),
    ("mcs", "queue", True),
    ("tas-retest", "tas", False),
    ("tas-retry", "tas", False),
    ("std", "mutex", False),
    ("parking_lot", "mutex", False),
    ("parking_lot-fair", "mutex", True),
    ("pthread", "mutex", False),
    ("pthread-spin", "tas", False),
]

# Acquisitions of a round, by lock.
RATES = {"ticket": 1000, "auto": 1500, "std": 2000, "tas-retry": 3000}


def machine() -> dict[str, Any]:
    return {
        "hypervisor": {"present": True, "vendor": "KVM", "signature": "KVMKVMKVM\0\0\0", "source": "cpuid"},
        "delay_cap": 16,
        "pause_ns": 9.6,
        "spins_per_unit": 1,
        "pause_loop_exits": "unknown",
        "membarrier": "private-expedited",
        "cpus": {"online": 2, "affinity": 2, "quota": None, "usable": 2},
        "build": {"version": "0.0.0", "profile": "release", "target": "fake", "features": ["abi3"], "debug_assertions": False},
    }


def bench_locks() -> list[dict[str, Any]]:
    return [
        {
            "pattern": pattern,
            "family": family,
            "fair": fair,
            "parameter": "units" if pattern.endswith(":N") else None,
            "available": True,
            "about": "from a script",
        }
        for pattern, family, fair in LOCKS
    ]


def bench_parse_lock(lock: str) -> dict[str, Any]:
    for info in bench_locks():
        if lock == info["pattern"] or (info["parameter"] and lock.startswith(info["pattern"][:-1])):
            return info
    raise ValueError(f"unknown lock '{lock}'; choose one of: " + ", ".join(pattern for pattern, _, _ in LOCKS))


def bench_order(seed: int, cells: int, rounds: int) -> list[list[int]]:
    chance = random.Random(seed)
    return [chance.sample(range(cells), cells) for _ in range(rounds)]


def measured(spec: dict[str, Any], acquired: int | None = None) -> dict[str, Any]:
    """A valid round of one second."""
    threads = spec["threads"]
    acquired = RATES.get(spec["lock"], 500) if acquired is None else acquired
    waits = spec["mode"] == "waits"
    contended = spec["preset"] in ("semaphore", "fairness", "oversubscribed")
    return {
        "status": "ok",
        "why": None,
        "seconds": 1.0,
        "acquisitions": [acquired // threads] * threads,
        "cpu_s": [0.5] * threads,
        "process_cpu_s": 0.5 * threads,
        "steal_s": 0.0,
        "context_switches": {"voluntary": 1, "involuntary": 2},
        "wait": {"histogram": [(0, 100, 98), (100, 200, 2)], "max_ns": 150, "sum_ns": 5200, "count": 100} if waits else None,
        "run_length": {"histogram": [(1, 5), (16, 1)], "longest": 20, "mean": 25 / 6, "runs": 6} if contended else None,
        "overtakes": 3 if waits and contended else None,
        "overtakes_examined": 1000 if waits and contended else None,
        "monopoly_ns": 40 if waits and contended else None,
        "windows": [[3] * threads, [1] * threads] if waits and contended else None,
        "pair_ns": {"net": 4.0, "gross": 5.0, "loop": 1.0} if spec["preset"] == "uncontended" else None,
        "cycles": 123456 if spec["preset"] == "fairness" else None,
        "cycles_unit": "tsc",
        "extra": {"polls_per_wait": 30.0, "holder_section_ns": 140.0, "settled_delay": 50.0, "series": [1.0, 2.0]}
        if spec["preset"] == "phantom"
        else {},
    }


_rounds = 0
_in_round = threading.Event()


def bench_round(spec: dict[str, Any]) -> dict[str, Any]:
    global _rounds  # noqa: PLW0603
    _rounds += 1
    _in_round.set()
    try:
        number, _, name = os.environ.get("FAKE_SIGNAL_AT", "").partition(":")
        if number == str(_rounds):
            os.kill(os.getpid(), getattr(signal, name))
        time.sleep(float(os.environ.get("FAKE_ROUND_S", "0")))
    finally:
        _in_round.clear()
    result = measured(spec)
    if spec["lock"] == os.environ.get("FAKE_INVALID"):
        return {**result, "status": "invalid", "why": "the script says so"}
    return result


def delays() -> list[tuple[int, int, int, int, float, int, int]]:
    if not _in_round.is_set():
        return []
    moving = 1.0 + time.monotonic() % 15
    return [(1000 + thread, 7, 1, 40 + thread, moving, _rounds, thread) for thread in range(4)]


def set_delay_watch(callback: object) -> None:
    """Nothing ever waits here."""


if __name__ == "__main__":
    sys.modules["ticketlock._lab"] = sys.modules[__name__]
    from ticketlock.cli import main

    sys.exit(main())
