"""Many edges with many addresses: what they cost the network, and how they survive the loss of their interior."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Endpoint
from tests.integration.support.client import Client, Clients
from tests.integration.support.forks import end_with_the_tests
from tests.integration.support.links import Receiver, Sender
from tests.integration.support.routers import Router, Routers, connector, eventually
from tests.integration.support.topology import Network

EDGES = 50
ADDRESSES = 100
"""Used on each edge: as many producers as consumers, each of the former with a consumer on the next edge."""
TRACKED = ADDRESSES // 2 + 1
"""Those with producers, and the address at which the edge itself looks for collectors of flow records."""
SECONDS_TO_RECOVER = 180.0
MANY_EDGES = Path(__file__).parents[2] / "bench" / "edges.py"


class Edges:
    """Many edge routers in one process, attached to all of these interiors, the first one preferred."""

    def __init__(self, routers: Routers, count: int, *uplink_ports: int) -> None:
        self.edges: list[Router] = []
        for number in range(count):
            edge = Router(
                routers.folder,
                f"E{number}",
                [
                    connector(port, "edge", name=f"to-{cost}", cost=cost)
                    for cost, port in enumerate(uplink_ports, 1)
                ],
                mode="edge",
            )
            # Fifty health servers would be fifty threads.
            edge.sections = [section for section in edge.sections if section[1].get("name") != "health"]
            edge.configure()
            self.edges.append(edge)
        self._log = (routers.folder / "edges.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, str(MANY_EDGES), *(str(edge.config_path) for edge in self.edges)],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_the_tests,  # noqa: PLW1509  # one system call
        )

    def stop(self) -> None:
        """End the process, as an operator would."""
        self._process.terminate()
        assert self._process.wait(30) == 0
        self._log.close()


def attached(router: Router) -> int:
    """Edges whose addresses an interior tracks."""
    return int(router.metric("tracked_edges"))


def path_computations(*routers: Router) -> list[float]:
    return [router.metric("path_computations_total") for router in routers]


@pytest.fixture
def network(routers: Routers) -> Network:
    """Two interior routers."""
    network = Network(routers)
    network.line("A", "B")
    return network.start()


@pytest.fixture
def edges(network: Network, routers: Routers) -> Iterator[list[Router]]:
    """Edges on both interiors, with A preferred."""
    edges = Edges(routers, EDGES, network.edge_ports["A"], network.edge_ports["B"])
    eventually(lambda: attached(network["A"]) == EDGES, "all edges are attached to A")
    yield edges.edges
    edges.stop()


class Flows:
    """On each edge senders to half of the addresses, and receivers for those of the edge before."""

    def __init__(self, clients: Clients, edges: list[Router], per_edge: int) -> None:
        self.clients = clients
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        connections: list[Client] = [clients.connect(edge.port) for edge in edges]
        for number, client in enumerate(connections):
            after = connections[(number + 1) % len(connections)]
            for index in range(per_edge):
                name = f"scale/{number}/{index}"
                self.receivers.append(after.receiver(name, credit=10, accept=True, wait=False))
                self.senders.append(client.sender(name, wait=False))

    def flow(self) -> None:
        """Send one message on every link until each is accepted; what comes back is sent again."""
        due = list(self.senders)

        def accepted() -> bool:
            waiting = []
            for sender in due:
                last = next(reversed(sender.sent.values()), None)
                if sender in fresh and last is not None and last.outcome == "accepted":
                    continue
                if sender.credit > 0 and (sender not in fresh or (last is not None and last.outcome)):
                    sender.send("x")
                    fresh.add(sender)
                waiting.append(sender)
            due[:] = waiting
            return not due

        fresh: set[Sender] = set()
        self.clients.until(accepted, "one message on each link", SECONDS_TO_RECOVER)

    def outcomes(self) -> set[str | None]:
        """All that deliveries ended in."""
        return {sent.outcome for sender in self.senders for sent in sender.sent.values()}

    def all_attached(self) -> bool:
        """Whether every client still has every link."""
        state = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_ACTIVE
        return all(item.link.state == state for item in (*self.senders, *self.receivers))


@pytest.mark.timeout(240)
def test_all_edges_recover_when_their_interior_is_killed(
    clients: Clients, network: Network, edges: list[Router]
) -> None:
    flows = Flows(clients, edges, ADDRESSES // 2)
    flows.flow()
    assert network["A"].metric("tracked_addresses") == EDGES * TRACKED
    network["A"].kill()
    eventually(lambda: attached(network["B"]) == EDGES, "all edges are attached to B", SECONDS_TO_RECOVER)
    flows.flow()
    assert network["B"].metric("tracked_addresses") == EDGES * TRACKED
    network["A"].start()
    eventually(lambda: attached(network["A"]) == EDGES, "all edges are back at A", SECONDS_TO_RECOVER)
    flows.flow()
    eventually(lambda: network["B"].metric("links", 'type="endpoint"') == 0, "nothing is left on B")
    assert flows.all_attached(), "clients have noticed nothing but outcomes"
    assert flows.outcomes() <= {"accepted", "released", "modified"}


def test_edges_and_their_clients_compute_no_paths(
    clients: Clients, network: Network, routers: Routers
) -> None:
    interiors = (network["A"], network["B"])
    before = path_computations(*interiors)
    assert all(before)
    told = [router.metric("routing_messages_total", 'opcode="LSU"') for router in interiors]
    edges = Edges(routers, 20, network.edge_ports["A"])
    eventually(lambda: attached(network["A"]) == 20, "all edges are attached")
    Flows(clients, edges.edges, 10).flow()
    clients.close()
    edges.stop()
    eventually(lambda: attached(network["A"]) == 0, "all edges are gone")
    assert path_computations(*interiors) == before
    assert [router.metric("routing_messages_total", 'opcode="LSU"') for router in interiors] == told


def test_the_number_of_clients_makes_no_difference_to_the_interior(
    clients: Clients, network: Network, routers: Routers
) -> None:
    edges = Edges(routers, 2, network.edge_ports["A"])
    eventually(lambda: attached(network["A"]) == 2, "both edges are attached")

    def proxies() -> float:
        return network["A"].metric("links", 'type="endpoint"')

    standing = proxies()
    Flows(clients, edges.edges, 10).flow()
    few = proxies() - standing
    assert few == 2 * 2 * 10, "one link for each address, edge and direction"
    for _ in range(5):
        Flows(clients, edges.edges, 10).flow()
    assert proxies() - standing == few
    clients.close()
    eventually(lambda: proxies() == standing, "every proxy is gone")
    edges.stop()
