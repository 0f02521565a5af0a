"""The sockets of proton, on which an attempt to connect that fails ends nothing else.

proton lets an error of a look-up, or of the second address of a host, end the thread that runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proton.handlers import IOHandler


class Dialling(IOHandler):
    """To be the global handler of a container."""

    def __init__(self, failed: Callable[[Any, str], None]) -> None:
        """`failed` is called with a connection that cannot be made, and the reason."""
        super().__init__()
        self._failed = failed

    def on_connection_bound(self, event: Any) -> None:
        """Look the host up, and connect to its first address."""
        try:
            super().on_connection_bound(event)
        except (OSError, UnicodeError) as error:
            event.transport._selectable = None  # for which proton looks, at the end
            self._failed(event.connection, str(error))

    def on_reactor_quiesced(self, event: Any) -> None:
        """Wait for sockets, and read and write. A connection whose next address fails gets no answer."""
        try:
            super().on_reactor_quiesced(event)
        except OSError:
            event.reactor.yield_()
