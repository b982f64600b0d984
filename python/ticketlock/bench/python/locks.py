"""The locks of the driver by name: the standard ones, ours, and any that a program has."""

from __future__ import annotations

import importlib
import os
import re
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ticketlock
from ticketlock.bench.compare import OURS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Protocol

    from ticketlock.bench.engine import LockInfo

    class LockLike(Protocol):
        """What the driver uses of a lock."""

        def acquire(self) -> Any:
            """Wait for the lock."""
            ...

        def release(self) -> Any:
            """Give it up."""
            ...

        def __enter__(self) -> Any:
            """As `acquire`."""
            ...

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
        ) -> bool | None:
            """As `release`."""
            ...


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of lock. `type_name` is the type of `ticketlock` that it needs."""

    pattern: str
    family: str
    fair: bool
    about: str
    parameter: str | None = None
    type_name: str | None = None

    @property
    def available(self) -> bool:
        """Whether this build has it."""
        return self.type_name is None or hasattr(ticketlock, self.type_name)


FACTOR = "units per waiter ahead, 1 to 1000000"
FAIRNESS = ("throughput", "strict")

KINDS = (
    Kind("threading.Lock", "standard", False, "the standard lock"),
    Kind("threading.RLock", "standard", False, "the standard reentrant lock"),
    Kind("lock", "ticketlock", False, "ticketlock.Lock", type_name="Lock"),
    Kind("lock:throughput", "ticketlock", False, 'ticketlock.Lock(fairness="throughput")', type_name="Lock"),
    Kind("lock:strict", "ticketlock", False, 'ticketlock.Lock(fairness="strict")', type_name="Lock"),
    Kind("rlock", "ticketlock", False, "ticketlock.RLock", type_name="RLock"),
    Kind("ticket", "ticket", True, 'ticketlock.TicketLock(backoff="none")', type_name="TicketLock"),
    *(
        Kind(
            pattern,
            "ticket",
            True,
            f'ticketlock.TicketLock(backoff="{pattern}")',
            FACTOR if pattern.endswith(":N") else None,
            "TicketLock",
        )
        for pattern in ("proportional:N", "proportional-v1:N", "auto", "auto-shared", "auto-v1:2", "auto-v1:2.7")
    ),
    Kind("module:factory", "yours", False, "what factory() of an importable module returns; checked for exclusion first"),
)

# Words that never are the module of a `module:factory`: identifiers of ours begin with them.
RESERVED = ("threading", *OURS)

_FACTORY = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")


@dataclass(frozen=True, slots=True)
class Named:
    """A lock that can be made."""

    name: str
    kind: Kind
    make: Callable[[], LockLike]


def infos() -> list[LockInfo]:
    """Every kind, also those that this build lacks."""
    return [
        {
            "pattern": kind.pattern,
            "family": kind.family,
            "fair": kind.fair,
            "parameter": kind.parameter,
            "available": kind.available,
            "about": kind.about,
        }
        for kind in KINDS
    ]


def find(name: str) -> Named:
    """The lock of an identifier; ValueError that says what is accepted."""
    kinds = {kind.pattern: kind for kind in KINDS if kind.parameter is None and kind.family != "yours"}
    kind = kinds.get(name) or _with_parameter(name)
    if kind is not None:
        if not kind.available:
            raise ValueError(f"lock '{name}' needs ticketlock.{kind.type_name}, which this build does not have; {_accepted()}")
        return Named(name, kind, _maker(name))
    written = _FACTORY.fullmatch(name)
    if written is None or written[1] in RESERVED:
        raise ValueError(f"unknown lock '{name}'; {_accepted()}")
    return Named(name, KINDS[-1], _user_factory(name, written[1], written[2]))


def _accepted() -> str:
    return "choose one of: " + ", ".join(kind.pattern for kind in KINDS if kind.available)


def _with_parameter(name: str) -> Kind | None:
    """The kind of `proportional:50`: the lock itself knows which parameters it takes."""
    head, colon, _ = name.partition(":")
    kind = next((kind for kind in KINDS if kind.parameter is not None and kind.pattern == f"{head}:N"), None)
    if not colon or kind is None:
        return None
    if kind.available:
        try:
            ticketlock.TicketLock(backoff=name)
        except ValueError as refused:
            raise ValueError(f"unknown lock '{name}': {refused}; {_accepted()}") from None
    return kind


def _maker(name: str) -> Callable[[], LockLike]:
    if name == "threading.Lock":
        return threading.Lock
    if name == "threading.RLock":
        return threading.RLock
    ours: Any = ticketlock
    if name == "lock":
        return ours.Lock  # type: ignore[no-any-return]
    if name == "rlock":
        return ours.RLock  # type: ignore[no-any-return]
    head, _, fairness = name.partition(":")
    if head == "lock":
        return lambda: ours.Lock(fairness=fairness)
    return lambda: ours.TicketLock(backoff="none" if name == "ticket" else name)


def _user_factory(name: str, module: str, attribute: str) -> Callable[[], LockLike]:
    """The factory of a program, tried once."""
    try:
        found: Any = _imported(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        made = found()
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - anything may happen in somebody else's code
        raise ValueError(f"lock '{name}': {type(problem).__name__}: {problem}; {_accepted()}") from None
    missing = [method for method in ("acquire", "release", "__enter__", "__exit__") if not hasattr(type(made), method)]
    if missing:
        raise ValueError(f"lock '{name}': {attribute}() returned a {type(made).__name__}, which has no {', '.join(missing)}")
    factory: Callable[[], LockLike] = found
    return factory


def _imported(module: str) -> Any:
    """Import a module; also one beside the caller, as `python -m` does."""
    here = os.getcwd()
    if "" in sys.path or here in sys.path:
        return importlib.import_module(module)
    sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    finally:
        sys.path.remove(here)
