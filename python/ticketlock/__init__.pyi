from . import bench as bench
from ._core import Lock as Lock
from ._core import RLock as RLock
from ._core import TicketLock as TicketLock
from ._core import __version__ as __version__
from ._observe import DelayEvent as DelayEvent
from ._observe import DelayRow as DelayRow
from ._observe import Machine as Machine
from ._observe import delays as delays
from ._observe import machine as machine
from ._observe import on_delay_watch as on_delay_watch
from ._order import check_order as check_order
from ._order import order_inversions as order_inversions
from ._patch import patch as patch
from ._patch import patched as patched
from ._patch import unpatch as unpatch
from ._slow import SlowWait as SlowWait
from ._slow import on_slow_wait as on_slow_wait
from ._snapshot import snapshot as snapshot
from ._typing import Fairness as Fairness
from ._typing import LockLike as LockLike
from ._typing import LockStats as LockStats

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
