"""How many addresses each client may have: other routers have room for so many of this one, and no client fills it.

An address counts for the client that consumed from it first, and when that one leaves, for another one that does. A
client may have as many addresses as are still free, so that some are always left for others.
"""

from __future__ import annotations

from isthmus_router.core.address import Address
from isthmus_router.core.model import Connection
from isthmus_router.core.terms import Condition

MOST_ADDRESSES = 200_000
"""That other routers remember of one router (`routing.mobile`)."""
MOST_CHARACTERS = 2**25


class Claims:
    """The addresses of one router that count for its clients."""

    def __init__(self, most_addresses: int = MOST_ADDRESSES, most_characters: int = MOST_CHARACTERS) -> None:
        self._most = (most_addresses, most_characters)
        self._all = (0, 0)
        self._of: dict[str, tuple[int, int]] = {}
        """Addresses and their characters, by client."""

    def refusal(self, connection: Connection, address: Address) -> Condition | None:
        """Why the peer may not consume from another address; None if it may."""
        client = _client(connection)
        if client is None or address.claimant is not None or address.consumers:
            return None
        own = self._of.get(client, (0, 0))
        for has, more, total, most in zip(own, (1, len(address.key)), self._all, self._most, strict=True):
            if has + 2 * more > most - total:
                return Condition(
                    "amqp:resource-limit-exceeded",
                    f"This client has {own[0]} addresses of {own[1]} characters, and this router has no more room "
                    "for it: it takes no address that nobody else consumes from",
                )
        return None

    def added(self, connection: Connection, address: Address) -> None:
        """A link of the connection consumes from the address."""
        client = _client(connection)
        if address.claimant is None and client is not None:
            address.claimant = client
            self._count(client, 1, len(address.key))

    def removed(self, connection: Connection, address: Address) -> None:
        """A link of the connection consumes from it no longer."""
        claimant = address.claimant
        if claimant is None or (address.consumers and claimant != _client(connection)):
            return
        heir = _client(next(iter(address.consumers)).connection) if address.consumers else None
        if heir != claimant:
            address.claimant = heir
            self._count(claimant, -1, -len(address.key))
            if heir is not None:
                self._count(heir, 1, len(address.key))

    def _count(self, client: str, addresses: int, characters: int) -> None:
        has = self._of.pop(client, (0, 0))
        own = has[0] + addresses, has[1] + characters
        if own != (0, 0):
            self._of[client] = own
        self._all = self._all[0] + addresses, self._all[1] + characters


def _client(connection: Connection) -> str | None:
    """For whom addresses of the peer count; None for interior routers, and for the interior router of an edge."""
    return connection.client if connection.incoming and not connection.role.is_between_interiors else None
