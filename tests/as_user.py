"""`as_user.py UID ARGUMENTS`: the `ticketlock` command as another user. All that it may need is imported before."""

import encodings.idna  # noqa: F401
import importlib
import os
import pkgutil
import sys

import ticketlock

for module in pkgutil.walk_packages(ticketlock.__path__, "ticketlock."):
    if (
        not module.name.startswith(("ticketlock.bench", "ticketlock.pytest_plugin", "ticketlock._pytest"))
        and "_start" not in module.name
    ):
        importlib.import_module(module.name)
# Loaded late by the above.
import csv  # noqa: E402, F401
import pwd  # noqa: E402, F401

from ticketlock.cli import main  # noqa: E402

if __name__ == "__main__":
    user = int(sys.argv[1])
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    os.chdir("/")
    sys.exit(main(sys.argv[2:]))
