"""speedscope: sampled profiles in ns, one of lines that waited and one of lines that made others wait."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any

from ticketlock.monitor.model import display_name

from .stacks import charges, encodable, place

if TYPE_CHECKING:
    from ticketlock.monitor.model import Snapshot

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write(snapshot: Snapshot, stream: IO[str]) -> None:
    """Two profiles with the stacks lock, line; the weight of a stack is the waiting time charged to it."""
    process = snapshot.process
    frames: dict[tuple[str, str | None, int | None], int] = {}

    def frame(name: str, path: str | None, line: int | None) -> int:
        return frames.setdefault((name, path, line), len(frames))

    def profile(title: str, role: Any) -> dict[str, Any]:
        samples, weights = [], []
        for charge in charges(snapshot, role):
            lock = charge.lock
            created = (None, None) if lock.site is None else place(lock.site)
            samples.append([frame(display_name(lock), *created), frame(charge.function, charge.path, charge.line)])
            weights.append(charge.delay_ns)
        return {
            "type": "sampled",
            "name": title,
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": sum(weights),
            "samples": samples,
            "weights": weights,
        }

    profiles = [
        profile("Waiting, by the line that waited", "waiter"),
        profile("Waiting, by the line that held the lock", "holder"),
    ]
    document = {
        "$schema": SCHEMA,
        "name": f"ticketlock: pid {process['pid']}",
        "exporter": encodable(f"ticketlock {process['version']}"),
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(*key) for key in frames]},
        "profiles": profiles,
    }
    json.dump(document, stream, allow_nan=False)
    stream.write("\n")


def _frame(name: str, path: str | None, line: int | None) -> dict[str, Any]:
    made: dict[str, Any] = {"name": encodable(name)}
    if path:
        made["file"] = encodable(path)
    if line:
        made["line"] = line
    return made
