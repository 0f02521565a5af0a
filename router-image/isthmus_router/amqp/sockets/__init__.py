"""Reading and writing the sockets of all connections, turn by turn.

In a turn a `Poller` first reads what has arrived on every socket into the engine, then the driver deals with the
engine's events, then the poller writes what has come of them. The first and the last part touch one connection each
and so can be spread over threads (`workerThreads`); all decisions are made in between, by one thread.
"""

from isthmus_router.amqp.kernel.handles import WHY_NOT_COMPILED

if WHY_NOT_COMPILED is None:
    from isthmus_router.amqp.sockets.compiled import Poller
else:
    from isthmus_router.amqp.sockets.plain import Poller  # type: ignore[assignment]

__all__ = ["Poller"]
