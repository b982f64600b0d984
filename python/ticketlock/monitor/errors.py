"""Why a process cannot be watched: each with its cause, what can be done about it, and the command's exit code."""

from __future__ import annotations


class MonitorError(Exception):
    """What stands in the way, and the remedy."""

    exit_code = 1

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"{cause}; {remedy}")
        self.cause = cause
        self.remedy = remedy


class NotFoundError(MonitorError):
    """There is no such process."""

    exit_code = 3


class NotInstrumentedError(MonitorError):
    """The process is there, and its locks report nothing."""

    exit_code = 3


class NotPermittedError(MonitorError):
    """The system does not let us look."""

    exit_code = 4


class IncompatibleError(MonitorError):
    """There is something to read, and not in a format of ours."""

    exit_code = 5
