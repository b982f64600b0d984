"""Types for annotations: what code that takes or inspects a lock can say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypedDict, runtime_checkable

if TYPE_CHECKING:
    from types import TracebackType

Fairness: TypeAlias = Literal["throughput", "balanced", "strict"]
"""How a lock gives turns to those who wait."""


@runtime_checkable
class LockLike(Protocol):
    """A lock with timeouts: `Lock` and `RLock` of this package and of `threading`, a `threading.Condition`, and the like."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock and return True; False if that was not possible in `timeout` seconds, or at once."""
        ...

    def release(self) -> None:
        """Release the lock."""
        ...

    def __enter__(self) -> bool:
        """Take the lock."""
        ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        """Release the lock."""
        ...


class LockStats(TypedDict):
    """What a lock counted since it was made."""

    acquisitions: int
    """How often it was taken; for an `RLock`, not counting what its holder took again."""
    contended: int
    """How often that took a wait."""
    wait_ns_sum: int
    """Length of these waits in all, in nanoseconds."""
    wait_ns_max: int
    """Length of the longest, in nanoseconds."""
    wait_ns_log2: list[int]
    """Item i counts waits of 2**i up to 2**(i+1) ns; at most 64 items, none behind the last that is not 0."""
    parks: int
    """How often a waiter that got the lock slept."""
    timeouts: int
    """How often a wait was given up because its time was over; such waits count nowhere else."""
    hand_overs: int
    """How often a holder passed the lock on to a waiter."""
