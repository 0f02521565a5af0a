"""Which poller there is: compiled where the kernel is, too."""

from __future__ import annotations

from isthmus_router.amqp.kernel.handles import WHY_NOT_COMPILED

try:
    if WHY_NOT_COMPILED is not None:
        raise ImportError(WHY_NOT_COMPILED)
    from isthmus_router.amqp.sockets.compiled import Poller
except ImportError:
    from isthmus_router.amqp.sockets.plain import Poller  # type: ignore[assignment]

__all__ = ["Poller"]
