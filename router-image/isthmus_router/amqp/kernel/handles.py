"""Which kernel there is, and what it knows deliveries by.

The common case of forwarding is compiled (`drain.pyx`). Where there was no compiler, or `ISTHMUS_KERNEL` is `python`,
the same is done in Python (`forward.py`, `settlement.py`), more slowly.
"""

from __future__ import annotations

import logging
import os
from typing import Any

log = logging.getLogger("ROUTER")

try:
    if os.environ.get("ISTHMUS_KERNEL") == "python":
        raise ImportError("the environment asks for Python")
    from isthmus_router.amqp.kernel.drain import (
        Drain,
        advance,
        count_message,
        equip,
        forget,
        handle,
        has_room,
        is_shut_session,
        key,
        release_written,
        retain,
        written,
    )

    WHY_NOT_COMPILED: str | None = None
    """Why everything is forwarded in Python."""
except ImportError as error:
    WHY_NOT_COMPILED = str(error)
    Drain: Any = None  # type: ignore[no-redef]
    from isthmus_router.amqp.kernel.buffers import (
        advance,
        equip,
        forget,
        release_written,
        retain,
        written,
    )
    from isthmus_router.amqp.kernel.histograms import Histograms
    from isthmus_router.amqp.kernel.outgoing import has_room, is_shut_session

    count_message = Histograms.count_message  # type: ignore[assignment]

    def key(pn: Any) -> Any:
        """What the kernel knows a delivery by."""
        return pn

    def handle(address: Any) -> Any:
        """The delivery that has such a key."""
        return address


__all__ = [
    "WHY_NOT_COMPILED",
    "Drain",
    "advance",
    "count_message",
    "equip",
    "forget",
    "handle",
    "has_room",
    "is_shut_session",
    "key",
    "release_written",
    "retain",
    "written",
]
