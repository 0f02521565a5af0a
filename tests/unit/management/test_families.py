"""Requests with qpid-dispatch's type names are answered in its terms."""

from __future__ import annotations

import pytest
from tests.unit.management.conftest import Client, SmallRouter

from isthmus_router.management.port import AddressRow, LinkRow

DISPATCH = "org.apache.qpid.dispatch."
SKUPPER = "io.skupper.router."


@pytest.mark.parametrize("prefix", [DISPATCH, SKUPPER])
def test_types_are_named_as_in_the_request(client: Client, prefix: str) -> None:
    for entity_type in ("listener", "router.node", "router", "log"):
        assert {row["type"] for row in client.query(prefix + entity_type)} <= {prefix + entity_type}
    created = client.request("CREATE", {"prefix": "b"}, type=f"{prefix}router.config.address")
    assert created.body["type"] == f"{prefix}router.config.address"
    read = client.request("READ", type=f"{prefix}router.config.address", identity=created.body["identity"])
    assert read.body == created.body
    for operation in ("GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS"):
        assert list(client.request(operation, entityType=f"{prefix}listener").body) == [f"{prefix}listener"]
    refused = client.request("DELETE", type=f"{prefix}router.link", identity="1")
    assert f"'{prefix}router.link'" in refused.description


def test_columns_that_only_qpid_dispatch_has(client: Client) -> None:
    assert client.query(f"{DISPATCH}router.address", "containerCount")[0] == {"containerCount": 0}
    (router,) = client.query(f"{DISPATCH}router", "blockedLinkCount", "linksBlocked")
    assert router["blockedLinkCount"] == router["linksBlocked"] == 0


def test_mobile_addresses_have_a_phase(client: Client, router: SmallRouter) -> None:
    router.addresses_ = [
        AddressRow("Mwork", "balanced"),
        AddressRow("M_$phase.1/work", "balanced"),
        AddressRow("Ltemp.1", "closest"),
    ]
    router.links_ = [
        LinkRow(1, "l", "endpoint", True, 1, owning_address="Mwork"),
        LinkRow(2, "m", "x", True, 1),
    ]
    rows = client.query(f"{DISPATCH}router.address", "name", "identity", "key")
    assert [set(row.values()) for row in rows] == [{"M0work"}, {"M1work"}, {"Ltemp.1"}]
    assert [row["owningAddr"] for row in client.query(f"{DISPATCH}router.link")] == ["M0work", None]
    assert client.query(f"{SKUPPER}router.address", "key")[0]["key"] == "Mwork"
    read = client.request("READ", type=f"{DISPATCH}router.address", identity="M0work")
    assert (read.status, read.body["key"]) == (200, "M0work")
    assert client.request("READ", type=f"{SKUPPER}router.address", identity="M0work").status == 404
