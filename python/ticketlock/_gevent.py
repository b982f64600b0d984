"""Makes way for gevent, which looks at Python's own locks to replace them by ones for its green threads."""

from __future__ import annotations

import sys
from typing import Any


def will_patch(event: Any) -> None:
    """Called by gevent through an entry point, before it patches: all names get back what they had."""
    patch = sys.modules.get("ticketlock._patch")
    if patch is not None and getattr(event, "module_name", "threading") in ("threading", "_thread", "thread"):
        patch.make_way("gevent")
