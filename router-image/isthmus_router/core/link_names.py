"""Names of links: one link of a name, in each direction, between this router and another container.

A peer that attaches a name again has lost the link that had it before, or has moved it to another session or
connection; the earlier one is stolen. Only one user can do that to its own links.

Source: AMQP 1.0 part 2, 2.6.1 (naming a link), 2.8.18 (link errors).
"""

from __future__ import annotations

from isthmus_router.core.model import Condition, Connection, Direction, Link

STOLEN = Condition(
    "amqp:link:stolen", "a link of this name and direction has been attached anew by the same container"
)

_Name = tuple[int | str, str | None, Direction, str]


class LinkNames:
    """The links that clients have attached."""

    def __init__(self) -> None:
        self._links: dict[_Name, Link] = {}

    def attached(self, link: Link) -> Link | None:
        """Take note of a link; the one that it takes the name from."""
        before = self._links.get(name := _name(link))
        self._links[name] = link
        return before if before is not link else None

    def gone(self, link: Link) -> None:
        """The link is detached; nothing happens if it is not known, or another has its name now."""
        name = _name(link)
        if self._links.get(name) is link:
            del self._links[name]


def _name(link: Link) -> _Name:
    connection: Connection = link.connection
    return connection.container or connection.id, connection.user, link.direction, link.name
