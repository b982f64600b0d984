"""Results for people: one table a preset, its findings, and a plot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ticketlock.bench import compare
from ticketlock.bench.presets import presets_of
from ticketlock.bench.results import Cell, Results

from . import describe
from .glyphs import Glyphs
from .plot import Series, line_plot
from .table import Column, Heading, Row, render
from .text import Line, Span, duration, millions, number, plain, wrapped

if TYPE_CHECKING:
    from ticketlock.bench.compare import Ratio

# Mark of a cell whose figures come from too few valid rounds.
INVALID = "!"

PLOT_ROWS = 15
PLOT_COLUMNS = 100

Table = Callable[[Results, int, Glyphs], list[Line]]
Form = Callable[[float | None], str]


def lines(results: Results, width: int, glyphs: Glyphs) -> list[Line]:
    """Everything that a finished run prints below the machine's description."""
    tables: dict[str, Table] = {
        "uncontended": _uncontended,
        "semaphore": _semaphore,
        "fairness": _fairness,
        "phantom": _phantom,
        "oversubscribed": _oversubscribed,
    }
    found = [*tables[results.preset](results, width, glyphs), plain("")]
    found += _plot(results, width, glyphs)
    found += [line for sentence in compare.findings(results) for line in wrapped(sentence, width, indent=2)]
    found += _troubles(results.cells, width)
    if results.partial:
        found.append(plain("stopped early: partial results", "bold yellow"))
    found += describe.lines([describe.noise(results.machine["noise"])], width, glyphs)
    return found


def _semaphore(results: Results, width: int, glyphs: Glyphs) -> list[Line]:
    reference = _reference(results)
    columns = (
        Column("lock", align="<"),
        Column("M op/s"),
        Column("low-high", rank=4),
        Column(f"x {reference}", rank=3),
        Column("low-high", rank=6),
        Column("Jain", rank=2),
        Column("longest run"),
        Column("mean run", rank=7),
        Column("wait p99"),
        Column("max"),
        Column("CPU s/M op", rank=5),
    )
    rows: list[Row] = []
    for cells in compare.groups(results.cells).values():
        rows.append(Heading(_load(cells[0])))
        base, leader = _find(cells, reference), compare.best(cells)
        for cell in cells:
            against = None if base is None or base is cell else compare.throughput_ratio(cell, base)
            rate, runs, waits = cell.throughput_per_s, cell.run_length, cell.wait_ns
            rows.append(
                (
                    (_marked(cell, leader, glyphs), _style(cell, leader)),
                    (millions(rate.median), _style(cell, leader)),
                    (_range(rate.low, rate.high, millions), "dim"),
                    *_ratio(against),
                    ("-" if cell.jain is None else f"{cell.jain:.3f}", ""),
                    (number(None if runs is None else runs.longest, 7), ""),
                    (number(None if runs is None else runs.mean), ""),
                    (duration(None if waits is None else waits.p99), ""),
                    (duration(None if waits is None else waits.max), ""),
                    (number(cell.cpu_s_per_million), ""),
                )
            )
    return [*render(columns, rows, width, glyphs), *wrapped(_legend(reference, glyphs), width, "dim")]


def _oversubscribed(results: Results, width: int, glyphs: Glyphs) -> list[Line]:
    python = results.driver == "python"
    columns = (
        Column("lock", align="<"),
        Column("M op/s"),
        Column("low-high", rank=9),
        Column("x peer", rank=2),
        Column("95 %", rank=6),
        Column("CPU s/M op", rank=3),
        Column("wait p50", rank=10),
        Column("p99", rank=7),
        Column("longest: median"),
        Column("p90", rank=5),
        Column("max", rank=1),
        Column("monopoly", rank=1),
        Column("Jain", rank=2),
        Column("in 100ms", rank=4),
        Column("mean run", rank=11),
        Column("longest run", rank=8),
        Column("switches/op", rank=6),
    )
    rows: list[Row] = []
    for cells in compare.groups(results.cells).values():
        rows.append(Heading(f"{_load(cells[0])}, {_placed(cells[0])}"))
        leader = compare.best(cells)
        for cell in cells:
            peer = compare.peer_of(cell, cells)
            against = None if peer is None else compare.throughput_ratio(cell, peer)
            rate, runs, waits, extra = cell.throughput_per_s, cell.run_length, cell.wait_ns, cell.extra
            longest = extra.get("longest_wait_ns") or {}
            rows.append(
                (
                    (_marked(cell, leader, glyphs), _style(cell, leader)),
                    (millions(rate.median), _style(cell, leader)),
                    (_range(rate.low, rate.high, millions), "dim"),
                    ("" if against is None else f"{against.median:.2f}", ""),
                    ("" if against is None else "{:.2f}-{:.2f}".format(*against.limits), "dim"),
                    (number(cell.cpu_s_per_million), ""),
                    (duration(None if waits is None else waits.p50), ""),
                    (duration(None if waits is None else waits.p99), ""),
                    *((duration(longest.get(name)), "") for name in ("median", "p90", "max")),
                    (duration(cell.monopoly_ns.p50 if cell.monopoly_ns else None), ""),
                    ("-" if cell.jain is None else f"{cell.jain:.3f}", ""),
                    ("-" if extra.get("jain_100ms") is None else f"{extra['jain_100ms']:.3f}", ""),
                    (number(None if runs is None else runs.mean), ""),
                    (number(None if runs is None else runs.longest, 7), ""),
                    (number(_switches(cell)), ""),
                )
            )
    peer_name = "threading.Lock (rlock: threading.RLock)" if python else "the peer with the highest median"
    note = (
        f"{glyphs.best} highest throughput, {glyphs.tie} within its noise, {INVALID} invalid; x peer: median of per-round ratios "
        f"to {peer_name}, with its 95 % interval. Longest: the longest wait of a round, over rounds. Monopoly: the longest "
        "time of a round that one thread kept re-acquiring while others waited, median over rounds. Jain: of a whole round, "
        "and of windows of 100 ms."
    )
    return [*render(columns, rows, width, glyphs), *wrapped(note, width, "dim")]


def _switches(cell: Cell) -> float | None:
    """Context switches per acquisition."""
    voluntary, involuntary = (cell.extra.get(f"{kind}_per_acquisition") for kind in ("voluntary", "involuntary"))
    return None if voluntary is None or involuntary is None else float(voluntary + involuntary)


def _uncontended(results: Results, width: int, glyphs: Glyphs) -> list[Line]:
    if results.driver == "python":
        return _python_pairs(results, width, glyphs)
    reference = _reference(results)
    columns = (
        Column("lock", align="<"),
        Column("net ns/pair"),
        Column("low-high", rank=2),
        Column(f"x {reference}", rank=1),
        Column("low-high", rank=4),
        Column("gross ns", rank=3),
        Column("empty loop ns", rank=5),
    )
    known = [cell for cell in results.cells if cell.pair_ns is not None and cell.status != "invalid"]
    leader = min(known, key=lambda cell: cell.pair_ns.net if cell.pair_ns else 0.0, default=None)
    base = _find(results.cells, reference)
    rows: list[Row] = []
    for cell in results.cells:
        pair = cell.pair_ns
        rows.append(
            (
                (_marked(cell, None, glyphs) + (f" {glyphs.best}" if cell is leader else ""), _style(cell, leader)),
                (number(None if pair is None else pair.net), _style(cell, leader)),
                *_over_rounds(cell, base, "pair_net_ns", number),
                (number(None if pair is None else pair.gross), ""),
                (number(None if pair is None else pair.loop), ""),
            )
        )
    note = f"{glyphs.best} cheapest. One lock and unlock, the empty loop subtracted; a second thread is alive and asleep."
    return [*render(columns, rows, width, glyphs), *wrapped(note, width, "dim")]


def _python_pairs(results: Results, width: int, glyphs: Glyphs) -> list[Line]:
    figures = (("acquire(); release() net ns", "pair_net_ns", number), ("with net ns", "with_net_ns", number))
    found = _two_figures(
        results, width, glyphs, figures, "empty loop ns", lambda cell: None if cell.pair_ns is None else cell.pair_ns.loop
    )
    note = "What one use costs while nobody competes, the empty loop subtracted; a second thread is alive and asleep."
    return [*found, *wrapped(note, width, "dim")]


def _phantom(results: Results, width: int, glyphs: Glyphs) -> list[Line]:
    figures = (("polls per wait", "polls_per_wait", number), ("holder's section", "holder_section_ns", duration))
    found = _two_figures(results, width, glyphs, figures, "settled delay", lambda cell: cell.extra.get("settled_delay"))
    line = results.cells[0].params["line"] if results.cells else "?"
    note = f"One thread draws and serves {line} tickets in turn; one real waiter waits through them, polling."
    found += wrapped(note, width, "dim")
    if results.machine["hypervisor"]["present"]:
        cap = results.machine["delay_cap"]
        guest = f"Under this hypervisor auto caps its delay at {cap} units; the row with another cap shows what it would do."
        found += wrapped(guest, width, "dim")
    return found


def _two_figures(
    results: Results,
    width: int,
    glyphs: Glyphs,
    figures: Sequence[tuple[str, str, Form]],
    last: str,
    last_of: Callable[[Cell], float | None],
) -> list[Line]:
    """A table of two figures (title, name, form), each with its range and its ratio to the reference, and of one more number."""
    reference = _reference(results)
    columns = [Column("lock", align="<")]
    for place, (title, _, _) in enumerate(figures):
        columns += [Column(title), Column("low-high", rank=3 + place), Column(f"x {reference}", rank=1 + place)]
    columns.append(Column(last, rank=5))
    base = _find(results.cells, reference)
    rows: list[Row] = []
    for cell in results.cells:
        row: list[Span] = [(_marked(cell, None, glyphs), _style(cell, None))]
        for _, name, form in figures:
            low_high, ratio, _ = _over_rounds(cell, base, name, form)
            row += [(form(cell.extra.get(name)), "bold"), low_high, ratio]
        rows.append((*row, (number(last_of(cell)), "")))
    return render(columns, rows, width, glyphs)


def _fairness(results: Results, width: int, glyphs: Glyphs) -> list[Line]:
    found: list[Line] = []
    for cells in compare.groups(results.cells).values():
        cpus = ", ".join(str(cpu) for cpu in cells[0].params["cpus"])
        heading = f"{_load(cells[0])}, {_placed(cells[0])}" + (f" (CPUs {cpus})" if cpus else "")
        columns = [Column("run length", align="<"), *(Column(_marked(cell, None, glyphs)) for cell in cells)]
        rows: list[Row] = [Heading(heading)]
        for title, values in _fairness_rows(cells):
            rows.append(((title, ""), *((value, "") for value in values)))
        found += [*render(columns, rows, width, glyphs), plain("")]
    return found[:-1]


def _fairness_rows(cells: Sequence[Cell]) -> list[tuple[str, list[str]]]:
    """The published shape: counts of runs of 1 to 15 and of 16 and more, then the totals."""
    counts = [dict(cell.run_length.histogram) if cell.run_length else None for cell in cells]

    def total(found: dict[int, int] | None, low: int, high: float) -> str:
        return "-" if found is None else str(sum(count for length, count in found.items() if low <= length <= high))

    rows = [(f"{length:>4}", [total(found, length, length) for found in counts]) for length in range(1, 16)]
    rows.append((">=16", [total(found, 16, float("inf")) for found in counts]))
    rows.append(("total runs", [number(cell.extra.get("total_runs"), 9) for cell in cells]))
    rows.append(("longest run", [number(cell.run_length.longest if cell.run_length else None, 9) for cell in cells]))
    rows.append(("mean run", [number(cell.run_length.mean if cell.run_length else None) for cell in cells]))
    threads = cells[0].threads
    rows += [(f"thread {thread} did", [_share(cell, thread) for cell in cells]) for thread in range(threads)]
    rows.append(("overtakes/M", [number(cell.overtakes_per_million) for cell in cells]))
    rows.append(("wait p99", [duration(cell.wait_ns.p99 if cell.wait_ns else None) for cell in cells]))
    rows.append(("wait max", [duration(cell.wait_ns.max if cell.wait_ns else None) for cell in cells]))
    rows.append(("M op/s", [millions(cell.throughput_per_s.median) for cell in cells]))
    unit = next((unit for cell in cells if (unit := cell.extra.get("cycles_unit"))), "cycles")
    rows.append((f"clock ({unit})", [number(cell.extra.get("cycles"), 12) for cell in cells]))
    return rows


def _share(cell: Cell, thread: int) -> str:
    done = cell.extra["acquisitions_per_thread"]
    return f"{done[thread] / sum(done):.1%}" if thread < len(done) and sum(done) else "-"


def _plot(results: Results, width: int, glyphs: Glyphs) -> list[Line]:
    """Throughput over threads, where there is more than one number of threads."""
    grouped = compare.groups(results.cells)
    counts = list(dict.fromkeys(threads for threads, _ in grouped))
    if results.preset != "semaphore" or len(counts) < 2:
        return []
    labels = list(dict.fromkeys(cell.label for cell in results.cells))
    medians = {(cell.label, cell.threads): cell.throughput_per_s.median for cell in results.cells if cell.status != "invalid"}
    series = [Series(label, tuple(medians.get((label, threads)) for threads in counts)) for label in labels]
    title = "operations per second over threads"
    size = (min(width, PLOT_COLUMNS), PLOT_ROWS)
    drawn = line_plot(series, [str(threads) for threads in counts], title, size, glyphs)
    return [*drawn, plain("")] if drawn else []


def _reference(results: Results) -> str:
    """What the others are compared with: the preset's reference, or the first lock where that did not run."""
    labels = [cell.label for cell in results.cells]
    wanted = presets_of(results.driver)[results.preset].reference
    return wanted if wanted in labels or not labels else labels[0]


def _find(cells: Sequence[Cell], lock: str) -> Cell | None:
    return next((cell for cell in cells if cell.label == lock and cell.status != "invalid"), None)


def _marked(cell: Cell, leader: Cell | None, glyphs: Glyphs) -> str:
    if cell.status == "invalid":
        return f"{cell.label} {INVALID}"
    if leader is None:
        return cell.label
    if cell is leader:
        return f"{cell.label} {glyphs.best}"
    return f"{cell.label} {glyphs.tie}" if compare.ties(cell, leader) else cell.label


def _style(cell: Cell, leader: Cell | None) -> str:
    if cell.status == "invalid":
        return "dim"
    return "bold green" if cell is leader else ""


def _ratio(found: Ratio | None) -> tuple[Span, Span]:
    if found is None:
        return ("", ""), ("", "")
    return (f"{found.median:.2f}", ""), (f"{found.low:.2f}-{found.high:.2f}", "dim")


def _over_rounds(cell: Cell, base: Cell | None, name: str, form: Form) -> tuple[Span, Span, Span]:
    """The range of a figure over rounds, its ratio to another cell's, and the range of that."""
    runs = cell.runs_of(name)
    known = [value for value in runs if value is not None]
    against = None if base is None or base is cell else compare.ratio(runs, base.runs_of(name))
    return (_range(min(known, default=None), max(known, default=None), form), "dim"), *_ratio(against)


def _range(low: float | None, high: float | None, form: Callable[[float], str]) -> str:
    return "" if low is None or high is None else f"{form(low)}-{form(high)}"


def _legend(reference: str, glyphs: Glyphs) -> str:
    return (
        f"{glyphs.best} highest throughput, {glyphs.tie} within its noise, {INVALID} invalid; "
        f"x {reference}: median of per-round ratios. High throughput with long runs and tails is unfair."
    )


def _load(cell: Cell) -> str:
    threads = compare.counted(cell.threads)
    return f"{threads} (oversubscribed)" if cell.oversubscribed else threads


def _placed(cell: Cell) -> str:
    return {
        "none": "not pinned",
        "siblings": "siblings of one core",
        "cores": "on different cores",
        "compact": "core by core",
        "spread": "spread over the CPUs",
    }[str(cell.params["pin"])]


def _troubles(cells: Sequence[Cell], width: int) -> list[Line]:
    """Cells that are not ok, those with the same fate and load on one line, with the reason of the first."""
    kinds: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.status != "ok":
            kinds.setdefault((cell.status, _load(cell)), []).append(cell)
    return [
        line
        for (status, load), same in kinds.items()
        for line in wrapped(
            f"{status} with {load}: {', '.join(cell.label for cell in same)}: {same[0].why}", width, "yellow", indent=2
        )
    ]
