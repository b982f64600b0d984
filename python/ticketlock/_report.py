"""The report at the end of `ticketlock run` and of the pytest plugin: a table, JSON or a page, without rich.

The hottest locks first: by the share of the time during which somebody waited for them.
"""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import _order, _patch, _snapshot
from .cli.glyphs import UNICODE, for_encoding
from .cli.output import PIPE_WIDTH, OutputFile
from .cli.table import Column, render
from .cli.text import Line, clean, duration, plain, to_text, wrapped
from .monitor import model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._order import Inversion, Taken
    from .cli.glyphs import Glyphs
    from .monitor.model import Blame, LockRow, Snapshot, Waits

# Locks in the table, of those that somebody waited for.
SHOWN = 12
# Of these, how many get lines that say where they were waited for and held, and how many places each.
EXPLAINED = 5
PLACES = 3
# Share of the time from which a lock that a library made for itself is shown, too.
LOUD_INTERNAL = 0.01

LEGEND = "waited: all waits for it together, by the time that went by; 100% is one thread that always waits"


@dataclass(frozen=True, slots=True)
class Hot:
    """One lock that was waited for, or all locks that one line created."""

    name: str
    site: str | None
    locks: int
    internal: bool
    acquisitions: int | None
    contended: int
    wait_share: float
    waits: Waits
    waiters_max: int
    waiter_sites: tuple[Blame, ...]
    holder_sites: tuple[Blame, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to report: a snapshot of this process, and how many standard locks nobody saw."""

    snapshot: Snapshot
    unseen: int
    inversions: tuple[Inversion, ...] = ()


def take() -> Found:
    """What there is now. Raises RuntimeError, with the reason, if the locks report nothing."""
    return Found(_snapshot.snapshot(), _patch.unseen(), tuple(_order.order_inversions()))


def deliver(options: dict[str, Any]) -> str:
    """Write the report and the exports where the options of `run` want them; returns what is left for stderr."""
    found = take()
    remarks = _export(options["export"], found.snapshot)
    form, path = options["report"], options["report_file"]
    if form == "none":
        return remarks
    title = "ticketlock run: " + options["title"]
    if path:
        OutputFile(path).write(text(form, found, title, options["folder"]))
        return remarks
    encoding = getattr(sys.__stderr__, "encoding", None)
    return text(form, found, title, options["folder"], _width(), for_encoding(encoding, False)) + remarks


def _export(wanted: Sequence[tuple[str, str]], snapshot: Snapshot) -> str:
    """Write the exports; returns what the user must be told about them."""
    remarks = ""
    for kind, path in wanted:
        from .monitor.export import FORMATS

        form = FORMATS[kind]
        stream: Any = io.BytesIO() if form.binary else io.StringIO()
        remark = form.write(snapshot, _snapshot.events() if form.needs == "events" else (), stream)
        OutputFile(path).write(stream.getvalue())
        if remark:
            remarks += f"ticketlock run: {path}: {remark}\n"
    return remarks


def text(form: str, found: Found, title: str, folder: str | None, width: int = PIPE_WIDTH, glyphs: Glyphs = UNICODE) -> str:
    """The report as a "table", "json" or "html"."""
    if form == "json":
        from .monitor.document import to_json

        document = {**to_json(found.snapshot), "unseen": found.unseen, "inversions": [asdict(one) for one in found.inversions]}
        return json.dumps(document, allow_nan=False, indent=1) + "\n"
    if form == "html":
        from . import _report_page

        return _report_page.page(found, title, folder)
    return to_text(lines(found, title, folder, width, glyphs), False)


def _width() -> int:
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return PIPE_WIDTH


def hot(snapshot: Snapshot) -> list[Hot]:
    """What was waited for, the most first. Locks that one line created stand together."""
    several = {site.site: site for site in snapshot.sites if site.created > 1}
    of_site: dict[str, list[LockRow]] = {}
    found = []
    for row in snapshot.locks:
        if row.site in several:
            of_site.setdefault(row.site, []).append(row)
        elif row.contended or row.wait_share:
            found.append(_single(row))
    for place, site in several.items():
        rows = of_site.get(place, [])
        if not site.contended and not site.wait_share:
            continue
        kinds = {row.kind for row in rows if row.id is not None} or {row.kind for row in rows}
        names = {row.name for row in rows}
        name = names.pop() if len(names) == 1 else None
        found.append(
            Hot(
                name=name or f"<{kinds.pop() if len(kinds) == 1 else 'locks'}>",
                site=place,
                locks=site.created,
                internal=site.internal,
                # A line that creates locks which do not count their acquisitions says nothing about them.
                acquisitions=None if any(row.acquisitions is None for row in rows) else site.acquisitions,
                contended=site.contended,
                wait_share=site.wait_share,
                waits=site.waits,
                waiters_max=max((row.waiters_max for row in rows), default=0),
                waiter_sites=_together(rows, "waiter_sites"),
                holder_sites=_together(rows, "holder_sites"),
            )
        )
    return sorted(found, key=lambda one: (-one.wait_share, -one.contended))


def _single(row: LockRow) -> Hot:
    return Hot(
        name=row.name or f"<{row.kind}>",
        site=row.site,
        locks=row.retired or 1,
        internal=row.internal,
        acquisitions=row.acquisitions,
        contended=row.contended,
        wait_share=row.wait_share,
        waits=row.waits,
        waiters_max=row.waiters_max,
        waiter_sites=row.waiter_sites,
        holder_sites=row.holder_sites,
    )


def _together(rows: Sequence[LockRow], role: Literal["waiter_sites", "holder_sites"]) -> tuple[Blame, ...]:
    """Blame of several locks as one: each lock's counts by how much it was waited for."""
    weights: dict[tuple[str, str], tuple[float, int]] = {}
    for row in rows:
        blames: tuple[Blame, ...] = getattr(row, role)
        for blame in blames:
            weight, samples = weights.get((blame.site, blame.function), (0.0, 0))
            weights[blame.site, blame.function] = (weight + blame.share * max(row.waits.sum, 1), samples + blame.samples)
    total = sum(weight for weight, _ in weights.values())
    ranked = sorted(weights.items(), key=lambda item: -item[1][0])
    return tuple(
        model.Blame(site=site, function=function, samples=samples, share=weight / total if total else 0.0)
        for (site, function), (weight, samples) in ranked
    )


def lines(found: Found, title: str, folder: str | None, width: int, glyphs: Glyphs) -> list[Line]:
    """The report as text. Paths inside `folder` are shown relative to it."""
    every = hot(found.snapshot)
    shown = [one for one in every if not _is_hidden(one)]
    report = wrapped(f"{clean(title)}: {summary(found.snapshot)}", width, "bold")
    if shown:
        report += _table(shown[:SHOWN], width, glyphs, folder)
        report += wrapped(LEGEND, width, "dim")
        if len(shown) > SHOWN:
            report += wrapped(f"and {len(shown) - SHOWN} more locks or lines that were waited for less", width)
        for one in shown[:EXPLAINED]:
            report += _explained(one, width, folder)
    return report + [line for note in notes(found, every) for line in wrapped(note, width, indent=2)]


def _is_hidden(one: Hot) -> bool:
    """Locks that a library made for itself are of interest once they cost something: a logging handler's, a queue's."""
    return one.internal and one.wait_share < LOUD_INTERNAL


def summary(snapshot: Snapshot) -> str:
    """One line about all locks."""
    totals = snapshot.totals
    waited = "nobody waited for a lock"
    if totals.contended:
        share = f" ({totals.contended / totals.acquisitions:.2%})" if totals.acquisitions else ""
        waited = f"{totals.contended:,} had to wait{share}, {totals.wait_share:.2f} threads on average"
    return f"{duration(snapshot.interval_ns)}, {totals.locks:,} locks, {totals.acquisitions:,} acquisitions; {waited}"


def notes(found: Found, every: Sequence[Hot]) -> list[str]:
    """What the reader of the table has to know besides."""
    snapshot = found.snapshot
    remarks = []
    hidden = [one for one in every if _is_hidden(one)]
    if hidden:
        share = sum(one.wait_share for one in hidden)
        remarks.append(
            f"not shown: locks that the standard library and ticketlock made for themselves, waited for {share:.1%} of the time"
        )
    remarks += [
        f"TAKEN IN BOTH ORDERS, which can deadlock: {_pair(inversion.pair)}; elsewhere {_pair(inversion.back)}"
        for inversion in found.inversions[:EXPLAINED]
    ]
    if len(found.inversions) > EXPLAINED:
        remarks.append(f"and {len(found.inversions) - EXPLAINED} more pairs of locks in both orders")
    names = {thread.ident: thread.name for thread in snapshot.threads}
    for cycle in snapshot.cycles:
        round_trip = ", ".join(clean(names.get(ident) or f"thread {ident}") for ident in cycle.threads)
        remarks.append(f"DEADLOCK: these threads wait for each other: {round_trip}")
    for what, number in snapshot.dropped.items():
        if number:
            remarks.append(f"incomplete: {number:,} {what} found no room in the tables")
    if _patch.successor():
        remarks.append(f"unseen: all locks made after {_patch.successor()} took ours away to put in its own")
    if found.unseen:
        remarks.append(f"unseen: {found.unseen} standard locks that were there before the patch")
    return remarks


def _pair(taken: Taken) -> str:
    def lock(number: int, name: str | None) -> str:
        return clean(name) if name else f"lock {number}"

    first, then = lock(taken.first, taken.first_name), lock(taken.then, taken.then_name)
    return f"{first} ({clean(taken.first_site or '-')}) and then {then} ({clean(taken.then_site or '-')})"


def _table(shown: Sequence[Hot], width: int, glyphs: Glyphs, folder: str | None) -> list[Line]:
    columns = (
        Column("waited"),
        Column("lock", align="<"),
        Column("created at", align="<"),
        Column("acquired", rank=4),
        Column("had to wait", rank=2),
        Column("p50", rank=5),
        Column("p90", rank=6),
        Column("p99", rank=1),
        Column("max", rank=3),
        Column("most waiting", rank=7),
    )
    rows = []
    for one in shown:
        cells = (
            f"{one.wait_share:.1%}",
            clean(one.name),
            place(one, folder),
            "-" if one.acquisitions is None else f"{one.acquisitions:,}",
            f"{one.contended / one.acquisitions:.1%}" if one.acquisitions else f"{one.contended:,}",
            duration(one.waits.p50),
            duration(one.waits.p90),
            duration(one.waits.p99),
            duration(one.waits.max),
            f"{one.waiters_max:,}",
        )
        rows.append(tuple((cell, "") for cell in cells))
    return render(columns, rows, width, glyphs)


def _explained(one: Hot, width: int, folder: str | None) -> list[Line]:
    found = []
    for what, blames in (("waited for at", one.waiter_sites), ("held by", one.holder_sites)):
        if blames:
            places = ", ".join(blamed(blame, folder) for blame in blames[:PLACES])
            found += wrapped(f"  {what} {places}", width, indent=4)
    return [plain(f"{clean(one.name)} {place(one, folder)}"), *found] if found else []


def place(one: Hot, folder: str | None) -> str:
    """Where a lock was created."""
    if one.site is None:
        return "-"
    by = " for a library" if one.internal and "(library)" not in one.site else ""
    return short(one.site, folder) + (f" (x{one.locks:,})" if one.locks > 1 else "") + by


def blamed(blame: Blame, folder: str | None) -> str:
    """A line that waits are charged to."""
    return f"{short(blame.site, folder)} {clean(blame.function)} {blame.share:.0%}"


def short(site: str, folder: str | None) -> str:
    """A path, relative to the folder that the program was started in if it lies there."""
    if folder and site.startswith(os.path.join(folder, "")):
        site = site[len(os.path.join(folder, "")) :]
    return clean(site)
