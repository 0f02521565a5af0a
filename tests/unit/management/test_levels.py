"""The level of a connection decides which requests it may make."""

from __future__ import annotations

import pytest
from tests.unit.management.conftest import Client, Response, answer_of

from isthmus_router.core.access import ManagementLevel
from isthmus_router.management.agent import ManagementAgent
from isthmus_router.management.port import Requester
from isthmus_router.message.control import Message, Properties

BASIC = [
    ("QUERY", {"entityType": "router"}),
    ("READ", {"type": "router", "identity": "router/A"}),
    ("GET-TYPES", {}),
    ("GET-SCHEMA", {}),
    ("GET-JSON-SCHEMA", {}),
]
READ = [
    ("QUERY", {}),
    ("QUERY", {"type": "management"}),
    ("READ", {"identity": "router/A"}),
    ("GET-LOG", {}),
    ("GET-MGMT-NODES", {}),
    *(
        ("QUERY", {"entityType": name})
        for name in ("connection", "router.link", "router.address", "router.node", "connector", "sslProfile")
    ),
]
WRITE = [
    ("CREATE", {"type": "connector", "name": "mine"}),
    ("UPDATE", {"type": "router", "identity": "router/A"}),
    ("DELETE", {"type": "listener", "name": "clients"}),
    ("CREATE", {"type": "router.connection.linkRoute"}),
]


def ask(agent: ManagementAgent, level: ManagementLevel, operation: str, asked: dict[str, str]) -> Response:
    return Client(agent, Requester(1, level=level)).request(operation, **asked)


@pytest.mark.parametrize(
    ("requests", "needed"),
    [(BASIC, ManagementLevel.BASIC), (READ, ManagementLevel.READ), (WRITE, ManagementLevel.WRITE)],
)
def test_a_request_needs_its_level(
    client: Client,
    requests: list[tuple[str, dict[str, str]]],
    needed: ManagementLevel,
) -> None:
    for operation, asked in requests:
        for level in ManagementLevel:
            answer = ask(client.agent, level, operation, asked)
            assert (answer.status == 403) is (level < needed), (operation, asked, level, answer)
            if answer.status == 403:
                assert f"needs management: {needed.label}" in answer.description
                assert "Set the attribute 'management' of the listener" in answer.description


def test_a_policy_or_the_role_of_a_container_decides_on_link_routes_of_its_own(client: Client) -> None:
    body = {"pattern": "b", "direction": "in"}
    for requester in (
        Requester(1, level=ManagementLevel.BASIC, may_take_links=lambda pattern, incoming: True),
        Requester(1, level=ManagementLevel.BASIC, container=True),
    ):
        answer = Client(client.agent, requester).request("CREATE", body, type="router.connection.linkRoute")
        assert answer.status != 403


@pytest.mark.parametrize(
    "reply_to",
    ["mc/sfe.all", "amqp:/amqp:/sfe.x", "_local/qdhello", "_topo/0/A/$relay-bridge", "$management", ""],
)
def test_no_response_goes_to_a_control_address(client: Client, reply_to: str) -> None:
    request = Message(
        properties=Properties(reply_to=reply_to),
        application_properties={"operation": "QUERY", "entityType": "router"},
        body={},
    )
    assert answer_of(client.agent, request) is None
