"""Link routes that a container makes for its own connection."""

from __future__ import annotations

import pytest
from tests.unit.management.conftest import Client, SmallRouter

from isthmus_router.management.agent import ManagementAgent
from isthmus_router.management.connection_link_routes import MOST
from isthmus_router.management.port import ConnectionLinkRouteRow, Requester

TYPE = "router.connection.linkRoute"
WANTED = {"pattern": "b2.#", "direction": "in"}


@pytest.fixture
def container(router: SmallRouter) -> Client:
    return Client(ManagementAgent(router, router), Requester(1, container=True))


def test_it_is_for_the_connection_that_the_request_comes_on(router: SmallRouter, container: Client) -> None:
    answer = container.request("CREATE", WANTED, type=TYPE, name="mine")
    assert answer.status == 201, answer.description
    assert router.made_link_routes == [ConnectionLinkRouteRow(1, "mine", "b2.#", incoming=True)]
    (row,) = container.query(TYPE)
    assert row["identity"] == f"{TYPE}/1/mine"
    assert (row["name"], row["pattern"], row["direction"]) == ("mine", "b2.#", "in")


def test_without_a_name_it_has_that_of_its_pattern(router: SmallRouter, container: Client) -> None:
    for direction in ("in", "out"):
        assert container.request("CREATE", {"pattern": "b2", "dir": direction}, type=TYPE).status == 201
    assert [row.name for row in router.made_link_routes] == ["b2/in", "b2/out"]


def test_those_of_other_connections_are_not_read_to_make_another(
    router: SmallRouter, container: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be 50,000 of them, and each CREATE would take 0.2 s."""
    monkeypatch.setattr(router, "connection_link_routes", None)
    assert container.request("CREATE", WANTED, type=TYPE).status == 201


def test_it_is_deleted_by_who_made_it(router: SmallRouter, container: Client) -> None:
    container.request("CREATE", WANTED, type=TYPE, name="mine")
    other = Client(container.agent, Requester(2, container=True))
    answer = other.request("DELETE", type=TYPE, name="mine")
    assert answer.status == 403
    assert "another connection" in answer.description
    assert container.request("DELETE", type=TYPE, name="mine").status == 204
    assert router.made_link_routes == []


@pytest.mark.parametrize(
    ("attributes", "status", "reason"),
    [
        ({"direction": "in"}, 400, "pattern: required and missing"),
        ({"pattern": "..", "direction": "in"}, 400, "pattern: required and missing"),
        ({"pattern": "b2"}, 400, "direction None is not one of in, out"),
        ({"pattern": "b2", "direction": "both"}, 400, "direction 'both' is not one of in, out"),
        ({**WANTED, "prefix": "b2"}, 400, "Unknown attribute 'prefix'"),
        ({**WANTED, "name": 5}, 400, "name is not a string"),
        ({**WANTED, "name": "n" * 1001}, 400, "name has more than 1000 characters"),
        ({**WANTED, "pattern": "p" * 4097}, 400, "pattern: it has more than 4096 bytes"),
        ({**WANTED, "pattern": "é" * 2049}, 400, "pattern: it has more than 4096 bytes"),
        ({**WANTED, "pattern": "p." * 501}, 400, "pattern: it has more than 500 tokens"),
        ({**WANTED, "name": "there"}, 409, "there is a link route 'there' on this connection"),
    ],
)
def test_what_is_wrong_is_named(
    router: SmallRouter, container: Client, attributes: dict[str, object], status: int, reason: str
) -> None:
    router.made_link_routes.append(ConnectionLinkRouteRow(1, "there", "a", incoming=True))
    answer = container.request("CREATE", attributes, type=TYPE)
    assert (answer.status, len(router.made_link_routes)) == (status, 1)
    assert reason in answer.description


def test_the_policy_may_forbid_it(router: SmallRouter) -> None:
    requester = Requester(1, may_take_links=lambda pattern, incoming: incoming and pattern == "b2.#")
    container = Client(ManagementAgent(router, router), requester)
    for attributes, right in (
        ({**WANTED, "pattern": "#"}, "receive from"),
        ({**WANTED, "direction": "out"}, "send to"),
    ):
        answer = container.request("CREATE", attributes, type=TYPE)
        assert answer.status == 403
        assert "allowDynamicLinkRoutes" in answer.description
        assert right in answer.description
    assert container.request("CREATE", WANTED, type=TYPE).status == 201


def test_a_pattern_is_examined_before_the_policy(router: SmallRouter) -> None:
    """Which takes time for each token."""
    asked: list[str] = []
    requester = Requester(1, may_take_links=lambda pattern, incoming: bool(asked.append(pattern)))  # type: ignore[func-returns-value]
    container = Client(ManagementAgent(router, router), requester)
    assert container.request("CREATE", {**WANTED, "pattern": "p." * 501}, type=TYPE).status == 400
    assert not asked


def test_nobody_makes_one_from_elsewhere(client: Client) -> None:
    answer = client.request("CREATE", WANTED, type=TYPE)
    assert answer.status == 403
    assert "from elsewhere" in answer.description


def test_there_is_a_bound(router: SmallRouter, container: Client) -> None:
    router.made_link_routes += [
        ConnectionLinkRouteRow(1, str(number), "a", incoming=True) for number in range(MOST)
    ]
    assert container.request("CREATE", WANTED, type=TYPE).status == 400
    assert (
        Client(container.agent, Requester(2, container=True)).request("CREATE", WANTED, type=TYPE).status
        == 201
    )
