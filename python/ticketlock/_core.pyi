"""Locks of ticketlock: the native part.

Every lock here is for the threads of one process and one interpreter.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, final

from typing_extensions import disjoint_base

from ._typing import Fairness, LockStats

__version__: str

@final
class Lock:
    """A lock for the threads of one process: a drop-in for `threading.Lock` that is fair.

    Whoever finds the lock free takes it, and those who wait for it sleep. So that they do not wait for ever, a release hands
    the lock on to the eldest at a pace that `fairness` sets: "throughput" (every 5 to 10 ms), "balanced" (about every half
    millisecond), or "strict" (to all who have waited for 1 ms: when a lock is busy, that is a switch of threads for nearly
    every acquisition).

    Any thread may release a held lock. A thread that acquires a lock it holds waits for itself.

    A fork leaves a held lock held in the child, and those who wait for it behind in the parent. At the interpreter's exit,
    where no other thread runs any more, an acquire of a held lock without timeout in the main thread raises
    PythonFinalizationError (RuntimeError before Python 3.13): it could only hang.
    """

    def __new__(cls, *, name: str | None = None, fairness: Fairness = "balanced") -> Lock:
        """An unlocked lock. `name` says what it is for, in its repr and in reports.

        Raises ValueError for another fairness, TypeError for arguments of other types and positional ones.
        """

    def acquire(self, /, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock and return True; False if that was not possible.

        With a false `blocking`, do not wait. With a `timeout`, wait so many seconds at most, rounded up to the nanosecond;
        -1 means as long as it takes.

        In the main thread signal handlers run meanwhile, at most 50 ms after their signal: if one raises, so does acquire,
        and the lock is not taken; else it waits on, for the rest of the timeout.

        Raises ValueError for a timeout that is negative, not a number, or together with a false `blocking`; OverflowError
        for one above `threading.TIMEOUT_MAX`.
        """

    def release(self, /) -> None:
        """Release the lock. Any thread may do so, not just the one that took it.

        Raises RuntimeError if the lock is not held; of two releases that race for one acquisition, exactly one does.
        """

    def locked(self, /) -> bool:
        """Whether the lock is held, by whichever thread."""

    def __enter__(self, /) -> bool:
        """Take the lock and return True."""

    def __exit__(self, /, *exc_info: object) -> None:
        """Release the lock."""

    def acquire_lock(self, /, blocking: bool = True, timeout: float = -1) -> bool:
        """The same as `acquire`."""

    def release_lock(self, /) -> None:
        """The same as `release`."""

    def locked_lock(self, /) -> bool:
        """The same as `locked`."""

    def _release_save(self, /) -> None:
        """Release the lock for a wait on a condition."""

    def _acquire_restore(self, state: object, /) -> None:
        """Take the lock again after a wait on a condition, whatever signals come.

        A condition whose wait ends without the lock would go on to release somebody else's.
        """

    def _at_fork_reinit(self, /) -> None:
        """Make the lock unlocked again, in a forked child or while nobody uses it.

        The lock keeps its name, its id and its counts.
        """

    def stats(self, /) -> LockStats:
        """What the lock counted since it was made; see `ticketlock.LockStats`. A lock that is not waited for reads no clock.

        Other threads may be counting meanwhile: each number is right, but they may not add up by one.
        """

    @property
    def name(self) -> str | None:
        """What the lock is for: the name given to it."""

    @property
    def fairness(self) -> Fairness:
        """How turns are given."""

    @property
    def id(self) -> int:
        """Number of this lock, unique in the process and never used again."""

@disjoint_base
class RLock:
    """A lock that the thread which holds it may take again: a drop-in for `threading.RLock` that is fair.

    It is free again when it was released as often as it was taken, by that thread. What `Lock` says of waiting, fork and
    exit holds for it too. Other types may derive from it.
    """

    def __new__(cls, *_ignored: Any, **_ignored_too: Any) -> Self:
        """Arguments are for `__init__`."""

    def __init__(self, *, name: str | None = None, fairness: Fairness = "balanced") -> None:
        """An unlocked lock; see `Lock` for its name and fairness."""

    def acquire(self, /, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock and return True; False if that was not possible.

        If this thread holds the lock already, that succeeds at once, and takes one more `release`. Otherwise it is as for
        `Lock`.

        Raises OverflowError if it holds it 2**64 - 1 times.
        """

    def release(self, /) -> None:
        """Undo one `acquire`; the lock is free when none is left.

        Raises RuntimeError if this thread does not hold the lock.
        """

    def locked(self, /) -> bool:
        """Whether the lock is held, by whichever thread."""

    def __enter__(self, /) -> bool:
        """Take the lock and return True."""

    def __exit__(self, /, *exc_info: object) -> None:
        """Undo one `acquire`."""

    def _is_owned(self, /) -> bool:
        """Whether this thread holds the lock."""

    def _recursion_count(self, /) -> int:
        """How often this thread has yet to release the lock."""

    def _release_save(self, /) -> tuple[int, int]:
        """Release the lock for a wait on a condition, however often it was taken: `(count, owner)`."""

    def _acquire_restore(self, state: tuple[int, int], /) -> None:
        """Take the lock again as often as it was taken before `_release_save`, whatever signals come."""

    def _at_fork_reinit(self, /) -> None:
        """Make the lock unlocked again, in a forked child or while nobody uses it.

        The lock keeps its name, its id and its counts.
        """

    def stats(self, /) -> LockStats:
        """What the lock counted since it was made, as for `Lock`. What its holder took again is not counted."""

    @property
    def name(self) -> str | None:
        """What the lock is for: the name given to it."""

    @property
    def fairness(self) -> Fairness:
        """How turns are given."""

    @property
    def id(self) -> int:
        """Number of this lock, unique in the process and never used again."""

@final
class TicketLock:
    """A strict ticket lock: threads get it in the order in which they asked for it.

    Good where every contending thread has a CPU of its own. With more threads than CPUs the next in line is often not
    running, and everybody behind it waits for the scheduler: use a lock that parks there.

    Waiting cannot be interrupted: a signal's handler (Ctrl-C) runs once the lock is granted. A thread that acquires a lock
    it holds waits for ever. A lock that others wait for at a fork keeps their tickets in the child, where nobody will serve
    them: call `_at_fork_reinit` there.
    """

    def __new__(cls, backoff: str | int = "auto") -> TicketLock:
        """An unlocked lock.

        `backoff` names how a waiter spaces its looks at the lock: "none", "proportional:N" (or just the int N, 1 to
        1,000,000), "proportional-v1:N", "auto", "auto-shared", "auto-v1:2" or "auto-v1:2.7".

        Raises ValueError for another name or number, TypeError for anything else (a bool included).
        """

    def acquire(self, /, blocking: bool = True) -> bool:
        """Take the lock and return True. With a false argument, return False at once if the lock is held.

        Raises TypeError for a timeout: a ticket, once drawn, cannot be given back.
        """

    def release(self, /) -> None:
        """Let the next in line in. Any thread may release a held lock.

        Raises RuntimeError if the lock is not held.
        """

    def locked(self, /) -> bool:
        """Whether the lock is held, by whichever thread."""

    def __enter__(self, /) -> Literal[True]:
        """Take the lock."""

    def __exit__(self, /, *exc_info: object) -> None:
        """Release the lock."""

    def acquire_lock(self, /, blocking: bool = True) -> bool:
        """The same as `acquire`."""

    def release_lock(self, /) -> None:
        """The same as `release`."""

    def locked_lock(self, /) -> bool:
        """The same as `locked`."""

    def _at_fork_reinit(self, /) -> None:
        """Make the lock unlocked again, in a forked child or while nobody uses it.

        The lock keeps its id and its count of acquisitions, but not the delays learnt.
        """

    @property
    def backoff(self) -> str:
        """How a waiter spaces its looks at the lock, by name."""

    @property
    def id(self) -> int:
        """Number of this lock, unique in the process and never used again."""

    @property
    def acquisitions(self) -> int:
        """How often the lock was taken; exact, also beyond 2**32."""

def _set_delay_watch(callback: Callable[[Mapping[str, Any]], object] | None, /) -> None:
    """Where `_lab.set_delay_watch` keeps its callback: in this interpreter's module."""

def _set_slow_wait(from_ns: int, callback: Callable[[Mapping[str, Any]], object] | None, /) -> None:
    """Where `on_slow_wait` keeps its callback: in this interpreter's module."""
