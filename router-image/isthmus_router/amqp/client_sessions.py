"""The sessions of a connection that keep clients apart, for routed links or for streams: which links share one.

A link that has to wait fills the window of its session, and then the others in the session wait as well. So links have
sessions of their own, up to a number of them, and then share those of their own client. Links of different clients
share a session only if the container allows no more sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from isthmus_router.amqp.engine import Pointer
from isthmus_router.core.model import Link

SINGLE_SESSIONS = 1000
"""As long as there are fewer, also links of a client that has one get another; the engine walks over all sessions to
find a free channel."""
PART_OF_CLIENT, PART_OF_ROUTER = 4, 2
"""Such a part of what is left a client may have before it shares, and a router for the clients behind it."""
MOST_EXAMINED = 64
"""Sessions in which messages wait that are passed over in the search for one in which none do."""
MOST_SESSIONS = 4000
"""With more clients, several share one."""


class Sharer(NamedTuple):
    """Whose links may share a session."""

    client: Hashable
    """A user, a host, an edge router or a connection."""
    session: Pointer | None = None
    """In which they come, if a router attaches them: it keeps clients apart itself."""

    @classmethod
    def of(cls, link: Link) -> Sharer:
        """For a link that a peer has attached."""
        connection = link.connection
        client: Hashable = connection.client or connection
        return cls(client, link.session) if connection.role.is_between_routers else cls(client)


class ClientSessions:
    """Those of one connection."""

    def __init__(
        self,
        begin: Callable[[], Pointer],
        free: Callable[[], int],
        has_room: Callable[[Pointer], bool],
        *,
        of_router: float = 1 / PART_OF_ROUTER,
        waits: Callable[[Pointer], bool] = lambda _: False,
    ) -> None:
        """`free` returns how many more sessions may be begun, `has_room` whether one may have another link, `waits`
        whether something waits there, so that another session is better. A router may have `of_router` times what is
        left."""
        self._begin, self._free, self._has_room = begin, free, has_room
        self._of_router, self._waits = of_router, waits
        self._links: dict[Pointer, int] = {}
        """How many there are in each session; the session that has had a link last is the last one, as below."""
        self._sharers: dict[Pointer, Sharer] = {}
        """For whose link each session was begun."""
        self._of_sharer: dict[Sharer, dict[Pointer, None]] = {}
        self._of_client: dict[Hashable, dict[Pointer, None]] = {}

    def take(self, sharer: Sharer) -> Pointer | None:
        """The session for another link, which counts from now on; None if there is none with room."""
        free = self._left()
        own, of_client = self._of_sharer.get(sharer, {}), self._of_client.get(sharer.client, {})
        if free > 0 and (not of_client or self._may_have_another(own, of_client, free)):
            session = self._another(sharer)
        else:
            found = self._with_room(own)
            if found is None and not own:
                found = self._with_room(of_client)
            if found is None and free > 0:
                found = self._another(sharer)
            if found is None and not of_client:
                found = self._with_room(self._links)
            if found is None:
                return None
            session = found
        self._links[session] = self._links.pop(session, 0) + 1
        sharer = self._sharers[session]
        for sessions in (self._of_sharer[sharer], self._of_client[sharer.client]):
            del sessions[session]
            sessions[session] = None
        return session

    def _left(self) -> int:
        return min(self._free(), MOST_SESSIONS - len(self._links))

    def _may_have_another(self, own: Iterable[Pointer], of_client: dict[Pointer, None], free: int) -> bool:
        """Whether a client that has sessions gets one more while those have room.

        It leaves most of them to others: of 1,000, a client alone gets 200. A router, which stands for many clients,
        gets a third of all for links that it keeps apart.
        """
        if own:
            return len(of_client) < min(free, SINGLE_SESSIONS - len(self._links)) // PART_OF_CLIENT
        return len(of_client) < int(free * self._of_router)

    def _with_room(self, sessions: Iterable[Pointer]) -> Pointer | None:
        first = None
        for number, session in enumerate(filter(self._has_room, sessions), 1):
            if not self._waits(session):
                return session
            first = first or session
            if number == MOST_EXAMINED:
                break
        return first

    def _another(self, sharer: Sharer) -> Pointer:
        session = self._begin()
        self._sharers[session] = sharer
        self._of_sharer.setdefault(sharer, {})[session] = None
        self._of_client.setdefault(sharer.client, {})[session] = None
        return session

    def hand_over(self, session: Pointer, sharer: Sharer) -> bool:
        """Whether a link in a session may be used for another sharer, whose the session is from now on if it is one of
        these. It must be the only link there, and the sharer's client may have another session, unless the session is
        the sharer's already."""
        before = self._sharers.get(session)
        if before is None or before == sharer:
            return True
        links = self._links[session]
        own, of_client = self._of_sharer.get(sharer, {}), self._of_client.get(sharer.client, {})
        if links != 1 or (
            before.client != sharer.client
            and of_client
            and not self._may_have_another(own, of_client, self._left())
        ):
            return False
        self.remove(session)
        self._links[session], self._sharers[session] = links, sharer
        self._of_sharer.setdefault(sharer, {})[session] = None
        self._of_client.setdefault(sharer.client, {})[session] = None
        return True

    def __bool__(self) -> bool:
        return bool(self._links)

    def link_gone(self, session: Pointer) -> None:
        """One link less in a session, if it is one of these."""
        if session in self._links:
            self._links[session] -= 1

    def links(self, session: Pointer) -> int:
        """How many a session has; 0 if it is none of these."""
        return self._links.get(session, 0)

    def unused(self) -> list[Pointer]:
        """Sessions whose links are gone. They are not used again: unread messages may fill their windows."""
        return [session for session, links in self._links.items() if links == 0]

    def remove(self, session: Pointer) -> None:
        """A session ends, if it is one of these."""
        if self._links.pop(session, None) is None:
            return
        sharer = self._sharers.pop(session)
        del self._of_sharer[sharer][session], self._of_client[sharer.client][session]
        if not self._of_sharer[sharer]:
            del self._of_sharer[sharer]
        if not self._of_client[sharer.client]:
            del self._of_client[sharer.client]
