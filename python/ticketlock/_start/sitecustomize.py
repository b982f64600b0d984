"""How `ticketlock run` gets into a program: the interpreter's `site` imports this before anything of the program.

`run` puts this folder first in PYTHONPATH. All that follows is then the interpreter's own doing, as without us: `__main__`,
`sys.argv`, `sys.path[0]`, tracebacks, exit codes. What led here is undone first, and whoever else has a sitecustomize gets
their turn.
"""

import os
import sys

_folder = os.path.dirname(os.path.abspath(__file__))
_home = os.path.dirname(os.path.dirname(_folder))
sys.path[:] = [_entry for _entry in sys.path if _entry != _folder]
sys.path_importer_cache.pop(_folder, None)

# Last: what the interpreter would find anyhow goes first.
sys.path.append(_home)
try:
    from ticketlock import _run
finally:
    sys.path.pop()
_run.begin()

del sys.modules["sitecustomize"]
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - the next one on the path, if there is any
except ModuleNotFoundError as _missing:
    if _missing.name != "sitecustomize":
        raise
    # As if this one were not there either.
    raise ModuleNotFoundError("No module named 'sitecustomize'", name="sitecustomize") from None
