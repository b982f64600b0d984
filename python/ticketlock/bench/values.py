"""Option values: every parser takes text or a Python value and raises `BadValueError`, which names what is accepted."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Limits, each with its reason.
MAX_THREADS = 1024  # far beyond any line that a strict lock survives; bounds the memory of per-thread statistics
MAX_DURATION_NS = 1_000_000_000  # one second: a longer section measures the scheduler, not a lock
MIN_SECONDS = 0.001  # a shorter round is over before all threads run
MAX_SECONDS = 3600.0
MAX_ROUNDS = 1000
MAX_ITERATIONS = 1_000_000_000_000
MAX_LOCK_COUNT = 65_536
MAX_CAP_UNITS = 65_000  # the largest delay that a delay table stores
NATIVE_CAP_UNITS = 16_000  # the cap on bare metal
MAX_LINE = 1_000_000
MAX_SEED = 2**64 - 1

_UNITS = {"": 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|)", re.ASCII)


class BadValueError(ValueError):
    """An option has a value that cannot be used: `option` is the parameter's name, `accepted` says what would do."""

    def __init__(self, option: str, value: object, accepted: str) -> None:
        shown = value if isinstance(value, str) else repr(value)
        super().__init__(f"{option}: '{shown}' is not accepted; give {accepted}")
        self.option = option
        self.value = shown
        self.accepted = accepted


class LockParser(Protocol):
    """The part of an engine that knows lock identifiers."""

    def parse_lock(self, lock: str, /) -> Mapping[str, Any]:
        """Describe the lock, `family` included; raise ValueError, saying what is accepted, for an unknown identifier."""
        ...


def duration_ns(option: str, value: float | str) -> int:
    """A duration in whole nanoseconds, from `N[ns|us|ms|s]` or a number of nanoseconds."""
    accepted = "a duration from 0 to 1s such as 250, 250ns, 1.5us or 2ms (a bare number is nanoseconds)"
    match = _DURATION.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        raise BadValueError(option, value, accepted)
    nanoseconds = float(match[1]) * _UNITS[match[2]]
    if nanoseconds > MAX_DURATION_NS or abs(nanoseconds - round(nanoseconds)) > 1e-6:
        raise BadValueError(option, value, accepted)
    return round(nanoseconds)


def thread_counts(option: str, value: int | str | Iterable[int]) -> tuple[int, ...]:
    """Thread counts in the order given, without repeats: `4`, `1,2,4`, `1-8`, or both forms mixed."""
    accepted = f"thread counts from 1 to {MAX_THREADS} such as 4, 1,2,4 or 1-8"
    if isinstance(value, int) and not isinstance(value, bool):
        counts = [value]
    elif isinstance(value, str):
        counts = [count for part in value.split(",") for count in _range(option, value, part.strip(), accepted)]
    else:
        try:
            counts = list(value)  # type: ignore[arg-type]
        except TypeError:
            raise BadValueError(option, value, accepted) from None
    if not counts or not all(type(count) is int and 1 <= count <= MAX_THREADS for count in counts):
        raise BadValueError(option, value, accepted)
    return tuple(dict.fromkeys(counts))


def _range(option: str, whole: str, part: str, accepted: str) -> Iterable[int]:
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part, re.ASCII)
    if match is None:
        raise BadValueError(option, whole, accepted)
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last <= MAX_THREADS:
        raise BadValueError(option, whole, accepted)
    return range(first, last + 1)


def seconds(option: str, value: float | str) -> float:
    """Length of a round in seconds, from a number or from text with a unit (`0.5`, `500ms`)."""
    accepted = f"seconds from {MIN_SECONDS:g} to {MAX_SECONDS:g} such as 0.5, or 500ms"
    text = str(value).strip()
    match = _DURATION.fullmatch(text)
    try:
        amount = float(match[1]) * _UNITS[match[2]] / 1e9 if match is not None and match[2] else float(text)
    except ValueError:
        raise BadValueError(option, value, accepted) from None
    if not math.isfinite(amount) or not MIN_SECONDS <= amount <= MAX_SECONDS:
        raise BadValueError(option, value, accepted)
    return amount


def count(option: str, value: int | str, low: int, high: int, what: str) -> int:
    """A whole number between two limits."""
    accepted = f"{what} from {low} to {high}"
    if isinstance(value, str) and re.fullmatch(r"\s*\d{1,20}\s*", value, re.ASCII):
        value = int(value)
    if type(value) is not int or not low <= value <= high:
        raise BadValueError(option, value, accepted)
    return value


def caps(option: str, value: int | str | Iterable[int | str]) -> tuple[int | None, ...]:
    """Delay caps in units: numbers, `native` (the cap on bare metal) and `machine` (None: what this machine has)."""
    accepted = f"units from 1 to {MAX_CAP_UNITS}, 'native' ({NATIVE_CAP_UNITS}) or 'machine', such as 16,native"
    parts: Iterable[int | str]
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")]
    elif isinstance(value, int):
        parts = [value]
    else:
        parts = list(value)
    found: list[int | None] = []
    for part in parts:
        if part == "machine":
            found.append(None)
        elif part == "native":
            found.append(NATIVE_CAP_UNITS)
        else:
            try:
                found.append(count(option, part, 1, MAX_CAP_UNITS, "units"))
            except BadValueError:
                raise BadValueError(option, value, accepted) from None
    if not found:
        raise BadValueError(option, value, accepted)
    return tuple(dict.fromkeys(found))


def locks(option: str, value: str | Iterable[str], engine: LockParser, family: str | None = None) -> tuple[str, ...]:
    """Lock identifiers in the order given, without repeats, each known to the engine and of the family asked for."""
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else list(value)
    if not names:
        raise BadValueError(option, value, "at least one lock identifier")
    for name in names:
        try:
            info = engine.parse_lock(name)
        except ValueError as unknown:
            raise BadValueError(option, name, f"identifiers of locks ({unknown})") from None
        if family is not None and info["family"] != family:
            raise BadValueError(option, name, f"locks of the {family} family with this preset")
    return tuple(dict.fromkeys(names))


def choice(option: str, value: str, accepted: Iterable[str]) -> str:
    """One of a few words."""
    words = tuple(accepted)
    if value not in words:
        raise BadValueError(option, value, "one of " + ", ".join(words))
    return value
