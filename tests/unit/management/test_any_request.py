"""Whatever a request holds, it gets an answer that says what was wrong with it, and the agent goes on."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.management.conftest import CONF, Client, SmallRouter, connection

from isthmus_router.config import parse
from isthmus_router.management.agent import ManagementAgent
from isthmus_router.message.control import BodyKind, Message, Properties
from isthmus_router.message.types import Symbol, UInt

ROUTER = SmallRouter(parse(CONF, "A.conf"), connections_=[connection(1)])
TYPES = list(ManagementAgent(ROUTER)._types)
NAMES = ["A", "clients", "tls", "1", "self", "log/SERVER", "listener/:55672", "jobs", "b"]
OPERATIONS = [
    "QUERY",
    "READ",
    "CREATE",
    "UPDATE",
    "DELETE",
    "GET-TYPES",
    "GET-ATTRIBUTES",
    "GET-OPERATIONS",
    "GET-LOG",
    "GET-SCHEMA",
]

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.builds(UInt, st.integers(0, 100))
    | st.text(max_size=8)
    | st.binary(max_size=4)
    | st.builds(Symbol, st.text("abc", max_size=4))
    | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
ATTRIBUTES = st.sampled_from(
    [
        "name",
        "port",
        "host",
        "role",
        "ordinal",
        "prefix",
        "openProperties",
        "adminStatus",
        "enable",
        "caCertFile",
    ]
)
PROPERTIES = st.fixed_dictionaries(
    {"operation": st.sampled_from(OPERATIONS) | VALUES},
    optional={
        "entityType": st.sampled_from(TYPES) | VALUES,
        "type": st.sampled_from(TYPES) | VALUES,
        "name": st.sampled_from(NAMES) | VALUES,
        "identity": st.sampled_from(NAMES) | VALUES,
        "offset": st.integers(-2, 5) | VALUES,
        "count": st.integers(-2, 5) | VALUES,
        "limit": st.integers(-2, 5) | VALUES,
    },
)
BODIES = VALUES | st.dictionaries(ATTRIBUTES, VALUES | st.integers(0, 9), max_size=4)


@given(PROPERTIES, BODIES, VALUES)
def test_every_request_is_answered(properties: dict[str, object], body: object, correlation: object) -> None:
    client = Client(ManagementAgent(replace(ROUTER), replace(ROUTER)))
    response = client.send(
        Message(
            properties=Properties(reply_to="temp.1", message_id="m", correlation_id=correlation),
            application_properties=properties,
            body=body,
            body_kind=BodyKind.VALUE,
        )
    )
    assert response.status in (200, 201, 204, 400, 403, 404, 501), response.description
