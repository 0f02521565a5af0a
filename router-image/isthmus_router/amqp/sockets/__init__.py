"""Reading and writing the sockets of all connections, turn by turn.

In a turn a `Poller` first reads what has arrived on every socket into the engine, then the driver deals with the
engine's events, then the poller writes what has come of them. The first and the last part touch one connection each
and so can be spread over threads (`workerThreads`); all decisions are made in between, by one thread.
"""
