"""Who waits for whom."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .model import Cycle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .raw import Raw

# Between the two readings that a cycle must outlast. A reading takes a millisecond or a few: threads that go on in that time
# look, in one reading, as if they waited for what they hold.
PAUSE_S = 0.02


def of(raw: Raw) -> tuple[Cycle, ...]:
    """The cycles of a reading."""
    return cycles(
        {
            thread["ident"]: thread["waiting_on"]
            for thread in raw["threads"]
            if thread["ident"] and thread["waiting_on"] is not None
        },
        {lock["id"]: lock["owner"] for lock in raw["locks"] if lock["owner"]},
    )


def lasting(found: Iterable[Cycle], raw: Raw, again: Callable[[], Raw]) -> tuple[Cycle, ...]:
    """Those cycles of a reading that another one, some milliseconds later, shows with the very same waits."""
    found = tuple(found)
    if not found:
        return found
    time.sleep(PAUSE_S)
    later = again()
    still = set(of(later))
    began, went_on = _begins(raw), _begins(later)
    return tuple(
        cycle for cycle in found if cycle in still and all(began.get(ident) == went_on.get(ident) for ident in cycle.threads)
    )


def _begins(raw: Raw) -> dict[int, int | None]:
    return {thread["ident"]: thread["wait_started_ns"] for thread in raw["threads"]}


def cycles(waiting_on: Mapping[int, int], owners: Mapping[int, int]) -> tuple[Cycle, ...]:
    """The cycles, each once and from its smallest ident on, out of what each thread waits for and who holds each lock.

    A thread waits for one lock at most and a lock has one owner: from every thread a single path leads on, so all of them are
    followed in linear time. A thread that waits for a lock it holds itself is a cycle of one. A reading is not atomic: a cycle
    may be an illusion unless a later reading shows it again.
    """
    found = []
    done: set[int] = set()
    for start in sorted(waiting_on):
        path: dict[int, int] = {}
        thread: int | None = start
        while thread is not None and thread not in done and thread not in path:
            path[thread] = len(path)
            lock = waiting_on.get(thread)
            thread = None if lock is None else owners.get(lock)
        if thread is not None and thread in path:
            found.append(_from_smallest(list(path)[path[thread] :], waiting_on))
        done.update(path)
    return tuple(found)


def _from_smallest(threads: list[int], waiting_on: Mapping[int, int]) -> Cycle:
    first = threads.index(min(threads))
    threads = threads[first:] + threads[:first]
    return Cycle(tuple(threads), tuple(waiting_on[thread] for thread in threads))
