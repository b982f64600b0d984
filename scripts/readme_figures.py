"""Measure the figures of README.md on this machine and write them there, with command, machine and date.

.venv/bin/python scripts/readme_figures.py            measure, keep the documents under benches/results, rewrite README.md
.venv/bin/python scripts/readme_figures.py --render   only rewrite README.md from the kept documents
.venv/bin/python scripts/readme_figures.py --check    fail if README.md is not what the kept documents say
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import pathlib
import statistics
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches" / "results"
README = ROOT / "README.md"
BEGIN = "<!-- figures: begin (scripts/readme_figures.py) -->"
END = "<!-- figures: end -->"

COMMANDS = {
    "uncontended": "bench uncontended --locks lock,ticket,auto,mcs,std,parking_lot,pthread --rounds 31",
    "python-pair": "bench uncontended --driver python --locks threading.Lock,lock,threading.RLock,rlock",
    "oversubscribed": "bench oversubscribed --threads 8,32 --rounds 7 "
    "--locks lock,lock:throughput,lock:strict,std,parking_lot,pthread",
    "two-short": "bench oversubscribed --threads 2 --hold 80 --think 800 --seconds 0.2 --rounds 31 --aa lock "
    "--locks lock,std,parking_lot,pthread",
    "two-long": "bench oversubscribed --threads 2 --hold 800 --think 800 --seconds 0.2 --rounds 31 --aa lock "
    "--locks lock,std,parking_lot,pthread",
    "python": "bench oversubscribed --driver python --threads 2,8,32 --locks threading.Lock,lock,lock:throughput,lock:strict",
    "semaphore": "bench semaphore --threads 1,2 --locks ticket,auto,std,parking_lot,pthread --rounds 21",
    "fairness": "bench fairness --locks ticket,auto,tas-retest,tas-retry,std,parking_lot --rounds 7",
    "phantom": "bench phantom --cap 16000 --locks ticket,proportional:50,auto --rounds 15",
}


def measure() -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name, command in COMMANDS.items():
        words = [
            sys.executable,
            "-m",
            "ticketlock",
            *command.split(),
            "--seed",
            "1",
            "--json",
            "-o",
            f"{name}.json",
        ]
        print("+ ticketlock", *words[3:], file=sys.stderr)
        # From that folder, so that the command kept in the document names no path of this machine.
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=RESULTS)
    (RESULTS / "date.txt").write_text(dt.datetime.now(dt.UTC).date().isoformat() + "\n")


def document(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())  # type: ignore[no-any-return]


def ratio(cell: dict[str, Any], reference: dict[str, Any], runs: str) -> float | None:
    """The median of per-round ratios, as everywhere in this project."""
    pairs = zip(of(cell, runs), of(reference, runs), strict=True)
    ratios = [a / b for a, b in pairs if a is not None and b]
    return statistics.median(ratios) if ratios else None


def of(cell: dict[str, Any], runs: str) -> list[float | None]:
    return cell["throughput_per_s"]["runs"] if runs == "throughput_per_s" else cell["extra"]["runs"][runs]  # type: ignore[no-any-return]


def number(value: float | None, form: str = ".2f") -> str:
    return "-" if value is None else format(value, form)


def table(head: str, rows: list[list[str]]) -> list[str]:
    columns = head.split("|")
    rule = "|".join(["---"] + ["---:"] * (len(columns) - 1))
    return [f"|{head}|", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows), ""]


def by_lock(cells: list[dict[str, Any]], threads: int | None = None) -> dict[str, dict[str, Any]]:
    return {cell["lock"]: cell for cell in cells if threads is None or cell["threads"] == threads}


def longest(cell: dict[str, Any], which: str) -> str:
    found = cell["extra"].get("longest_wait_ns")
    return number(found and found[which] / 1e6, ".1f")


def over(cell: dict[str, Any], peer: dict[str, Any]) -> str:
    return number(ratio(cell, peer, "throughput_per_s"))


def contended() -> list[str]:
    """The default lock, natively and from Python."""
    out = ["More threads than CPUs (2), hold 400 ns, think 80 ns, native; throughput against `std`:", ""]
    rows = []
    for threads in (8, 32):
        cells = by_lock(document("oversubscribed")["cells"], threads)
        for lock, cell in cells.items():
            monopoly = cell["monopoly_ns"] and cell["monopoly_ns"]["p50"] / 1e6
            rows.append(
                [
                    f"`{lock}`, {threads} threads",
                    over(cell, cells["std"]),
                    number(cell["cpu_s_per_million"]),
                    longest(cell, "median"),
                    longest(cell, "max"),
                    number(monopoly, ".1f"),
                    number(cell["jain"]),
                ]
            )
    out += table(" lock | throughput | CPU s per million | longest wait, ms: median | max | monopoly, ms | Jain ", rows)
    out += ["Two threads with a CPU each, throughput against `std` (`lock` twice, to show what the run cannot tell apart):", ""]
    short, long = (list(document(name)["cells"]) for name in ("two-short", "two-long"))
    std_short, std_long = (next(cell for cell in cells if cell["lock"] == "std") for cells in (short, long))
    out += table(
        " lock | hold 80 ns, think 800 ns | hold 800 ns, think 800 ns ",
        [[f"`{a['lock']}`", over(a, std_short), over(b, std_long)] for a, b in zip(short, long, strict=True)],
    )
    out += [
        "Python, `acquire()` and `release()`, and `with`, uncontended, empty loop subtracted, against the standard locks:",
        "",
    ]
    pairs = by_lock(document("python-pair")["cells"])
    standard = {"lock": "threading.Lock", "rlock": "threading.RLock"}
    out += table(
        " lock | ns a pair | ns a `with` | pair against standard | `with` against standard ",
        [
            [
                f"`{lock}`",
                number(cell["pair_ns"]["net"], ".0f"),
                number(cell["extra"]["with_net_ns"], ".0f"),
                number(ratio(cell, pairs[standard.get(lock, lock)], "pair_net_ns")),
                number(ratio(cell, pairs[standard.get(lock, lock)], "with_net_ns")),
            ]
            for lock, cell in pairs.items()
        ],
    )
    out += ["Python threads on one counter, 100 ns of work outside; throughput against `threading.Lock`:", ""]
    rows = []
    for threads in (2, 8, 32):
        cells = by_lock(document("python")["cells"], threads)
        for lock, cell in cells.items():
            rows.append(
                [
                    f"`{lock}`, {threads} threads",
                    over(cell, cells["threading.Lock"]),
                    longest(cell, "median"),
                    number(cell["cpu_s_per_million"]),
                ]
            )
    out += table(" lock | throughput | longest wait, ms: median | CPU s per million ", rows)
    return out


def figures() -> list[str]:
    out: list[str] = []
    cells = by_lock(document("uncontended")["cells"])
    pairs = {lock: cell["pair_ns"]["net"] for lock, cell in cells.items() if cell["pair_ns"]}
    out += ["One uncontended lock and unlock pair, native, empty loop subtracted, a second thread alive:", ""]
    out += table(
        " lock | ns a pair | against `std` ",
        [[f"`{lock}`", number(ns, ".1f"), number(ratio(cells[lock], cells["std"], "pair_net_ns"))] for lock, ns in pairs.items()],
    )
    out += contended()
    out += ["The semaphore test of the kernel series, threads that have a CPU each (throughput against `ticket`):", ""]
    cells_1, cells_2 = (by_lock(document("semaphore")["cells"], threads) for threads in (1, 2))
    out += table(
        " lock | 1 thread | 2 threads | longest run at 2 | p99 wait at 2, us ",
        [
            [
                f"`{lock}`",
                number(ratio(cells_1[lock], cells_1["ticket"], "throughput_per_s")),
                number(ratio(cells_2[lock], cells_2["ticket"], "throughput_per_s")),
                number(cells_2[lock]["run_length"] and cells_2[lock]["run_length"]["longest"], "d"),
                number(cells_2[lock]["wait_ns"] and cells_2[lock]["wait_ns"]["p99"] / 1e3, ".1f"),
            ]
            for lock in cells_1
        ],
    )
    out += ["Two threads on one counter (the fairness test of 2005), runs of acquisitions by one thread:", ""]
    out += table(
        " lock | mean run | longest run | overtakes per million ",
        [
            [
                f"`{lock}`",
                number(cell["run_length"] and cell["run_length"]["mean"], ".1f"),
                number(cell["run_length"] and cell["run_length"]["longest"], "d"),
                number(cell["overtakes_per_million"], ".0f"),
            ]
            for lock, cell in by_lock(document("fairness")["cells"]).items()
        ],
    )
    out += ["Served in order, a thread repeats only while the other one is descheduled: hence the longest runs of `ticket`.", ""]
    out += ["A waiter behind 23 others, native delay cap (what polling costs the holder):", ""]
    phantom = by_lock(document("phantom")["cells"])
    out += table(
        " lock | polls per wait | holder's section against `ticket` | settled delay ",
        [
            [
                f"`{lock}`",
                number(cell["extra"].get("polls_per_wait"), ".0f"),
                number(ratio(cell, phantom["ticket"], "holder_section_ns")),
                number(cell["extra"].get("settled_delay"), ".0f"),
            ]
            for lock, cell in phantom.items()
        ],
    )
    machine = document("uncontended")["machine"]
    hypervisor = machine["hypervisor"]
    guest = f"{hypervisor['vendor']} guest" if hypervisor["present"] else "no hypervisor"
    date = (RESULTS / "date.txt").read_text().strip()
    cpu = machine.get("system", {}).get("cpu_model") or "unknown CPU"
    usable, pause, python = machine["cpus"]["usable"], machine["pause_ns"], machine["python"]["version"]
    out += [
        f"Measured {date}: {usable} usable CPUs, {cpu}, {guest}, one pause {pause:.1f} ns, Python {python}. Commands:",
        "",
        "```console",
        *(f"$ ticketlock {command} --seed 1" for command in COMMANDS.values()),
        "```",
    ]
    return out


def rendered(text: str) -> str:
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return "\n".join([before + BEGIN, "", *figures(), END]) + after


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--render", action="store_true", help="rewrite README.md from the kept documents")
    parser.add_argument("--check", action="store_true", help="fail if README.md differs from the kept documents")
    options = parser.parse_args()
    if not (options.render or options.check):
        measure()
    text = README.read_text()
    wanted = rendered(text)
    if options.check:
        if text != wanted:
            print("README.md differs from benches/results: run scripts/readme_figures.py --render", file=sys.stderr)
            return 1
        return 0
    README.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
