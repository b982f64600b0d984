"""`ticketlock attach PID`: replaces the locks of a program that runs already.

Through `sys.remote_exec`, which Python has from 3.14 on and which runs a file inside the program, in its main thread, where
that may be done safely. Only locks made from then on are ours; the others stay what they are.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import ticketlock
from ticketlock import _attach
from ticketlock.monitor.errors import IncompatibleError, NotFoundError, NotInstrumentedError, NotPermittedError

from .output import UsageError, complain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from .options import Parser
    from .output import Terminal

TIMEOUT = 124
DEFAULT_PATIENCE_S = 10.0
_LOOK_S = 0.02

# Runs in names of its own, whatever those are that the interpreter lends it. The program's own ticketlock goes first.
_INSIDE = """\
import sys
sys.path.append({home!r})
try:
    from ticketlock import _attach
except Exception as problem:
    with open({answer!r} + ".tmp", "w", encoding="utf-8") as file:
        file.write("refused\\nticketlock cannot be loaded there: " + str(problem))
    import os
    os.replace({answer!r} + ".tmp", {answer!r})
else:
    _attach.begin({answer!r})
finally:
    sys.path.remove({home!r})
"""


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the command and its options."""
    from .options import subparser

    parser = subparser(
        commands,
        "attach",
        "replace the locks of a program that runs already (Python 3.14 and newer)",
        "Have the locks that a running program makes from now on be ticketlock's, and report. Needs Python 3.14 or newer, the\n"
        "same version on both sides, and the right to debug the program.",
        "ticketlock attach 4242 && ticketlock top 4242",
    )
    parser.add_argument("pid", metavar="PID", help="the program's process id")
    parser.add_argument(
        "--timeout",
        metavar="S",
        default=None,
        help=f"wait so many seconds for the program to do it (default: {DEFAULT_PATIENCE_S:g})",
    )


def run(parsed: argparse.Namespace, out: Terminal, _: Terminal) -> int:
    """Attach, and say what came of it."""
    pid = _positive("PID", parsed.pid, int)
    patience_s = DEFAULT_PATIENCE_S if parsed.timeout is None else _positive("--timeout", parsed.timeout, float)
    try:
        unseen = attach(pid, patience_s)
    except TimeoutError as late:
        complain("ticketlock attach", str(late))
        return TIMEOUT
    before = f"; {unseen} standard locks that were there before stay unseen" if unseen else ""
    out.write(f"locks that process {pid} makes from now on report{before}\nwatch them with: ticketlock top {pid}\n")
    return 0


def _positive(option: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        value = kind(text)
    except ValueError:
        value = 0
    if not 0 < value < 2**31:
        raise UsageError(f"{option}: '{text}' is no number above 0; give {'a process id' if kind is int else 'seconds'}")
    return value


def attach(pid: int, patience_s: float) -> int:
    """Replace the locks of a process; returns how many standard ones it had.

    Raises MonitorError, with cause and remedy, if that cannot be; TimeoutError if the process did not come to it in time.
    """
    remote_exec = _remote_exec()
    _check_process(pid)
    folder = tempfile.mkdtemp(prefix="ticketlock-attach-")
    answer = os.path.join(folder, "answer")
    script = os.path.join(folder, "attach.py")
    home = os.path.dirname(os.path.dirname(os.path.abspath(ticketlock.__file__)))
    with open(script, "w", encoding="utf-8") as file:
        file.write(f"exec({_INSIDE.format(home=home, answer=answer)!r}, {{}})\n")
    _hand_over(pid, folder, script)
    try:
        _send(remote_exec, pid, script)
        words = _answer(pid, answer, patience_s)
    except TimeoutError:
        raise  # the process may still come to it, so the file stays
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    kind, _, rest = words.partition("\n")
    if kind != _attach.DONE:
        raise NotInstrumentedError(f"process {pid} refuses: {rest}", "nothing was changed there")
    return int(rest)


def _remote_exec() -> Callable[[int, str], object]:
    found: Callable[[int, str], object] | None = getattr(sys, "remote_exec", None)
    if found is None:
        raise IncompatibleError(
            f"this command runs on Python {sys.version_info.major}.{sys.version_info.minor}, and programs can be entered "
            "from 3.14 on",
            "start the program with `ticketlock run` instead, or call ticketlock.patch() in it",
        )
    return found


def _check_process(pid: int) -> None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        raise NotFoundError(f"there is no process {pid}", "see `ticketlock ps`") from None
    except PermissionError:
        raise NotPermittedError(f"process {pid} is another user's", "attach as that user, or as root") from None
    if _mount_namespace(pid) != _mount_namespace(os.getpid()):
        raise NotPermittedError(f"process {pid} sees other files than we (a container)", "run ticketlock attach inside it")


def _mount_namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return None


def _hand_over(pid: int, *paths: str) -> None:
    """What root has made, the program's user must be able to read."""
    try:
        status = os.stat(f"/proc/{pid}")
    except OSError:
        return
    if os.geteuid() == 0 and status.st_uid != 0:
        for path in paths:
            os.chown(path, status.st_uid, status.st_gid)


def _send(remote_exec: Callable[[int, str], object], pid: int, script: str) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        remote_exec(pid, script)
    except ProcessLookupError:
        raise NotFoundError(f"there is no process {pid} any more", "see `ticketlock ps`") from None
    except PermissionError as problem:
        raise NotPermittedError(
            f"the system does not let us into process {pid} ({problem})",
            "attach as root or with CAP_SYS_PTRACE, or set kernel.yama.ptrace_scope to 0",
        ) from None
    except (RuntimeError, OSError) as problem:
        text = str(problem)
        if "enabled" in text or "disabled" in text:
            raise NotPermittedError(
                f"entering processes is switched off there or here ({text})",
                "start both without PYTHON_DISABLE_REMOTE_DEBUG and -X disable-remote-debug",
            ) from None
        raise IncompatibleError(
            f"process {pid} cannot be entered from Python {version} ({text})",
            f"it must run the same Python as this command, here {sys.version.split()[0]}",
        ) from None


def _answer(pid: int, path: str, patience_s: float) -> str:
    until = time.monotonic() + patience_s
    while True:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            pass
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            raise NotFoundError(f"process {pid} ended before it answered", "see `ticketlock ps`") from None
        if time.monotonic() > until:
            raise TimeoutError(
                f"process {pid} has not answered in {patience_s:g} s: its main thread is busy outside of Python, or waits; "
                "it will do what was asked when it comes back"
            )
        time.sleep(_LOOK_S)
