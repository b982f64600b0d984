"""What a lock counted between two readings, and waiting times from power-of-two classes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING

from .model import Waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .raw import Counters

NO_WAITS = Waits(count=0, sum=0, max=None, p50=None, p90=None, p99=None, p999=None, log2=())
PERMILLES = (500, 900, 990, 999)


@dataclass(slots=True)
class Tally:
    """Counts that can be added and subtracted. No wait among them was longer than `limit`."""

    acquisitions: int | None = None
    contended: int = 0
    wait_ns_sum: int = 0
    limit: int = 0
    log2: Sequence[int] = ()
    parks: int = 0
    timeouts: int = 0
    hand_overs: int = 0

    def add(self, other: Tally) -> None:
        """Count what `other` counted too."""
        self.acquisitions = known_sum(self.acquisitions, other.acquisitions)
        self.contended += other.contended
        self.wait_ns_sum += other.wait_ns_sum
        self.limit = max(self.limit, other.limit)
        if other.log2:
            self.log2 = added(self.log2, other.log2)
        self.parks += other.parks
        self.timeouts += other.timeouts
        self.hand_overs += other.hand_overs

    def since(self, then: Tally) -> Tally:
        """What was counted after `then`. Readings are not atomic: what seems to have gone backwards counts as 0."""
        return Tally(
            acquisitions=None if self.acquisitions is None else max(0, self.acquisitions - (then.acquisitions or 0)),
            contended=max(0, self.contended - then.contended),
            wait_ns_sum=max(0, self.wait_ns_sum - then.wait_ns_sum),
            limit=self.limit,
            log2=[max(0, now - before) for now, before in zip_longest(self.log2, then.log2, fillvalue=0)] if self.log2 else (),
            parks=max(0, self.parks - then.parks),
            timeouts=max(0, self.timeouts - then.timeouts),
            hand_overs=max(0, self.hand_overs - then.hand_overs),
        )

    def waits(self) -> Waits:
        """The waiting times."""
        return waits(self.log2, self.wait_ns_sum, self.limit)


def of_counters(counters: Counters) -> Tally:
    """All that a lock has counted."""
    return Tally(
        acquisitions=counters["acquisitions"],
        contended=counters["contended"],
        wait_ns_sum=counters["wait_ns_sum"],
        limit=counters["wait_ns_max"],
        log2=counters["wait_ns_log2"],
        parks=counters["parks"],
        timeouts=counters["timeouts"],
        hand_overs=counters["hand_overs"],
    )


def known_sum(first: int | None, second: int | None) -> int | None:
    """The sum of what is known."""
    if first is None or second is None:
        return second if first is None else first
    return first + second


def added(first: Iterable[int], second: Iterable[int]) -> tuple[int, ...]:
    """Counts by class of two histograms together."""
    return tuple(a + b for a, b in zip_longest(first, second, fillvalue=0))


def waits(log2: Sequence[int], total_ns: int, limit: int) -> Waits:
    """Waiting times from their counts by class, their sum, and a limit that none of them exceeds."""
    top = len(log2)
    while top and not log2[top - 1]:
        top -= 1
    if not top:
        return NO_WAITS if not total_ns else Waits(0, total_ns, None, None, None, None, None, ())
    classes = tuple(log2[:top])
    longest = 1 << top
    # A limit below the highest class was read before that class was.
    if limit < longest and (top == 1 or limit >= longest >> 1):
        longest = limit
    seen = tuple(accumulate(classes))
    count = seen[-1]
    p50, p90, p99, p999 = (min(2 << bisect_left(seen, -(-count * permille // 1000)), longest) for permille in PERMILLES)
    return Waits(count, total_ns, longest, p50, p90, p99, p999, classes)
