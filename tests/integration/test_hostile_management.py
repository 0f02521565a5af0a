"""Requests that make no sense: each is answered with a status or dropped, and the router goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proton import Message, ulong
from tests.integration.support.client import Clients
from tests.integration.support.links import Pour
from tests.integration.support.management import Manager
from tests.integration.support.routers import Router, Routers

TYPES = [
    "listener",
    "router.link",
    "router.config.address",
    "connection",
    "log",
    "router",
    "sslProfile",
    "bogus",
]
OPERATIONS = [
    "QUERY",
    "READ",
    "CREATE",
    "UPDATE",
    "DELETE",
    "GET-SCHEMA",
    "GET-LOG",
    "GET-ATTRIBUTES",
    "NONSENSE",
]

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.builds(ulong, st.integers(0, 2**64 - 1))
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
    | st.binary(max_size=8)
    | st.floats(allow_nan=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)
PROPERTIES = st.fixed_dictionaries(
    {"operation": st.sampled_from(OPERATIONS) | SCALARS},
    optional={
        "entityType": st.sampled_from(TYPES) | SCALARS,
        "type": st.sampled_from(TYPES) | SCALARS,
        "name": SCALARS,
        "identity": SCALARS,
        "offset": SCALARS,
        "count": SCALARS,
        "limit": SCALARS,
    },
)
NAMES = st.sampled_from(["attributeNames", "name", "port", "prefix", "role", "openProperties", "enable"])
BODIES = VALUES | st.dictionaries(NAMES, VALUES, max_size=4)


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    started = Routers(tmp_path_factory.mktemp("hostile"))
    router = started.start("A")
    yield router
    assert router.process is not None
    assert router.process.poll() is None
    started.stop()


@pytest.fixture(scope="module")
def manager(router: Router) -> Iterator[Manager]:
    clients = Clients()
    yield Manager(clients.connect(router.port).await_open())
    clients.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PROPERTIES, BODIES)
def test_every_request_has_an_answer(manager: Manager, properties: dict[str, Any], body: Any) -> None:
    response = manager.request(body=body, **{"operation": "QUERY", **properties})
    assert response.properties["statusCode"] in (200, 201, 204, 400, 403, 404, 409, 501)
    assert response.properties["statusDescription"]


def raw(manager: Manager, data: bytes) -> str:
    sent = manager.requests.await_credit().send(data)
    outcome: str = manager.requests.outcome(sent)
    return outcome


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=60)
    | st.binary(max_size=40).map(lambda data: b"\x00\x53\x73\xc0" + data)
    | st.binary(max_size=40).map(lambda data: b"\x00\x53\x77\xd1\x00\x00\x00\x20" + data)
    | st.integers(1, 200).map(lambda depth: b"\x00\x53\x77" + b"\x00" * depth)
)
def test_garbage_is_dropped(manager: Manager, data: bytes) -> None:
    assert raw(manager, data) in ("accepted", "rejected", "released", "modified")
    assert manager.request("GET-TYPES", entityType="listener").properties["statusCode"] == 200


def test_what_is_too_large_is_refused(manager: Manager) -> None:
    huge = Message(
        reply_to=manager.replies.address,
        properties={"operation": "CREATE", "type": "listener"},
        body={f"attribute-{number}": "x" * 300 for number in range(20_000)},
    )
    pour = Pour(manager.requests.await_credit(), huge.encode())
    assert manager.requests.outcome(pour.sent) == "rejected"
    many = [f"attribute-{number}" for number in range(4000)]
    response = manager.request("QUERY", {"attributeNames": many}, entityType="listener")
    assert "attributeNames has 4000 names" in response.properties["statusDescription"]
    large = {f"attribute-{number}": "x" for number in range(2000)}
    response = manager.request("CREATE", large, type="listener")
    assert response.properties["statusCode"] == 400
    assert "The body has 2000 attributes" in response.properties["statusDescription"]
    some = {f"attribute-{number}": "x" for number in range(90)}
    response = manager.request("CREATE", some, type="listener")
    assert response.properties["statusCode"] == 400
    assert len(response.properties["statusDescription"]) <= 2000


def test_an_answer_that_nobody_takes(manager: Manager, router: Router) -> None:
    for address in ("nobody/there", "$management", "amqp:/_topo/0/Z/x", "x" * 5000):
        nobody = Message(reply_to=address, properties={"operation": "QUERY"}, body={})
        manager.requests.await_credit().send(nobody, settled=True)
    assert manager.request("GET-TYPES", entityType="listener").properties["statusCode"] == 200


def test_nothing_is_left_behind(manager: Manager) -> None:
    def links_and_addresses() -> tuple[int, int]:
        (totals,) = manager.query("routerMetrics")
        return totals["linkCount"], totals["addrCount"]

    before = links_and_addresses()
    for _ in range(300):
        manager.request("CREATE", {"port": "x"}, type="listener")
        manager.request("READ", type="listener", name="none")
    assert links_and_addresses() == before
