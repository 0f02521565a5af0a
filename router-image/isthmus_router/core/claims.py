"""The number of addresses that each client may have consumers of, so that no client uses up the room in other routers.

An address counts for the first client that consumed from it, and when that client leaves, for another consumer. The
address of a link route counts likewise for a client that creates it and for an edge that announces it. A client may
have as many addresses as are still free, so that some always remain for others.
"""

from __future__ import annotations

from collections.abc import Iterator

from isthmus_router.core.address import Address
from isthmus_router.core.model import Connection
from isthmus_router.core.terms import Condition

MOST_ADDRESSES = 200_000
"""Addresses of one router that the others store. They ignore further ones (`routing.mobile`)."""
MOST_CHARACTERS = 2**25
"""Characters of all these addresses together."""


class Claims:
    """The addresses of one router that count for its clients."""

    def __init__(self, most_addresses: int = MOST_ADDRESSES, most_characters: int = MOST_CHARACTERS) -> None:
        self._most = (most_addresses, most_characters)
        self._all = (0, 0)
        self._of: dict[str, tuple[int, int]] = {}
        """Addresses and their characters, by client."""

    def refusal(self, connection: Connection, address: Address) -> Condition | None:
        """Why the peer may not have another address; None if it may."""
        client = _client(connection)
        if client is None or address.claimant is not None or next(_users(address), None) is not None:
            return None
        own = self._of.get(client, (0, 0))
        for has, more, total, most in zip(own, (1, len(address.key)), self._all, self._most, strict=True):
            if has + 2 * more > most - total:
                return Condition(
                    "amqp:resource-limit-exceeded",
                    f"This client has {own[0]} addresses and link routes of {own[1]} characters, and this router has "
                    "no more room for it: it takes no address that nobody else consumes from, and no link route that "
                    "no other client has",
                )
        return None

    def added(self, connection: Connection, address: Address) -> None:
        """The peer uses the address: a link of the connection consumes from it, or its link route leads there."""
        client = _client(connection)
        if address.claimant is None and client is not None:
            address.claimant = client
            self._count(client, 1, len(address.key))

    def removed(self, connection: Connection, address: Address) -> None:
        """One of the uses of the address by the peer has ended."""
        claimant = address.claimant
        if claimant is None:
            return
        user = next(_users(address), None)
        if user is not None and claimant != _client(connection):
            return
        heir = None if user is None else _client(user)
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


def _users(address: Address) -> Iterator[Connection]:
    """The connections for whose clients the address may count."""
    for link in address.consumers:
        yield link.connection
    if address.link_route is not None:
        yield from address.link_route.users


def _client(connection: Connection) -> str | None:
    """For whom addresses of the peer count; None for interior routers, and for the interior router of an edge."""
    return connection.client if connection.incoming and not connection.role.is_between_interiors else None
