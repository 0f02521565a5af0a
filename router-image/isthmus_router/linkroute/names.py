"""Names of routed links: what a link is called on its way, and at the container.

Between routers the name tells that the link is routed, and by which routers it has come, so that a link that loops
while paths change is found out. The container gets the client's own name for the link, followed by the client's
container id and the user, if the client has authenticated: it sees the links of many clients as those of one container,
the router, and no client may get the name of a link of another user.

Source: AMQP 1.0 part 2, 2.6.1 (naming a link); the form at the container is qpid-dispatch's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_hex
from urllib.parse import quote, unquote

from isthmus_router.core.model import Connection
from isthmus_router.core.terms import Direction

_ROUTED = "qd.link-route/"
_END = "//"
_USER = "@user="
_ENDS_WITH_USER = re.compile(f"{_USER}[^@]*", re.DOTALL)
_ROUTER_PRODUCTS = frozenset({"isthmus-router", "qpid-dispatch-router"})
_NO_NUMBERS = 0b11
"""Numbers start at 2."""
LONGEST_CONTAINER = 256
"""Characters of a container id that are part of names. A longer one has its digest there, because each link of a client
retains the id several times."""
MOST_TRIED = 8
"""Numbers that are tried for a link. If other links have all of these in names of their own, the link gets a random
suffix in place of a number."""

_Key = tuple[Connection, Direction, str]


@dataclass(frozen=True, slots=True)
class RouteName:
    """The name of a routed link, as it came in."""

    name: str
    """For the container."""
    passed: tuple[str, ...] = ()
    """Ids of the routers that have routed it."""

    @staticmethod
    def returns(name: str, connection: Connection) -> bool:
        """Whether a link comes again from a router of another network, which attaches as a client does.

        Two networks that take each other for a container would pass it on for ever.
        """
        is_router = connection.properties.get("product") in _ROUTER_PRODUCTS
        return is_router and f"@{_in_names(connection.container)}@" in f"{name}@"

    @classmethod
    def of_client(cls, name: str, container: str, user: str | None = None) -> RouteName:
        """Of a link that a client has attached here; `user` has been proven.

        What is behind the last "@" shows the user. It has neither an "@" nor a "." of the user's own, so that it is not
        taken for a container id or for the number of a name in use (`NamesInUse`). If an anonymous client has such an
        end in its own names, an empty user follows.
        """
        own = f"{name}@{_in_names(container)}"
        if user:
            return cls(f"{own}{_USER}{quote(user, safe='').replace('.', '%2E')}")
        at = own.rfind("@")
        return cls(own + _USER if _ENDS_WITH_USER.fullmatch(own, at) else own)

    @classmethod
    def read(cls, name: str) -> RouteName | None:
        """Of a link that a router has attached; None if that is not a routed one."""
        if not name.startswith(_ROUTED):
            return None
        routers, end, own = name.removeprefix(_ROUTED).partition(_END)
        return cls(own, tuple(map(unquote, routers.split("/")))) if end else None

    def beyond(self, router_id: str) -> str:
        """The name on the way to the next router."""
        return (
            _ROUTED
            + "/".join(quote(passed, safe="") for passed in (*self.passed, router_id))
            + _END
            + self.name
        )


def _in_names(container: str) -> str:
    if len(container) <= LONGEST_CONTAINER:
        return container
    return f"sha256:{sha256(container.encode()).hexdigest()}"


class NamesInUse:
    """Names of the routed links that this router has attached: each is used once on a connection and direction.

    A link whose name is in use gets the smallest free number after it. Finding it costs the same for many links with
    this name as for few, apart from a bit for each.
    """

    def __init__(self) -> None:
        self._used: dict[_Key, int] = {}
        """The number at the end of each; 0 if this class has given none."""
        self._numbers: dict[_Key, int] = {}
        """For names of which several links want the same: bit N is set while number N is given."""

    def take(self, connection: Connection, direction: Direction, name: str) -> str:
        """The name, with a number after it if a link that is still there has it (a client with two connections)."""
        wanted = (connection, direction, name)
        if wanted not in self._used:
            self._used[wanted] = 0
            return name
        given = taken = self._numbers.get(wanted, _NO_NUMBERS)
        for _ in range(MOST_TRIED):
            bit = ~taken & (taken + 1)
            number = bit.bit_length() - 1
            free = f"{name}.{number}"
            if (connection, direction, free) not in self._used:
                self._numbers[wanted] = given | bit
                break
            taken |= bit  # a link has this as its own name
        else:
            free, number = f"{name}.{token_hex(8)}", 0
        self._used[connection, direction, free] = number
        return free

    def free(self, connection: Connection, direction: Direction, name: str) -> None:
        """The link is gone."""
        number = self._used.pop((connection, direction, name), 0)
        if not number:
            return
        wanted = (connection, direction, name.removesuffix(f".{number}"))
        given = self._numbers[wanted] & ~(1 << number)
        if given == _NO_NUMBERS:
            del self._numbers[wanted]
        else:
            self._numbers[wanted] = given
