"""Prometheus: text exposition format 0.0.4, totals since the process's creation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from ticketlock.cli.text import clean
from ticketlock.monitor.model import display_name, short_site
from ticketlock.monitor.tally import added, known_sum

from .stacks import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ticketlock.monitor.model import LockRow, Snapshot

# Locks with series of their own, those with most waiting; series are what a Prometheus server pays for.
MAX_LOCKS = 50
OTHER = "(other)"

# Bounds of the histogram, as exponents of 2 in ns, from 256 ns to 69 s: every second class of ours.
EXPONENTS = range(8, 37, 2)

# Longest label value.
_LONGEST = 200


@dataclass(slots=True)
class _Series:
    """What one lock counted, or several under the same labels."""

    acquisitions: int | None = None
    contentions: int = 0
    wait_ns: int = 0
    log2: tuple[int, ...] = ()
    waiters: int = 0

    def add(self, other: _Series) -> None:
        self.acquisitions = known_sum(self.acquisitions, other.acquisitions)
        self.contentions += other.contentions
        self.wait_ns += other.wait_ns
        self.log2 = added(self.log2, other.log2)
        self.waiters += other.waiters


def write(snapshot: Snapshot, stream: IO[str]) -> None:
    """Counters of a snapshot that was built without an earlier reading: of any other they would go down.

    The `MAX_LOCKS` locks with most waiting have series of their own, the rest are summed under lock="(other)". Control
    characters in names are shown as `?`, and names are cut at 200 characters.
    """
    all_series = _series(snapshot.locks)
    family = _Family(stream, all_series)
    family.counter(
        "ticketlock_lock_acquisitions_total",
        "Acquisitions; missing for locks that do not count them.",
        ((labels, one.acquisitions) for labels, one in all_series),
    )
    family.counter(
        "ticketlock_lock_contentions_total",
        "Acquisitions that had to wait.",
        ((labels, one.contentions) for labels, one in all_series),
    )
    family.counter(
        "ticketlock_lock_wait_seconds_total",
        "Time that threads have waited, waits that go on not included.",
        ((labels, one.wait_ns / 1e9) for labels, one in all_series),
    )
    family.histogram("ticketlock_lock_wait_seconds", "Waits that ended, by their length.")
    family.gauge("ticketlock_lock_waiters", "Threads that wait now.", ((labels, one.waiters) for labels, one in all_series))
    family.gauge("ticketlock_locks", "Locks that exist.", (("", snapshot.totals.locks),))
    family.gauge(
        "ticketlock_wait_cycles", "Deadlocks: cycles of threads that wait for each other.", (("", len(snapshot.cycles)),)
    )
    family.counter(
        "ticketlock_dropped_total",
        "What found no room in the telemetry, by what it was.",
        ((f'{{what="{_escaped(what)}"}}', number) for what, number in sorted(snapshot.dropped.items())),
    )


class _Family:
    def __init__(self, stream: IO[str], series: Sequence[tuple[str, _Series]]) -> None:
        self._stream = stream
        self._series = series

    def counter(self, name: str, text: str, samples: Iterable[tuple[str, float | None]]) -> None:
        self._simple(name, "counter", text, samples)

    def gauge(self, name: str, text: str, samples: Iterable[tuple[str, float | None]]) -> None:
        self._simple(name, "gauge", text, samples)

    def histogram(self, name: str, text: str) -> None:
        self._head(name, "histogram", text)
        for labels, one in self._series:
            inner = labels[1:-1]
            for exponent in EXPONENTS:
                self._stream.write(f'{name}_bucket{{{inner},le="{(1 << exponent) / 1e9!r}"}} {sum(one.log2[:exponent])}\n')
            count = sum(one.log2)
            self._stream.write(f'{name}_bucket{{{inner},le="+Inf"}} {count}\n')
            self._stream.write(f"{name}_sum{labels} {one.wait_ns / 1e9!r}\n{name}_count{labels} {count}\n")

    def _simple(self, name: str, kind: str, text: str, samples: Iterable[tuple[str, float | None]]) -> None:
        self._head(name, kind, text)
        for labels, value in samples:
            if value is not None:
                self._stream.write(f"{name}{labels} {value!r}\n")

    def _head(self, name: str, kind: str, text: str) -> None:
        self._stream.write(f"# HELP {name} {text}\n# TYPE {name} {kind}\n")


def _series(locks: Sequence[LockRow]) -> list[tuple[str, _Series]]:
    """Series with their labels, those with most waiting first and the rest last."""
    named: dict[tuple[str, str], _Series] = {}
    for lock in locks:
        # Without its kind, which is not known of locks that are gone: they go on in the series of their site.
        name = lock.name or (display_name(lock) if lock.site is None else short_site(lock.site))
        counted = _Series(lock.acquisitions, lock.contended, lock.waits.sum, lock.waits.log2, lock.waiters)
        named.setdefault((_escaped(name), _escaped(lock.site or "")), _Series()).add(counted)
    # A program may call a lock that, too.
    rest = [named.pop((OTHER, ""))] if (OTHER, "") in named else []
    ranked = sorted(named.items(), key=lambda item: (-item[1].wait_ns, -item[1].contentions, item[0]))
    rest += [one for _, one in ranked[MAX_LOCKS:]]
    series = [(f'{{lock="{name}",site="{site}"}}', one) for (name, site), one in ranked[:MAX_LOCKS]]
    if rest:
        other = _Series()
        for one in rest:
            other.add(one)
        series.append((f'{{lock="{OTHER}",site=""}}', other))
    return series


def _escaped(text: str) -> str:
    """A label value: the three characters that the format escapes, and none that a terminal obeys."""
    text = clean(encodable(text))
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 3] + "..."
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
