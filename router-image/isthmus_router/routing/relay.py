"""Which link states a router passes on, and to whom.

Advertisements and requests travel along paths that the very change may have broken for routers that do not know of
it yet. An update in the name of its router needs no path but the link to the neighbour. So a changed link state goes
on to the neighbours, and all of them go to a new neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .messages import LinkStateUpdate
from .nodes import RouterTable


class LinkStateRelay:
    """What is to be passed on."""

    def __init__(self) -> None:
        self._changed: dict[str, int] = {}
        """Routers whose link state changed, and the control link on which that was heard."""
        self._new_neighbours: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._changed or self._new_neighbours)

    def changed(self, router: str, link: int) -> None:
        """The link state of a router, as heard on a control link, is another one than before."""
        self._changed[router] = link

    def neighbour_up(self, router: str) -> None:
        """This neighbour is new."""
        self._new_neighbours.add(router)

    def take(
        self, nodes: RouterTable, neighbours: Mapping[str, int]
    ) -> Iterator[tuple[str, LinkStateUpdate]]:
        """Each update with the neighbour that it is for; ``neighbours`` are control links by neighbour.

        What may be of a former life is held back: not every router looks at the instance of an update.
        """
        changed, self._changed = self._changed, {}
        new_neighbours, self._new_neighbours = self._new_neighbours, set()
        for node in nodes:
            if node.link_state is None or node.instance is None or not node.confirmed:
                continue
            update = LinkStateUpdate(node.id, node.instance, node.link_state)
            for neighbour, link in neighbours.items():
                wanted = neighbour in new_neighbours or changed.get(node.id, link) != link
                # Neighbours of the router itself hear it from there.
                if wanted and neighbour != node.id and neighbour not in node.link_state.peers:
                    yield neighbour, update
