"""The machine and the run in words: what stands around every table, and the whole of `ticketlock info`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ticketlock.bench.presets import SLEEP_FROM_NS

from .text import Line, clean, duration, number, wrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ticketlock._observe import Machine
    from ticketlock.bench.plan import Plan

    from .glyphs import Glyphs

# Width of the labels on the left.
LABEL = 12

# A label and its parts; empty parts are left out.
Entry = tuple[str, Sequence[str]]


def machine(about: Machine) -> list[Entry]:
    """Where figures come from, in four entries."""
    cpus, python, build = about.cpus, about.python, about.build
    quota = "none" if cpus.quota is None else f"{cpus.quota:g}"
    return [
        ("machine", [_hypervisor(about), _platform(about)]),
        (
            "backoff",
            [
                f"delay cap {about.delay_cap} units",
                f"pause {number(about.pause_ns)} ns",
                f"{about.spins_per_unit} per unit",
                f"membarrier {about.membarrier}",
            ],
        ),
        ("cpus", [f"{cpus.usable} usable", f"{cpus.online} online", f"affinity {cpus.affinity}", f"quota {quota}"]),
        (
            "software",
            [
                f"{python.implementation} {python.version} ({_gil(about)})",
                f"ticketlock {build.get('version', '?')} {build.get('profile', '?')}",
                str(build.get("target", "?")),
            ],
        ),
    ]


def info(about: Machine) -> list[Entry]:
    """All of `ticketlock info`."""
    found = about.hypervisor
    signature = f"signature {found.signature.rstrip(chr(0))}" if found.signature else ""
    entries = machine(about)
    entries.insert(1, ("hypervisor", [f"from {found.source}", signature, f"pause-loop exits {about.pause_loop_exits}"]))
    shown = ("version", "profile", "target")
    entries.append(("build", [f"{name} {_plain(value)}" for name, value in about.build.items() if name not in shown]))
    return entries


def plan(ready: Plan) -> list[Entry]:
    """What is about to run, and what to keep in mind."""
    first = ready.cells[0]
    length = f"of {duration(ready.seconds * 1e9)}" if ready.iterations is None else f"of {ready.iterations} iterations"
    waits = f" + {ready.waits_rounds} rounds that time every wait" if ready.waits_rounds else ""
    takes = ready.preset.takes
    entries: list[Entry] = [
        (
            "run",
            [
                f"{len(ready.cells)} cells",
                f"{ready.rounds} rounds {length}{waits}",
                f"hold {_work(first.hold_ns, ready.driver)}, think {_work(first.think_ns, ready.driver)}"
                if "hold" in takes
                else "",
                f"line of {first.line} tickets" if "line" in takes else "",
                f"{first.lock_count} locks" if first.lock_count > 1 else "",
                "Python threads" if ready.driver == "python" else "native threads",
                f"seed {ready.seed}",
            ],
        )
    ]
    over = sorted({cell.threads for cell in ready.cells if cell.oversubscribed})
    if over:
        threads = ", ".join(str(count) for count in over)
        note = f"with {threads} threads on {ready.usable_cpus} usable CPUs the figures are oversubscription figures"
        entries.append(("note", [note]))
    return entries


def _work(nanoseconds: int, driver: str) -> str:
    return duration(nanoseconds) + (" asleep" if driver == "python" and nanoseconds >= SLEEP_FROM_NS else "")


def noise(found: Mapping[str, Any]) -> Entry:
    """How far the figures can be trusted."""
    return ("noise", [found["level"], *found["reasons"]])


def lines(entries: Sequence[Entry], width: int, glyphs: Glyphs) -> list[Line]:
    """Entries with their labels on the left, wrapped at `width`."""
    drawn: list[Line] = []
    for label, parts in entries:
        text = glyphs.separator.join(clean(part) for part in parts if part)
        for index, line in enumerate(wrapped(text, width - LABEL)):
            drawn.append((((label if index == 0 else "").ljust(LABEL), "dim"), *line))
    return drawn


def _hypervisor(about: Machine) -> str:
    found = about.hypervisor
    return f"guest of {found.vendor or 'an unknown hypervisor'}" if found.present else "no hypervisor seen"


def _platform(about: Machine) -> str:
    system = about.system
    return " ".join(part for part in (system.os, system.release, system.architecture, system.cpu_model) if part)


def _gil(about: Machine) -> str:
    if not about.python.free_threaded:
        return "GIL"
    return "free-threaded build, GIL on" if about.python.gil_enabled else "free-threaded"


def _plain(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(part) for part in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
