"""Locks of ticketlock: the native part.

Every lock here is for the threads of one process and one interpreter.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, final

__version__: str

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
