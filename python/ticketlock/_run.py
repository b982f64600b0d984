"""The beginning and the end of a program under `ticketlock run`, inside its process.

Loaded by `_start/sitecustomize.py` before anything of the program. Whatever goes wrong here costs the report, never the
program.
"""

from __future__ import annotations

import atexit
import marshal
import os
import sys
from typing import Any

# Options on their way from `ticketlock run`; gone from the environment before the program looks.
VARIABLE = "TICKETLOCK_RUN"


def encode(options: dict[str, Any]) -> str:
    """Options as the value of an environment variable, for the same interpreter."""
    return marshal.dumps(options).hex()


def begin() -> None:
    """Replace the locks, and see to the report."""
    encoded = os.environ.pop(VARIABLE, None)
    if encoded is None:
        return
    try:
        options = marshal.loads(bytes.fromhex(encoded))
        _restore(options["environ"])
        if options["children"]:
            os.environ[VARIABLE] = encode({**options, "report": "none", "export": [], "quiet": True})
            os.environ["PYTHONPATH"] = options["pythonpath"]
        ending = Ending(options)
        # First of all, so that it comes last.
        atexit.register(ending.report)
        ending.active = _start(options)
    except Exception as problem:  # noqa: BLE001 - the program must go on
        say(f"locks are not replaced: {type(problem).__name__}: {problem}")


def _restore(environ: dict[str, str | None]) -> None:
    for name, value in environ.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _start(options: dict[str, Any]) -> bool:
    from . import _lab, _patch

    if os.environ.get("TICKETLOCK_SITES") != "0":
        _lab.set_sites(True)
    if options["order"]:
        _lab.set_order(True)
    if not _patch.patch(options["include"], options["exclude"]):
        if not options["quiet"]:
            say("TICKETLOCK_PATCH=0: locks are not replaced, and there will be no report")
        return False
    return True


class Ending:
    """What is done when the program ends."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.active = False
        self._pid = os.getpid()
        # The report's imports, not what the program has made of the path.
        self._path = list(sys.path)
        self._stderr = _identity(2)

    def report(self) -> None:
        """Make the report, unless this is a forked child."""
        if not self.active or os.getpid() != self._pid:
            return
        if self.options["report"] == "none" and not self.options["export"]:
            return
        _flush(getattr(sys, "stdout", None))
        path, sys.path = sys.path, self._path
        try:
            from . import _report

            text = _report.deliver(self.options)
        except Exception as problem:  # noqa: BLE001 - the program's exit code stays what it is
            text = f"ticketlock run: no report: {type(problem).__name__}: {problem}\n"
        finally:
            sys.path = path
        # A program that closed its stderr may have a file of its own under that number by now.
        if text and self._stderr is not None and _identity(2) == self._stderr:
            write(text)
        _keep_interrupt()


def _keep_interrupt() -> None:
    """A KeyboardInterrupt that nobody caught ends the process by its signal; running new code made the interpreter forget it."""
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        try:  # noqa: SIM105
            exec("raise KeyboardInterrupt")
        except KeyboardInterrupt:
            pass


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _flush(stream: Any) -> None:
    """What the program has written comes before what we write. An error is the interpreter's to report, after us."""
    try:  # noqa: SIM105 - contextlib is not loaded into the program
        stream.flush()
    except Exception:  # noqa: BLE001 - the stream may be anything, or closed
        pass


def write(text: str) -> None:
    """Write to the process's stderr, whatever the program has put in its place. A reader that is gone is no error."""
    _flush(getattr(sys, "stderr", None))
    _survive_sigpipe()
    encoding = getattr(sys.__stderr__, "encoding", None) or "utf-8"
    rest = memoryview(text.encode(encoding, "backslashreplace"))
    try:
        while rest:
            rest = rest[os.write(2, rest) :]
    except OSError:
        pass


def _survive_sigpipe() -> None:
    # Built in, so that it is there whatever became of the path.
    import _signal  # type: ignore[import-not-found]

    if hasattr(_signal, "SIGPIPE") and _signal.getsignal(_signal.SIGPIPE) == _signal.SIG_DFL:
        _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)


def say(message: str) -> None:
    """One line on stderr."""
    write(f"ticketlock run: {message}\n")
