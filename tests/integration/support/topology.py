"""Networks of routers: lines, rings, meshes and edges."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable

from tests.integration.support.links import Receiver, Sender
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, Section, connector, eventually, listener

ROUTER_ATTRIBUTES = {"helloIntervalSeconds": 1, "helloMaxAgeSeconds": 3}
CONVERGENCE_SECONDS = 20.0


def await_everyone(sender: Sender, consumers: list[Receiver]) -> None:
    """Send until everyone gets one copy: consumers are heard of, and paths computed, everywhere."""

    def copies() -> list[int]:
        for consumer in consumers:
            consumer.received.clear()
        sender.deliver("hello")  # its outcome comes when every copy is settled, so none is left under way
        return [len(consumer.received) for consumer in consumers]

    eventually(lambda: copies() == [1] * len(consumers), "one copy for each")
    for consumer in consumers:
        consumer.received.clear()


class Network:
    """Interior routers joined by connectors, and edges attached to them."""

    def __init__(self, routers: Routers, *, common: Iterable[Section] = ()) -> None:
        self.routers = routers
        self.common = tuple(common)
        self.inter_router_ports: dict[str, int] = {}
        self.edge_ports: dict[str, int] = {}

    def __getitem__(self, router_id: str) -> Router:
        return self.routers.all[router_id]

    def interior(self, *router_ids: str, **attributes: object) -> None:
        """Add interior routers, not started yet."""
        for router_id in router_ids:
            port, edge_port = free_port(), free_port()
            self.inter_router_ports[router_id], self.edge_ports[router_id] = port, edge_port
            router = self.routers.add(
                router_id,
                listener(port, "inter-router", name="routers"),
                listener(edge_port, "edge", name="edges"),
                *self.common,
                mode="interior",
            )
            router.sections[0][1].update(ROUTER_ATTRIBUTES | attributes)

    def join(self, from_id: str, to_id: str, *, cost: int = 1) -> None:
        """A connector from one interior router to another."""
        section = connector(self.inter_router_ports[to_id], name=f"to-{to_id}", cost=cost)
        self[from_id].sections.append(section)

    def set_cost(self, from_id: str, to_id: str, cost: int) -> None:
        """Change the cost of a connector while its router runs."""
        name = f"to-{to_id}"
        next(section for _, section in self[from_id].sections if section.get("name") == name)["cost"] = cost
        self[from_id].configure()

    def edge(self, router_id: str, *interior_ids: str) -> Router:
        """Add an edge router that attaches to the first of these that it reaches."""
        uplinks = [
            connector(self.edge_ports[interior_id], "edge", name=f"to-{interior_id}")
            for interior_id in interior_ids
        ]
        return self.routers.add(router_id, *uplinks, *self.common, mode="edge")

    def line(self, *router_ids: str, cost: int = 1) -> None:
        """Interior routers in a line."""
        self.interior(*router_ids)
        for left, right in itertools.pairwise(router_ids):
            self.join(left, right, cost=cost)

    def ring(self, *router_ids: str) -> None:
        """Interior routers in a ring."""
        self.line(*router_ids)
        self.join(router_ids[-1], router_ids[0])

    def mesh(self, *router_ids: str) -> None:
        """Interior routers, each joined to every other."""
        self.interior(*router_ids)
        for at, router_id in enumerate(router_ids):
            for other in router_ids[at + 1 :]:
                self.join(router_id, other)

    def start(self) -> Network:
        """Start everything and wait until every interior router knows all others."""
        self.routers.start_all()
        self.converge()
        return self

    def converge(self, timeout: float = CONVERGENCE_SECONDS) -> float:
        """Wait until every running interior router knows all others, and their links; seconds it took."""
        started = time.monotonic()
        interior = {router_id for router_id in self.inter_router_ports if self[router_id].process is not None}
        for router_id in sorted(interior):
            eventually(
                lambda r=router_id: set(self.costs(r)) == interior - {r},  # type: ignore[misc]
                f"{router_id} sees {sorted(interior - {router_id})}",
                timeout,
            )
        took = time.monotonic() - started
        eventually(lambda: self._agree(interior), "every router knows the links of every other", timeout)
        return took

    def _agree(self, interior: set[str]) -> bool:
        """Whether all have computed their paths from the same picture."""
        pictures: dict[str, set[tuple[str, ...]]] = {router_id: set() for router_id in interior}
        links: dict[str, set[str]] = {}  # that there should be, as far as one end knows
        for router_id in interior:
            found = self[router_id].status()
            dialled = {row["name"].removeprefix("to-") for row in found["connectors"]}
            links[router_id] = {row["id"] for row in found["neighbors"]} | (dialled & interior)
            for node in found["nodes"]:
                pictures.setdefault(node["id"], set()).add(tuple(node["peers"]))
        return pictures.keys() == interior and all(
            len(seen) <= 1 and all(links[router_id] <= set(peers) <= interior for peers in seen)
            for router_id, seen in pictures.items()
        )

    def costs(self, router_id: str) -> dict[str, int]:
        """Path costs to the routers that one router knows."""
        return {node["id"]: node["cost"] for node in self[router_id].status()["nodes"]}

    def await_costs(self, router_id: str, expected: dict[str, int]) -> None:
        """Wait until a router has found its best paths."""
        found: dict[str, int] = {}

        def settled() -> bool:
            found.clear()
            found.update(self.costs(router_id))
            return found == expected

        try:
            eventually(settled, f"costs {expected} at {router_id}", CONVERGENCE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}; they are {found}") from None

    def neighbours(self, router_id: str) -> set[str]:
        """Routers that one router is directly connected to."""
        return {row["id"] for row in self[router_id].status()["neighbors"]}
