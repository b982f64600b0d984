"""What the user of the monitor asked for: the same for the live screen and for output that is printed once."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_SORT = "wait"
# Seconds between two readings: of the live screen, and of everything that is printed.
LIVE_INTERVAL_S = 0.5
ONCE_INTERVAL_S = 1.0
MIN_INTERVAL_S = 0.05
MAX_INTERVAL_S = 3600.0


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """How to show locks. `columns.COLUMNS` and `columns.SORTS` hold the names that `columns` and `sort` may have."""

    sort: str = DEFAULT_SORT
    # As the user typed it, see `columns.matcher`; "" lets everything pass.
    filter: str = ""
    # Names of columns in the order to show them; None: whatever fits.
    columns: tuple[str, ...] | None = None
    interval_s: float = LIVE_INTERVAL_S
    # Locks of the standard library and of ticketlock itself as well.
    internal: bool = False
    # A file that every snapshot shown is also appended to (see `source.Recorder`).
    record: str | None = None
    # End after so many snapshots; None: go on.
    count: int | None = None
    ascii: bool = False
