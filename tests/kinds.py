"""Every kind of lock that promises the same about waiting."""

from ticketlock import Lock, RLock

KINDS = {
    "Lock": Lock,
    "Lock-throughput": lambda: Lock(fairness="throughput"),
    "Lock-strict": lambda: Lock(fairness="strict"),
    "RLock": RLock,
}
