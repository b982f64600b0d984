"""Prints all that a program can know of how it was started."""

import inspect
import os
import signal
import sys
import threading

main = sys.modules["__main__"]
print("names", sorted(vars(main)))
for name in ("__name__", "__file__", "__package__", "__doc__", "__cached__"):
    print(name, repr(vars(main).get(name, "none")))
print("loader", type(getattr(main, "__loader__", None)).__name__, getattr(main, "__spec__", None) and main.__spec__.name)
print("argv", sys.argv)
print("path", sys.path)
print("flags", sys.flags)
print("options", sys._xoptions, sys.warnoptions)
print("depth", len(inspect.stack()))
print("environment", sorted((name, value) for name, value in os.environ.items() if name not in ("_", "SHLVL", "LC_CTYPE")))
print("importers", sorted(path for path in sys.path_importer_cache if "ticketlock" in path and "_start" in path))
print("customized", [name for name in ("sitecustomize", "usercustomize") if name in sys.modules])
print("signals", [(number, str(signal.getsignal(number))) for number in sorted(signal.valid_signals())])
print("threads", threading.enumerate()[0].name, len(threading.enumerate()))
print(
    "streams",
    [(stream.encoding, stream.errors, stream.line_buffering, stream.write_through) for stream in (sys.stdin, sys.stdout)],
)
print("hooks", sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getprofile(), sys.getrecursionlimit())
print("heavy", [name for name in ("rich", "argparse", "ticketlock.cli", "ticketlock.monitor") if name in sys.modules])
print("asked", sys.stdin.readline())
