"""Names of links: one link of a name, in each direction, on a connection.

A peer that attaches a name again has lost the link that had it before, or has moved it to another session; the
earlier one is stolen. The standard has names hold for all connections between two containers. But clients have several
connections with links of one name: python-qpid-proton names links after container and address. They work with other
routers, and would steal from themselves in turns for ever.

Source: AMQP 1.0 part 2, 2.6.1 (naming a link), 2.8.18 (link errors).
"""

from __future__ import annotations

from isthmus_router.core.model import Link
from isthmus_router.core.terms import Condition, Direction

STOLEN = Condition(
    "amqp:link:stolen", "a link of this name and direction has been attached on another session"
)

_Name = tuple[int, Direction, str]


class LinkNames:
    """The links that clients have attached."""

    def __init__(self) -> None:
        self._links: dict[_Name, Link] = {}
        self._numbers: dict[tuple[int, Direction], int] = {}
        """Of links, by connection and direction."""

    def others(self, link: Link) -> int:
        """Number of links of this direction on the connection that have other names."""
        number = self._numbers.get((link.connection.id, link.direction), 0)
        return number - (_name(link) in self._links)

    def attached(self, link: Link) -> Link | None:
        """Take note of a link; the one that it takes the name from."""
        before = self._links.get(name := _name(link))
        self._links[name] = link
        if before is None:
            self._count(link, 1)
        return before if before is not link else None

    def gone(self, link: Link) -> None:
        """The link is detached; nothing happens if it is not known, or another has its name now."""
        name = _name(link)
        if self._links.get(name) is link:
            del self._links[name]
            self._count(link, -1)

    def _count(self, link: Link, change: int) -> None:
        key = link.connection.id, link.direction
        number = self._numbers.pop(key, 0) + change
        if number:
            self._numbers[key] = number


def _name(link: Link) -> _Name:
    return link.connection.id, link.direction, link.name
