"""Signals during a benchmark: the first ends the current round, the second ends the command."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType, TracebackType

    from ticketlock.bench.engine import DelayTuple, Engine, LockInfo, RoundResult, RoundSpec

STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class Aborted(BaseException):
    """A second signal: leave at once. Not an Exception, so that nothing on the way mistakes it for a failure."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Interrupts:
    """Handlers for the stop signals and for Ctrl-Z, installed while the context is open."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self.suspensions = 0
        self.around_suspension: tuple[Callable[[], None], Callable[[], None]] | None = None
        self._in_round = False
        self._shields = 0
        self._abort: int | None = None
        self._suspend_later: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for name in STOP_SIGNALS:
            self._install(name, self._stop)
        self._install("SIGTSTP", self._suspend)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # After a stop signal the command only has to end; one more must not turn that into a traceback.
        for signum, handler in self._previous.items():
            signal.signal(signum, handler if self.signum is None else signal.SIG_IGN)

    def _install(self, name: str, handler: Callable[[int, FrameType | None], None]) -> None:
        signum = getattr(signal, name, None)
        # A signal that our parent made us ignore (nohup, a background job) stays ignored.
        if signum is not None and signal.getsignal(signum) not in (signal.SIG_IGN, None):
            self._previous[signum] = signal.signal(signum, handler)

    def stop(self) -> bool:
        """Whether somebody asked us to stop."""
        return self.signum is not None

    @property
    def exit_code(self) -> int | None:
        """128 plus the signal, None without one."""
        return None if self.signum is None else 128 + self.signum

    def _stop(self, signum: int, _: FrameType | None) -> None:
        if self.signum is not None and self._shields:
            self._abort = signum
            return
        if self.signum is not None:
            self._leave()
            raise Aborted(signum)
        self.signum = signum
        if self._in_round:
            # Only the engine's call is cut short; anything else sees `stop` soon enough, and is never left half done.
            self._in_round = False
            raise KeyboardInterrupt

    def _leave(self) -> None:
        if self.around_suspension is not None:
            self.around_suspension[0]()

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """While we write to the terminal: a second signal and Ctrl-Z, which write to it too, wait until that is done."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if not self._shields and self._abort is not None:
            self._leave()
            raise Aborted(self._abort)
        if not self._shields and self._suspend_later is not None:
            signum, self._suspend_later = self._suspend_later, None
            self._suspend(signum, None)

    def _suspend(self, signum: int, _: FrameType | None) -> None:
        if self._shields:
            self._suspend_later = signum
            return
        self._leave()
        handler = signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
        # The process stops here, and goes on here after SIGCONT.
        signal.signal(signum, handler)
        self.suspensions += 1
        if self.around_suspension is not None:
            self.around_suspension[1]()

    @contextlib.contextmanager
    def breakable(self) -> Iterator[None]:
        """While we wait for somebody else: the first stop signal raises KeyboardInterrupt here."""
        self._in_round = True
        try:
            yield
        finally:
            self._in_round = False

    def round(self, engine: Engine, spec: RoundSpec) -> RoundResult:
        """One round that a signal may cut short; one during which the process was stopped does not count."""
        suspensions = self.suspensions
        with self.breakable():
            result = engine.round(spec)
        if self.suspensions != suspensions:
            return {**result, "status": "invalid", "why": "the process was suspended during the round"}
        return result


class InterruptibleEngine:
    """An engine whose rounds the stop signals cut short."""

    def __init__(self, engine: Engine, interrupts: Interrupts) -> None:
        from ticketlock.bench.engine import driver_of

        self.driver = driver_of(engine)
        self._engine = engine
        self._interrupts = interrupts

    def machine(self) -> dict[str, Any]:
        """That of the engine."""
        return self._engine.machine()

    def locks(self) -> Sequence[LockInfo]:
        """Those of the engine."""
        return self._engine.locks()

    def parse_lock(self, lock: str, /) -> Mapping[str, Any]:
        """As the engine does."""
        return self._engine.parse_lock(lock)

    def order(self, seed: int, cells: int, rounds: int, /) -> list[list[int]]:
        """As the engine does."""
        return self._engine.order(seed, cells, rounds)

    def round(self, spec: RoundSpec, /) -> RoundResult:
        """One round, cut short by a stop signal."""
        return self._interrupts.round(self._engine, spec)

    def delays(self) -> Sequence[DelayTuple]:
        """Those of the engine."""
        return self._engine.delays()
