"""What the turns of connections cost, so that one with costly events does not make the others wait.

An event is never left half done, and some take a hundred times as long as others. So connections whose last turns have
taken long come after the others, and have a part of the time of their own. Where there is too little time for all,
clients take turns, however many connections each of them has.

Elapsed time costs little to read. But while a connection has its turn, another process may get the processor. So the
CPU time of the thread decides on turns that seem to have been long. It costs more to read, and is read at the begin of
a round as well while there have been such turns lately.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from isthmus_router.amqp.kernel.state import ConnectionState

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection

T = TypeVar("T")

COSTLY_SECONDS: Final = 0.0002
"""Of a turn that is long."""
COSTLY_TURNS: Final = 8
"""As many short turns make a connection a usual one again."""
WATCHED_ROUNDS: Final = 64
"""After a turn that seems long."""
MOST_CLIENTS: Final = 10_000
"""Of which the router remembers when they have had their turns."""


def client_of(connection: AmqpConnection) -> Hashable:
    """Whose connections have their turns together. Each connection between interior routers counts for itself."""
    core = connection.core
    if core is None or core.client is None or core.role.is_between_interiors:
        return connection.id
    return core.client


class Rota:
    """Whose turn it is, where there is too little time for all."""

    def __init__(self) -> None:
        self._latest: dict[Hashable, int] = {}
        """When each client has had its last turn, in the order of the turns."""
        self._number = 0

    def had_turn(self, client: Hashable) -> None:
        """A connection of the client has had its turn."""
        self._number += 1
        self._latest[client] = self._number
        if len(self._latest) > MOST_CLIENTS:
            self.forget()

    def forget(self) -> None:
        """There is time for all."""
        self._latest.clear()

    def sort(self, waiting: Iterable[T], client: Callable[[T], Hashable]) -> list[T]:
        """The first one of each client comes first, beginning with the client that has waited longest, and so on."""
        taken: dict[Hashable, int] = {}
        ranked = []
        for one in waiting:
            of = client(one)
            number = taken[of] = taken.get(of, 0) + 1
            ranked.append((number, self._latest.get(of, 0), one))
        ranked.sort(key=lambda found: found[:2])
        return [one for _, _, one in ranked]


class Charges:
    """What has been measured in the present round."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.clock = clock
        self._cpu_clock = cpu_clock
        self._watched = 0
        """Rounds in which CPU time is read yet."""
        self._used = self._short = 0.0
        """CPU time when it was read last, and the time of short turns since then."""

    def begin_round(self) -> None:
        """Connections have their turns, one after the other."""
        if self._watched:
            self._watched -= 1
            self._used, self._short = self._cpu_clock(), 0.0

    def charge(self, connection: ConnectionState, elapsed: float) -> None:
        """The connection has had its turn, which has taken so many seconds."""
        long = False
        if elapsed < COSTLY_SECONDS:
            self._short += elapsed
        else:
            used = self._cpu_clock()
            long = self._watched > 0 and used - self._used - self._short >= COSTLY_SECONDS
            self._watched, self._used, self._short = WATCHED_ROUNDS, used, 0.0
        if long:
            connection.costly = COSTLY_TURNS
        elif connection.costly:
            connection.costly -= 1
