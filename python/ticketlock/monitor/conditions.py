"""Conditions on snapshots, such as `p99>1ms`, for `--fail-if`."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ticketlock.cli.text import clean, duration, number

from .columns import lock_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .model import LockRow, Snapshot


@dataclass(frozen=True, slots=True)
class _Measure:
    about: str
    # None where there is nothing to compare.
    of_lock: Callable[[LockRow], float | None] | None = None
    of_all: Callable[[Snapshot], float] | None = None
    time: bool = False


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


# What can be compared. Those of locks hold if they do for any lock that is shown.
MEASURES: dict[str, _Measure] = {
    "wait%": _Measure("share of the time that threads waited for it", lambda lock: lock.wait_share * 100),
    "cont%": _Measure("share of its acquisitions that waited", lambda lock: _percent(lock.contended_share)),
    "contended": _Measure("acquisitions that waited", lambda lock: lock.contended),
    "queue": _Measure("threads waiting now", lambda lock: lock.waiters),
    "timeouts": _Measure("waits that were given up", lambda lock: lock.timeouts),
    "p50": _Measure("waiting time", lambda lock: lock.waits.p50, time=True),
    "p90": _Measure("waiting time", lambda lock: lock.waits.p90, time=True),
    "p99": _Measure("waiting time", lambda lock: lock.waits.p99, time=True),
    "p99.9": _Measure("waiting time", lambda lock: lock.waits.p999, time=True),
    "max": _Measure("waiting time", lambda lock: lock.waits.max, time=True),
    "abandoned": _Measure("1 if its owner has ended", lambda lock: int(lock.abandoned)),
    "cycles": _Measure("cycles of threads that wait for each other", of_all=lambda snapshot: len(snapshot.cycles)),
    "dropped": _Measure("things that found no room", of_all=lambda snapshot: sum(snapshot.dropped.values())),
    "total%": _Measure("waiting for all locks together", of_all=lambda snapshot: snapshot.totals.wait_share * 100),
}

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_FORM = re.compile(r"\s*([a-z0-9.]+%?)\s*(>=|<=|==|!=|>|<)\s*(\d{1,18}(?:\.\d{1,9})?)\s*(ns|us|ms|s|%|)\s*", re.ASCII)

ACCEPTED = (
    f"NAME, a comparison (>, >=, <, <=, ==, !=) and a number, such as 'wait%>20', 'p99>1ms' or 'cycles>0'; "
    f"NAME is one of {', '.join(MEASURES)}"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison."""

    text: str
    name: str
    sign: str
    limit: float

    def found_in(self, snapshot: Snapshot, locks: Sequence[LockRow]) -> str | None:
        """Where it holds, in words; None if it does not. What has no value (a quantile without waits) meets no condition."""
        measure = MEASURES[self.name]
        if measure.of_all is not None:
            value = measure.of_all(snapshot)
            return f"{self.name} is {number(value)}" if _OPERATORS[self.sign](value, self.limit) else None
        assert measure.of_lock is not None
        for lock in locks:
            of_lock = measure.of_lock(lock)
            if of_lock is not None and _OPERATORS[self.sign](of_lock, self.limit):
                shown = duration(of_lock) if measure.time else number(of_lock)
                place = f" ({clean(lock.site)})" if lock.site else ""
                return f"{self.name} of {lock_name(lock)}{place} is {shown}"
        return None


def parse(text: str) -> Condition:
    """A condition. Raises ValueError with what is wrong in it."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError("it is no comparison")
    name, sign, amount, unit = match.groups()
    measure = MEASURES.get(name)
    if measure is None:
        hint = f"; did you mean {name}%?" if f"{name}%" in MEASURES else ""
        raise ValueError(f"{name} is not known{hint}")
    if measure.time and unit not in _UNITS:
        raise ValueError(f"{name} is a time and needs a unit (ns, us, ms or s)")
    if not measure.time and unit in _UNITS:
        raise ValueError(f"{name} is no time")
    if unit == "%" and not name.endswith("%"):
        raise ValueError(f"{name} is no share")
    return Condition(text.strip(), name, sign, float(amount) * _UNITS.get(unit, 1.0))
