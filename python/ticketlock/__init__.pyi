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
    "TicketLock",
    "__version__",
    "bench",
    "delays",
    "machine",
    "on_delay_watch",
]
