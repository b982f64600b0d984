"""Whether a lock is one, before its figures are believed."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from . import crew

if TYPE_CHECKING:
    from collections.abc import Callable

    from .crew import Opening
    from .locks import LockLike

THREADS, ACQUISITIONS = 4, 1_500

# One section in so many lets other threads run in its middle: an interpreter that lets one thread run at a time would hide a
# broken lock otherwise.
SLEEP_ONE_IN = 8
NAP_S = 20e-6

# Time limit of a timed acquisition: short enough to run out now and then.
TIMED_LIMIT_S = 50e-6

PATIENCE_S = 20.0


def exclusion(make: Callable[[], LockLike], threads: int = THREADS, acquisitions: int = ACQUISITIONS) -> None:
    """Look for two threads that hold a lock at once; RuntimeError says what is wrong with it.

    Threads take it `with`, with `acquire` and `release`, and, where it has them, without waiting and with a time limit.
    """
    body = _Exclusion(make(), acquisitions)
    entered = sum(crew.run(threads, body, None, (), PATIENCE_S).found)
    if body.caught or body.count != entered:
        raise RuntimeError(f"two threads held it at once ({entered} acquisitions counted {body.count})")


class _Exclusion(crew.Body[int]):
    def __init__(self, lock: LockLike, acquisitions: int) -> None:
        self.lock: Any = lock
        self.left = acquisitions
        self.count = 0
        self.inside: int | None = None
        self.caught = False
        self.ways = [self._with, self._waiting]
        for way, arguments in ((self._trying, (False,)), (self._timed, (True, TIMED_LIMIT_S))):
            try:
                taken = self.lock.acquire(*arguments)
            except TypeError:
                continue  # it has no such acquisition
            if taken:
                self.lock.release()
                self.ways.append(way)

    def work(self, me: int, running: list[bool], opening: Opening) -> int:  # noqa: ARG002
        chance, entered = random.Random(me), 0
        # A budget that all draw from (inexactly): a thread that is kept out does not make the check endless.
        while running and self.left > 0:
            if chance.choice(self.ways)(me, chance):
                entered += 1
                self.left -= 1
            else:
                time.sleep(NAP_S)
        return entered

    def _section(self, me: int, chance: random.Random) -> None:
        if self.inside is not None:
            self.caught = True
        self.inside = me
        count = self.count
        if chance.randrange(SLEEP_ONE_IN) == 0:
            time.sleep(NAP_S)
        self.count = count + 1
        if self.inside != me:
            self.caught = True
        self.inside = None

    def _with(self, me: int, chance: random.Random) -> bool:
        with self.lock:
            self._section(me, chance)
        return True

    def _waiting(self, me: int, chance: random.Random) -> bool:
        self.lock.acquire()
        return self._released(me, chance)

    def _trying(self, me: int, chance: random.Random) -> bool:
        return bool(self.lock.acquire(False)) and self._released(me, chance)

    def _timed(self, me: int, chance: random.Random) -> bool:
        return bool(self.lock.acquire(True, TIMED_LIMIT_S)) and self._released(me, chance)

    def _released(self, me: int, chance: random.Random) -> bool:
        try:
            self._section(me, chance)
        finally:
            self.lock.release()
        return True
