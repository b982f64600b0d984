"""What it costs that locks report: `python benches/telemetry.py`, for people. pytest does not collect it.

Everything is compared side by side: each program runs in a process of its own, and they take turns, a batch each, so that a
busy minute of the machine meets all of them. Read the ratios; single times depend on the machine and its load.

    python benches/telemetry.py                      all parts, some two minutes
    python benches/telemetry.py pair create          only these parts
    python benches/telemetry.py --profiler PYTHON    an interpreter with ddtrace installed, to compare its lock profiler
    python benches/telemetry.py --json FILE          the figures as JSON, too (- for standard output)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
PARTS = ("pair", "instructions", "create", "contended")
# Of one batch: long against the clock, short against the changes of a machine.
BATCH_S = 0.04

OFF = {"TICKETLOCK_TELEMETRY": "0"}
ON: dict[str, str] = {}
SITES = {"TICKETLOCK_SITES": "1"}
# Its default share of acquisitions, 1 %. Nobody listens for its reports.
DDTRACE = {"DD_PROFILING_ENABLED": "1", "DD_PROFILING_LOCK_ENABLED": "1", "DD_PROFILING_UPLOAD_INTERVAL": "100000"}


# --- the programs that are measured ----------------------------------------------------------------------------------------


def make_of(name: str) -> Any:
    """What makes a lock."""
    if name == "threading.Lock":
        return threading.Lock
    import ticketlock

    return getattr(ticketlock, name)


def pairs(lock: Any, count: int) -> int:
    """Nanoseconds of so many `with lock`, loop and all."""
    turns = range(count)
    start = time.perf_counter_ns()
    for _ in turns:
        with lock:
            pass
    return time.perf_counter_ns() - start


def creations(make: Any, count: int) -> int:
    """Nanoseconds of so many locks, each of which ends at once."""
    turns = range(count)
    start = time.perf_counter_ns()
    for _ in turns:
        make()
    return time.perf_counter_ns() - start


def answer_with(batch: Any) -> None:
    """Measure a batch whenever asked to, until the asker is gone."""
    count = 1_000
    while (took := batch(count)) < BATCH_S * 1e9:
        count = max(2 * count, int(count * BATCH_S * 1e9 / max(took, 1)))
    print("ready", flush=True)
    for _ in sys.stdin:
        print(batch(count) / count, flush=True)
    # Not through exit handlers: a profiler would try to send what it has.
    os._exit(0)


def contended(threads: int) -> None:
    """Threads that share a lock with a short hold, counted in windows that are asked for."""
    import ticketlock

    lock = ticketlock.Lock(name="hot")
    taken = [0] * threads

    def work(number: int) -> None:
        while True:
            with lock:
                for _ in range(50):
                    pass
            taken[number] += 1

    for number in range(threads):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        before, start = sum(taken), time.perf_counter()
        time.sleep(float(line))
        print((sum(taken) - before) / (time.perf_counter() - start), flush=True)
    os._exit(0)


def worker(what: str, name: str) -> None:
    if what == "contended":
        contended(int(name))
    elif what == "loop":  # for callgrind: exactly so many
        kind, count = name.split(":")
        turns = range(int(count))
        if kind == "empty":
            for _ in turns:
                pass
        else:
            lock = make_of(kind)()
            for _ in turns:
                with lock:
                    pass
    else:
        if "DD_PROFILING_ENABLED" in os.environ:
            import ddtrace.profiling.auto  # noqa: F401
        make = make_of(name)
        if what == "create":
            answer_with(lambda count: creations(make, count))
        else:
            lock = make()
            answer_with(lambda count: pairs(lock, count))


# --- side by side ----------------------------------------------------------------------------------------------------------


def environment(changes: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TICKETLOCK_", "DD_"))}
    return {**kept, "PYTHONHASHSEED": "0", **changes}


class Program:
    """One of those that take turns."""

    def __init__(self, label: str, what: str, name: str, changes: dict[str, str], python: str = sys.executable) -> None:
        self.label = label
        self.figures: list[float] = []
        self._process = subprocess.Popen(
            [python, str(HERE), "--worker", what, name],
            env=environment(changes),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.pid = self._process.pid
        if self._said() != "ready":
            self.close()
            raise RuntimeError(f"{label}: the program did not start")

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def measure(self, question: str = "go") -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        figure = float(self._said())
        self.figures.append(figure)
        return figure

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def side_by_side(programs: list[Program], rounds: int) -> list[dict[str, Any]]:
    """Rows with each program's median, and the median of its ratios to the first one, round by round."""
    try:
        for number in range(rounds):
            # Each begins a round in turn.
            at = number % len(programs)
            for program in programs[at:] + programs[:at]:
                program.measure()
    finally:
        for program in programs:
            program.close()
    first = programs[0].figures
    return [
        {
            "what": program.label,
            "ns": statistics.median(program.figures),
            "ratio": statistics.median(own / base for own, base in zip(program.figures, first, strict=True)),
            "difference_ns": statistics.median(own - base for own, base in zip(program.figures, first, strict=True)),
        }
        for program in programs
    ]


# --- the parts -------------------------------------------------------------------------------------------------------------


def part_pair(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A `with lock` that nobody waits for."""
    programs = []
    for name in ("Lock", "RLock", "TicketLock"):
        programs.append(Program(f"{name}, telemetry off", "pair", name, OFF))
        programs.append(Program(f"{name}, on", "pair", name, ON))
        programs.append(Program(f"{name}, on with sites", "pair", name, SITES))
    programs.append(Program("threading.Lock", "pair", "threading.Lock", OFF))
    if options.profiler:
        python = options.profiler
        programs.append(Program("threading.Lock, its interpreter", "pair", "threading.Lock", {}, python))
        programs.append(Program("threading.Lock, ddtrace at 1 %", "pair", "threading.Lock", DDTRACE, python))
    rows = side_by_side(programs, options.rounds)
    # Against the same lock with telemetry off.
    by_label = {program.label: program.figures for program in programs}
    for row in rows:
        base = by_label.get(row["what"].split(",")[0] + ", telemetry off", by_label["Lock, telemetry off"])
        own = by_label[row["what"]]
        row["ratio"] = statistics.median(a / b for a, b in zip(own, base, strict=True))
        row["difference_ns"] = statistics.median(a - b for a, b in zip(own, base, strict=True))
    return rows


def instructions(name: str, count: int, changes: dict[str, str], folder: str) -> int:
    done = subprocess.run(
        [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={folder}/out",
            sys.executable,
            str(HERE),
            "--worker",
            "loop",
            f"{name}:{count}",
        ],
        env=environment(changes),
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None:
        raise RuntimeError(done.stderr)
    return int(found[1])


def part_instructions(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Instructions of a `with lock` pair, as valgrind counts them: the same whatever else the machine does."""
    if shutil.which("valgrind") is None:
        return [{"what": "valgrind is not installed"}]
    short, long = 20_000, 120_000
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:

        def each(name: str, changes: dict[str, str]) -> float:
            counts = [instructions(name, count, changes, folder) for count in (short, long)]
            return (counts[1] - counts[0]) / (long - short)

        loop = each("empty", OFF)
        for name in ("threading.Lock", "Lock", "RLock", "TicketLock"):
            base = None
            settings = {"": OFF} if name == "threading.Lock" else {", telemetry off": OFF, ", on": ON, ", on with sites": SITES}
            for label, changes in settings.items():
                count = each(name, changes) - loop
                base = count if base is None else base
                rows.append({"what": name + label, "instructions": count, "difference": count - base})
        rows.append({"what": "(the loop itself, not in the above)", "instructions": loop})
    return rows


def part_create(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Making a lock, and its end."""
    programs = [Program("threading.Lock", "create", "threading.Lock", OFF)]
    for name in ("Lock", "RLock", "TicketLock"):
        programs.append(Program(f"{name}, telemetry off", "create", name, OFF))
        programs.append(Program(f"{name}, on", "create", name, ON))
        programs.append(Program(f"{name}, on with sites", "create", name, SITES))
    return side_by_side(programs, options.rounds)


def part_contended(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Acquisitions a second of a lock that four threads want, watched twice a second and not, by turns."""
    window_s, threads = 1.0, "4"
    programs = {
        "telemetry off": Program("telemetry off", "contended", threads, OFF),
        "on": Program("on", "contended", threads, ON),
    }
    figures: dict[str, list[float]] = {"telemetry off": [], "on": [], "on, watched by top --jsonl": []}
    try:
        for number in range(max(options.rounds // 3, 3)):
            order = list(figures)
            at = number % len(order)
            for label in order[at:] + order[:at]:
                chosen = programs["telemetry off" if label == "telemetry off" else "on"]
                with only_running(chosen, [*programs.values()]), watched(chosen.pid if "watched" in label else None):
                    figures[label].append(chosen.measure(str(window_s)))
    finally:
        for program in programs.values():
            os.kill(program.pid, signal.SIGCONT)
            program.close()
    base = figures["on"]
    return [
        {
            "what": label,
            "per_s": statistics.median(own),
            "ratio": statistics.median(a / b for a, b in zip(own, base, strict=True)),
        }
        for label, own in figures.items()
    ]


@contextlib.contextmanager
def only_running(chosen: Program, programs: list[Program]) -> Any:
    """While the others are stopped."""
    for program in programs:
        os.kill(program.pid, signal.SIGCONT if program is chosen else signal.SIGSTOP)
    yield


@contextlib.contextmanager
def watched(pid: int | None) -> Any:
    """While a viewer reads that process twice a second."""
    if pid is None:
        yield
        return
    viewer = subprocess.Popen(
        [sys.executable, "-m", "ticketlock", "top", str(pid), "--jsonl", "--interval", "0.5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert viewer.stdout is not None
    # It is at work once it has printed.
    if json.loads(viewer.stdout.readline())["process"]["pid"] != pid:
        raise RuntimeError("the viewer reads another process")
    reads = threading.Thread(target=viewer.stdout.read, daemon=True)
    reads.start()
    try:
        yield
    finally:
        viewer.terminate()
        viewer.wait(20)
        reads.join(20)


# --- output ----------------------------------------------------------------------------------------------------------------


def shown(value: Any, name: str) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if name == "per_s" else f"{value:,.3f}" if name == "ratio" else f"{value:,.1f}"


def table(title: str, rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([shown(row.get(name, ""), name) for name in names] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))])
        for line in cells
    ]
    return "\n".join([title, *(f"  {line.rstrip()}" for line in lines), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=31, help="turns of each program (default: 31)")
    parser.add_argument("--profiler", metavar="PYTHON", help="an interpreter that has ddtrace installed")
    parser.add_argument("--json", metavar="FILE", help="also write the figures as JSON (-: to standard output, instead)")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown or options.rounds < 1:
        parser.error(f"no such part: {unknown[0]}; there are {', '.join(PARTS)}" if unknown else "--rounds must be 1 or more")
    document: dict[str, Any] = {
        "python": sys.version,
        "cpus": len(os.sched_getaffinity(0)),
        "rounds": options.rounds,
        "parts": {},
    }
    for part in options.parts or PARTS:
        measure = globals()[f"part_{part}"]
        rows = measure(options)
        document["parts"][part] = rows
        if options.json != "-":
            print(table(f"{part}: {measure.__doc__}", rows), flush=True)
    if options.json == "-":
        print(json.dumps(document, indent=1))
    elif options.json:
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
