"""Transport security between Routers whose resources do not name any certificates."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.unit.operator.api_server import WholeApiServer, store_of
from tests.unit.operator.configurations import configs
from tests.unit.operator.support import (
    connector,
    model,
    opaque_secret,
    own_authority,
    relay_site,
    router,
    tls_secret,
)

from isthmus_operator.cluster import ApiError
from isthmus_operator.observe import Observer
from isthmus_operator.reconcile import Operator, Reconciliation
from isthmus_operator.render import RenderSettings, RouterInstance, plan
from isthmus_router.core.roles import Role

CLEAR = [
    {"name": "amqp", "port": 5672},
    {"name": "inter-router", "role": "inter-router", "port": 55672, "tls": {"disabled": True}},
    {"name": "edge", "role": "edge", "port": 45672, "tls": {"disabled": True}},
]
GIVEN = [
    {
        "name": "inter-router",
        "role": "inter-router",
        "port": 55672,
        "tls": {"secretName": "server", "requireClientCertificate": True},
    }
]


def attributes(instance: RouterInstance, name: str) -> dict[str, Any]:
    found = next(item for item in (*instance.listeners, *instance.connectors) if item.name == name)
    return {**found.attributes, "tls": found.tls}


def test_listeners_for_routers_and_edges_demand_certificates_of_routers_that_connect_to_them() -> None:
    planned = plan(
        model(
            router("west", replicas=2),
            router("east"),
            router("shop", mode="edge"),
            router("stranger"),
            connector("link", "east", "west", "inter-router"),
            connector("uplink", "shop", "west", "edge"),
        )
    )
    assert planned.findings == ()
    for name, peers in (("inter-router", "east, west"), ("edge", "shop, west")):
        found = attributes(planned.instances["west"][0], name)
        assert found["tls"] == "sslprofile/west_router-min-TLSv1.2"
        assert found["requireSsl"]
        assert found["authenticatePeer"]
        assert found["requireClientCertificate"]
        assert found["saslMechanisms"] == "EXTERNAL"
        assert found["peerNames"] == peers
    amqp = attributes(planned.instances["west"][0], "amqp")
    assert (amqp["tls"], amqp["saslMechanisms"]) == (None, "ANONYMOUS")


def test_connectors_and_replicas_present_certificates_and_verify_the_other_end() -> None:
    planned = plan(
        model(
            router("west", replicas=2),
            router("shop", mode="edge"),
            connector("uplink", "shop", "west", "edge"),
        )
    )
    for router_name, ordinal, name in (("west", 1, "mesh/west-0"), ("shop", 0, "uplink")):
        instance = planned.instances[router_name][ordinal]
        found = attributes(instance, name)
        assert found["tls"] == f"sslprofile/{router_name}_router-min-TLSv1.2/dialled"
        assert found["verifyHostname"]
        assert str(found["saslMechanisms"]).startswith("EXTERNAL")
        profile = next(item for item in instance.tls if item.name == found["tls"])
        assert instance.files[profile.files["ca.crt"]] == own_authority().trusted
        assert set(profile.files) == {"ca.crt", "tls.crt", "tls.key"}


def test_the_routers_accept_the_configuration() -> None:
    found = configs(router("west"), router("east"), connector("link", "east", "west", "inter-router"))
    listeners = {item.role: item for item in found["west-0"].listeners if not item.http}
    assert listeners[Role.INTER_ROUTER].ssl_profile == "sslprofile/west_router-min-TLSv1.2"
    assert listeners[Role.NORMAL].ssl_profile is None


def test_clear_text_between_routers_has_to_be_stated_once() -> None:
    planned = plan(
        model(
            router("west", replicas=2, listeners=CLEAR),
            router("shop", mode="edge"),
            connector("uplink", "shop", "west", "edge"),
            connector("stated", "shop", "west", "edge", tls={"disabled": True}),
        )
    )
    assert planned.findings == ()
    for router_name, ordinal, name in (
        ("west", 0, "inter-router"),
        ("west", 1, "mesh/west-0"),
        ("shop", 0, "uplink"),
        ("shop", 0, "stated"),
    ):
        found = attributes(planned.instances[router_name][ordinal], name)
        assert (found["tls"], found["saslMechanisms"]) == (None, "ANONYMOUS")


@pytest.mark.parametrize(
    ("listeners", "tls", "why"),
    [
        (None, {"disabled": True}, "the listener uses TLS, the connector does not"),
        (None, {"secretName": "server"}, "certificates of the namespace's own authority; remove spec.tls"),
        (GIVEN, None, "the listener uses TLS, the connector does not"),
        (CLEAR, {"secretName": "server"}, "the connector uses TLS, the listener does not"),
    ],
)
def test_two_ends_that_cannot_agree_are_named(listeners: Any, tls: Any, why: str) -> None:
    more = {"listeners": listeners} if listeners else {}
    built = model(
        router("west", **more),
        router("east"),
        connector("link", "east", "west", "inter-router", **({"tls": tls} if tls else {})),
        secrets=[tls_secret("server")],
    )
    (finding,) = plan(built).findings
    assert (finding.name, finding.reason) == ("link", "TlsMismatch")
    assert why in finding.message


@pytest.mark.parametrize(("role", "source"), [("inter-router", "west"), ("edge", "shop")])
def test_a_connector_to_a_router_elsewhere_needs_certificates_or_a_statement(role: str, source: str) -> None:
    routers = (router("west"), router("shop", mode="edge"))
    peer = ("hub.example", 55671)
    (finding,) = plan(model(*routers, connector("far", source, peer, role))).findings
    assert (finding.name, finding.reason) == ("far", "TlsRequired")
    assert "spec.tls.disabled" in finding.message
    stated = plan(model(*routers, connector("far", source, peer, role, tls={"disabled": True})))
    assert stated.findings == ()
    assert attributes(stated.instances[source][0], "far")["tls"] is None
    broker = plan(model(*routers, connector("mq", "west", peer, "route-container")))
    assert broker.findings == ()


def test_passwords_on_a_listener_for_routers_go_through_tls() -> None:
    sasl = {"mechanisms": ["PLAIN"], "usersSecretRef": {"name": "users"}}
    listener = {"name": "inter-router", "role": "inter-router", "port": 55672, "sasl": sasl}
    planned = plan(model(router("west", listeners=[listener]), secrets=[opaque_secret("users", "sasldb")]))
    found = attributes(planned.instances["west"][0], "inter-router")
    assert found["requireSsl"]
    assert "requireClientCertificate" not in found


def test_without_a_certificate_a_listener_is_left_out_and_never_clear_text() -> None:
    built = model(router("west")).serving({})
    planned = plan(built.with_authority(None, 'Secret "isthmus-authority" is empty'))
    assert [item.name for item in planned.instances["west"][0].listeners] == ["amqp"]
    assert {item.reason for item in planned.findings} == {"Pending", "AuthorityUnusable"}
    assert all("isthmus-authority" in item.message for item in planned.findings)


class Immutable(WholeApiServer):
    """Somebody has made the Secret with the certificates of `west` immutable."""

    is_immutable = False

    async def merge(self, kind: str, namespace: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        if self.is_immutable and name == "west-certificates":
            raise ApiError(422, "Invalid", "field is immutable when `immutable` is set")
        return await super().merge(kind, namespace, name, patch)


async def test_a_router_that_gets_no_new_certificate_reports_it() -> None:
    """It would be told when the certificate has expired, weeks later."""
    api = Immutable()
    observer = Observer(lambda _: None)
    stub: Any = api
    operator = Operator(stub, RenderSettings("r:1"), observer, "1", "pod", time.monotonic)
    one = Reconciliation("net", operator)
    resources = [router("west"), relay_site("nyc", "west")]
    for item in resources:
        item["metadata"]["resourceVersion"] = "7"

    def configured(name: str) -> tuple[str, str, str]:
        (found,) = (
            item for item in api.statuses["Router", name]["conditions"] if item["type"] == "Configured"
        )
        return found["status"], found["reason"], found["message"]

    await one.look(store_of(resources[0], live=api.live()))
    assert configured("west")[1] == "RolloutInProgress"
    api.is_immutable = True
    await one.look(store_of(*resources, live=api.live()))
    status, reason, message = configured("west")
    assert (status, reason) == ("False", "ApplyFailed")
    assert 'Secret "west-certificates"' in message
    assert "field is immutable" in message
    api.is_immutable = False
    await one.look(store_of(*resources, live=api.live()))
    await one.look(store_of(*resources, live=api.live()))
    assert configured("west")[1] == "RolloutInProgress"
    await observer.close()
