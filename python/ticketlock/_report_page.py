"""The report as one HTML page that needs nothing else."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from . import _report
from .cli.text import clean, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._report import Found, Hot
    from .monitor.model import Blame, Waits

_STYLE = """\
:root { color-scheme: light dark; --line: #8884; --bar: #c9641a; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.2rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
th:nth-child(2), td:nth-child(2), th:nth-child(3), td:nth-child(3) { text-align: left; overflow-wrap: anywhere; }
td:first-child { min-width: 7rem; background: linear-gradient(var(--bar), var(--bar)) no-repeat left bottom / var(--share) 3px; }
details { margin: .6rem 0; } summary { cursor: pointer; overflow-wrap: anywhere; }
.histogram { display: flex; align-items: flex-end; height: 6rem; gap: 2px; margin: .5rem 0 0; }
.histogram i { flex: 1; max-width: 2rem; background: var(--bar); min-height: 1px; }
.axis { display: flex; gap: 2px; font-size: .7rem; } .axis span { flex: 1; max-width: 2rem; overflow: hidden; }
li { overflow-wrap: anywhere; }
"""


def page(found: Found, title: str, folder: str | None) -> str:
    """The whole page."""
    every = _report.hot(found.snapshot)
    shown = [one for one in every if not one.internal]
    internal = [one for one in every if one.internal]
    heading = _text(title)
    body = [f"<h1>{heading}</h1>", f"<p>{_text(_report.summary(found.snapshot))}</p>"]
    body += _table(shown, folder)
    body += [_details(one, folder) for one in shown]
    if internal:
        body.append(f"<details><summary>locks of the standard library ({len(internal)})</summary>")
        body += [*_table(internal, folder), "</details>"]
    remarks = [note for note in _report.notes(found, every) if not note.startswith("not shown:")]
    body += ["<ul>", *(f"<li>{_text(note)}</li>" for note in remarks), "</ul>"] if remarks else []
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{heading}</title>\n<style>\n{_STYLE}</style>\n" + "\n".join(body) + "\n</html>\n"
    )


def _table(shown: Sequence[Hot], folder: str | None) -> list[str]:
    if not shown:
        return []
    titles = ("waited", "lock", "created at", "acquired", "had to wait", "p50", "p90", "p99", "p99.9", "max", "most waiting")
    found = ["<table>", "<tr>" + "".join(f"<th>{title}</th>" for title in titles) + "</tr>"]
    for one in shown:
        waits = one.waits
        cells = (
            one.name,
            _report.place(one, folder),
            "-" if one.acquisitions is None else f"{one.acquisitions:,}",
            f"{one.contended:,}",
            *(duration(value) for value in (waits.p50, waits.p90, waits.p99, waits.p999, waits.max)),
            f"{one.waiters_max:,}",
        )
        bar = f'<td style="--share: {min(1.0, one.wait_share):.1%}">{one.wait_share:.1%}</td>'
        found.append("<tr>" + bar + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>")
    return [*found, "</table>"]


def _details(one: Hot, folder: str | None) -> str:
    found = [f"<details><summary>{_text(one.name)} {_text(_report.place(one, folder))}</summary>"]
    found += _places("waited for at", one.waiter_sites, folder) + _places("held by", one.holder_sites, folder)
    return "\n".join([*found, *_histogram(one.waits), "</details>"])


def _places(what: str, blames: tuple[Blame, ...], folder: str | None) -> list[str]:
    if not blames:
        return []
    return [f"<p>{what}</p><ul>", *(f"<li>{_text(_report.blamed(blame, folder))}</li>" for blame in blames), "</ul>"]


def _histogram(waits: Waits) -> list[str]:
    if not any(waits.log2):
        return []
    first = next(index for index, count in enumerate(waits.log2) if count)
    counts = waits.log2[first:]
    most = max(counts)
    bars = "".join(
        f'<i style="height: {count / most:.1%}" title="{count:,} waits below {duration(2.0 ** (first + index + 1))}"></i>'
        for index, count in enumerate(counts)
    )
    axis = "".join(f"<span>{duration(2.0 ** (first + index + 1))}</span>" for index in range(len(counts)))
    return ["<p>lengths of waits</p>", f'<div class="histogram">{bars}</div>', f'<div class="axis">{axis}</div>']


def _text(text: str) -> str:
    return html.escape(clean(text))
