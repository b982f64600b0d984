"""Fair locks for Python that report on themselves.

Importing this package loads the locks and nothing else. `machine`, `delays`, `on_delay_watch`, `on_slow_wait`,
`check_order`, `order_inversions`, `patch`, `unpatch`, `patched`, `snapshot`, `bench` and the types for annotations are loaded
on first use.

PYTEST_DONT_REWRITE: a test suite under `ticketlock run` is not to be told that this was imported before pytest looked.
"""

from ._core import Lock, RLock, TicketLock, __version__

__all__ = [
    "DelayEvent",
    "DelayRow",
    "Fairness",
    "Lock",
    "LockLike",
    "LockStats",
    "Machine",
    "RLock",
    "SlowWait",
    "TicketLock",
    "__version__",
    "bench",
    "check_order",
    "delays",
    "machine",
    "on_delay_watch",
    "on_slow_wait",
    "order_inversions",
    "patch",
    "patched",
    "snapshot",
    "unpatch",
]

_HOME = {
    "DelayEvent": "_observe",
    "DelayRow": "_observe",
    "Fairness": "_typing",
    "LockLike": "_typing",
    "LockStats": "_typing",
    "Machine": "_observe",
    "SlowWait": "_slow",
    "check_order": "_order",
    "delays": "_observe",
    "machine": "_observe",
    "on_delay_watch": "_observe",
    "on_slow_wait": "_slow",
    "order_inversions": "_order",
    "patch": "_patch",
    "patched": "_patch",
    "snapshot": "_snapshot",
    "unpatch": "_patch",
    "bench": None,
}


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = _HOME[name]
    value = import_module(f"{__name__}.{home or name}")
    if home is not None:
        value = getattr(value, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
