"""The poller: `plain.py` is the same in Python."""

from collections.abc import Sequence

from isthmus_router.amqp.connection import AmqpConnection
from isthmus_router.amqp.kernel.forward import Forwarder

class Poller:
    """Reads and writes sockets. It is a readable file itself while one of them can be read, or written again."""

    threads: int
    """That read and write, with the calling one."""

    def __init__(self, forwarder: Forwarder, threads: int) -> None:
        """For the connections of one driver.

        `threads` that read and write, with the calling one; fewer where there are fewer cores.
        """

    def fileno(self) -> int: ...
    def add(self, connection: AmqpConnection) -> None:
        """Read its socket from now on, in the calling thread. OSError when the system does not allow it."""

    def limit(self, connection: AmqpConnection, size: int) -> None:
        """Read no more than that many bytes of the connection's at a time, up to the usual size."""

    def share(self, connection: AmqpConnection) -> None:
        """From now on any thread may read and write it: its handshake, which may call Python, is over."""

    def watch(self, connection: AmqpConnection, *, reading: bool, writing: bool) -> None:
        """Whether to read it, and whether to write it once the socket takes bytes again."""

    def remove(self, connection: AmqpConnection) -> None:
        """Do not touch it any more; before its socket is closed. It may be one that is not there."""

    def read(self, seconds: float = ...) -> int:
        """Give the engine what has arrived, without waiting, and have the connections deal with it.

        When so many seconds are over, the others wait for the next round; first come those that have waited longest.
        Connections whose events are costly (`charges.py`), and those that have not opened, have a part of the time of
        their own: at least one of them is read. Of those that have not opened, at most `MOST_OPENING` are read.
        The number of connections that were read, or may be written again.
        """

    def write(self, connections: Sequence[AmqpConnection]) -> None:
        """Write what the engine has to send on each, as far as the sockets take it, and have them deal with that.

        Connections that are closed are passed over, and those whose socket was full, until it takes more.
        """

    def close(self) -> None:
        """End the threads. The connections must be gone."""
