"""The condition `Insecure` of Routers, Connectors, RelaySites and GossipRouters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.operator.support import (
    connector,
    gossip_router,
    model,
    opaque_secret,
    relay_site,
    router,
    tls_secret,
)

from isthmus_operator.render import plan
from isthmus_operator.status import (
    Verdict,
    connector_insecure,
    gossip_router_insecure,
    relay_site_insecure,
    router_insecure,
)

MUTUAL = {"secretName": "server", "requireClientCertificate": True}
PASSWORDS = {"mechanisms": ["SCRAM-SHA-256"], "usersSecretRef": {"name": "users"}}

PLAIN = {**PASSWORDS, "mechanisms": ["PLAIN"], "allowPlainWithoutTls": True}


def listening(**more: Any) -> Verdict:
    """About a Router with one listener."""
    built = model(router("west", listeners=[{"name": "amqp", "port": 5672, **more}]))
    return router_insecure(built.routers["west"])


def test_a_router_that_says_nothing_names_its_listener_for_clients_and_how_to_secure_it() -> None:
    found = router_insecure(model(router("west")).routers["west"])
    assert (found.status, found.reason) == ("True", "ClearText")
    assert found.message == (
        'listener "amqp" accepts clear text from anybody on a Service of type ClusterIP; '
        "set tls and sasl, or acceptInsecure to accept it"
    )


@pytest.mark.parametrize(
    ("listener", "shown"),
    [
        ({}, True),
        ({"tls": {"secretName": "server"}}, True),
        ({"sasl": PASSWORDS}, False),
        ({"tls": MUTUAL}, False),
        ({"acceptInsecure": True}, False),
    ],
)
def test_a_listener_that_shows_anybody_flow_records_is_named(
    listener: dict[str, Any], *, shown: bool
) -> None:
    built = model(router("west", listeners=[{"name": "amqp", "port": 5672, **listener}]))
    found = router_insecure(built.routers["west"], {"amqp"})
    assert ("shows anybody the flow records" in found.message) == shown
    assert "flow records" not in router_insecure(built.routers["west"], {"other"}).message


@pytest.mark.parametrize(
    ("listener", "status", "reason", "part"),
    [
        ({"acceptInsecure": True}, "False", "Secured", "accepted as it is"),
        ({"tls": MUTUAL}, "False", "Secured", ""),
        ({"tls": {"secretName": "server"}, "sasl": PASSWORDS}, "False", "Secured", ""),
        ({"tls": {"secretName": "server"}}, "True", "AnonymousClients", "accepts anybody on a Service"),
        ({"tls": {"secretName": "server"}, "exposure": "None"}, "False", "Secured", ""),
        ({"sasl": PASSWORDS}, "True", "ClearText", 'listener "amqp" accepts clear text on a Service'),
        (
            {"sasl": PLAIN},
            "True",
            "ClearText",
            'listener "amqp" accepts passwords in clear text on a Service',
        ),
        ({"sasl": PLAIN, "tls": {"secretName": "server"}}, "False", "Secured", ""),
        ({"exposure": "None"}, "True", "ClearText", "accepts clear text from anybody; set tls"),
        ({"exposure": "LoadBalancer"}, "True", "ClearText", "on a Service of type LoadBalancer"),
        ({"role": "edge"}, "False", "Secured", ""),
        ({"role": "edge", "tls": {"disabled": True}}, "True", "ClearText", "remove tls.disabled"),
        ({"role": "edge", "sasl": {"mechanisms": ["ANONYMOUS"]}}, "True", "AnonymousClients", "remove sasl"),
        (
            {"role": "edge", "peerNames": ["*"]},
            "True",
            "UnboundNames",
            "of the namespace's own authority as an edge",
        ),
        ({"role": "edge", "peerNames": ["a.net", "*.b"]}, "False", "Secured", ""),
        (
            {"role": "inter-router", "tls": MUTUAL, "peerNames": ["*"]},
            "True",
            "UnboundNames",
            'replace "*" in peerN',
        ),
        ({"role": "inter-router", "tls": MUTUAL, "exposure": "None"}, "False", "Secured", ""),
        (
            {"role": "route-container", "tls": MUTUAL},
            "True",
            "UnboundNames",
            "of the authorities of tls as a broker",
        ),
        (
            {"role": "route-container", "tls": MUTUAL, "acceptInsecure": True},
            "False",
            "Secured",
            "accepted as",
        ),
        ({"role": "route-container", "tls": MUTUAL, "peerNames": ["broker"]}, "False", "Secured", ""),
        ({"role": "route-container", "tls": MUTUAL, "sasl": PASSWORDS}, "False", "Secured", ""),
        (
            {"role": "inter-router", "exposure": "None", "sasl": {"mechanisms": ["ANONYMOUS"]}},
            "True",
            "AnonymousClients",
            "accepts anybody; remove sasl",
        ),
    ],
)
def test_each_listener_is_judged(listener: dict[str, Any], status: str, reason: str, part: str) -> None:
    found = listening(**listener)
    assert (found.status, found.reason) == (status, reason)
    assert part in found.message


ANONYMOUS = {"mechanisms": ["ANONYMOUS"]}
SERVER = {"tls": {"secretName": "server"}}
DISABLED = {"tls": {"disabled": True}}


EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_routers_of_examples_accept_only_routers_with_certificates(path: Path) -> None:
    found = [item for item in yaml.safe_load_all(path.read_text()) if item and item["kind"] == "Router"]
    for built in model(*found).routers.values():
        for listener in built.spec.effective_listeners():
            if listener.role in {"inter-router", "edge"}:
                assert listener.encrypted
                assert listener.mechanisms == ["EXTERNAL"]


@pytest.mark.parametrize(
    ("listener", "fix"),
    [
        ({}, "set tls and sasl, or acceptInsecure to accept it"),
        ({"exposure": "None"}, "set tls, or acceptInsecure to accept it"),
        ({"sasl": PASSWORDS}, "set tls, or acceptInsecure to accept it"),
        (
            {"sasl": ANONYMOUS},
            "set tls and replace ANONYMOUS in sasl.mechanisms, or acceptInsecure to accept it",
        ),
        (
            {**DISABLED, "sasl": PASSWORDS},
            "set tls.secretName in place of tls.disabled, or acceptInsecure to accept it",
        ),
        (SERVER, "set tls.requireClientCertificate: true, or sasl, or acceptInsecure to accept it"),
        (
            {**SERVER, "sasl": ANONYMOUS},
            "replace ANONYMOUS in sasl.mechanisms, or acceptInsecure to accept it",
        ),
        (
            {**SERVER, "sasl": {**PASSWORDS, "mechanisms": ["ANONYMOUS", "SCRAM-SHA-256"]}},
            "remove ANONYMOUS from sasl.mechanisms, or acceptInsecure to accept it",
        ),
        ({**SERVER, "role": "edge"}, "set tls.requireClientCertificate: true, or sasl"),
        ({**SERVER, "role": "edge", "sasl": ANONYMOUS}, "replace ANONYMOUS in sasl.mechanisms"),
        ({"role": "edge", "sasl": ANONYMOUS}, "remove sasl"),
        ({**DISABLED, "role": "edge"}, "remove tls.disabled"),
        ({**DISABLED, "role": "edge", "sasl": PASSWORDS}, "remove tls.disabled"),
        ({**DISABLED, "role": "inter-router", "sasl": ANONYMOUS}, "remove tls.disabled and sasl"),
    ],
)
def test_the_message_names_only_what_a_listener_lacks(listener: dict[str, Any], fix: str) -> None:
    found = listening(**listener)
    assert found.status == "True"
    assert found.message.partition("; ")[2] == fix


@pytest.mark.parametrize(
    ("spec", "status", "reason", "part"),
    [
        ({"to": "west"}, "False", "Secured", "use TLS"),
        ({"to": "clear"}, "True", "ClearText", "remove tls.disabled from the listener"),
        ({"to": ("mq", 5672), "role": "route-container"}, "True", "ClearText", "set spec.tls"),
        (
            {
                "to": ("mq", 5672),
                "role": "route-container",
                "sasl": {"credentialsSecretRef": {"name": "login"}},
            },
            "True",
            "ClearText",
            "the connector carries messages in clear text",
        ),
        (
            {
                "to": ("mq", 5672),
                "role": "route-container",
                "sasl": {"credentialsSecretRef": {"name": "login"}, "allowPlainWithoutTls": True},
            },
            "True",
            "ClearText",
            "a password in clear text",
        ),
        ({"to": ("hub", 55671), "tls": {"secretName": "server"}}, "False", "Secured", ""),
        (
            {"to": ("hub", 55671), "tls": {"secretName": "server", "verifyHostname": False}},
            "True",
            "UnverifiedHost",
            "remove spec.tls.verifyHostname",
        ),
        ({"to": ("hub", 55671), "tls": {"disabled": True}}, "True", "ClearText", "set spec.tls"),
        ({"to": ("hub", 55671)}, "False", "NotInEffect", ""),
    ],
)
def test_each_connector_is_judged(spec: dict[str, Any], status: str, reason: str, part: str) -> None:
    to, role = spec["to"], spec.get("role", "inter-router")
    more = {key: value for key, value in spec.items() if key not in {"to", "role"}}
    clear = {"name": "ir", "role": "inter-router", "port": 55672, "tls": {"disabled": True}}
    planned = plan(
        model(
            router("west"),
            router("east"),
            router("clear", listeners=[clear]),
            connector("link", "east", to, role, **more),
            secrets=[tls_secret("server"), opaque_secret("login", "username", "password")],
        )
    )
    (instance,) = planned.instances["east"]
    built = model(connector("link", "east", to, role, **more)).connectors["link"]
    found = connector_insecure(built, instance.connectors)
    assert (found.status, found.reason) == (status, reason)
    assert part in found.message


CLEAR = {"tls": {"disabled": True}}
THROUGH = {"type": "tunnel", "gossipRouterRef": {"name": "g"}}
ELSEWHERE = {"type": "tunnel", "gossipRouters": ["far.example"], "gossipTls": {"disabled": True}}


@pytest.mark.parametrize(
    ("spec", "gossip", "message"),
    [
        ({}, {}, ""),
        ({"discovery": THROUGH}, {}, ""),
        (
            CLEAR,
            {},
            "connections between members use clear text; remove spec.tls.disabled, or set spec.tls",
        ),
        (
            {"bridge": CLEAR},
            {},
            "connections with other sites use clear text; remove spec.bridge.tls.disabled of both sites, "
            "or set spec.bridge.tls",
        ),
        (
            {"discovery": THROUGH},
            CLEAR,
            'connections with gossip routers use clear text; remove spec.tls.disabled of GossipRouter "g"',
        ),
        (
            {"discovery": ELSEWHERE},
            {},
            "connections with gossip routers use clear text; set spec.discovery.gossipTls",
        ),
    ],
)
def test_each_relay_site_is_judged(spec: dict[str, Any], gossip: dict[str, Any], message: str) -> None:
    planned = plan(model(router("east"), relay_site("nyc", "east", **spec), gossip_router("g", **gossip)))
    found = relay_site_insecure(planned.relay_sites["nyc"])
    assert (found.status, found.reason) == (("True", "ClearText") if message else ("False", "Secured"))
    assert found.message == (message or "all connections of the members use TLS")


TLS = {"secretName": "server"}
FAR = {"site": "sfo", "endpoints": ["far.example"]}
NAMED = {**FAR, "peerNames": ["bridge.sfo.example"]}
OVER = {"site": "sfo", "over": "bridges/trades"}


@pytest.mark.parametrize(
    ("spec", "reason", "parts"),
    [
        ({"tls": TLS}, "UnboundNames", ["authority of spec.tls can be a member; set spec.peerNames"]),
        ({"tls": TLS, "peerNames": ["*.nyc.example"]}, "", []),
        ({"bridge": {"tls": TLS}}, "", []),
        (
            {"bridge": {"tls": TLS}, "remoteSites": [FAR]},
            "UnboundNames",
            ['authority of spec.bridge.tls can be site "sfo"; set spec.remoteSites[].peerNames'],
        ),
        ({"bridge": {"tls": TLS}, "remoteSites": [NAMED]}, "", []),
        ({"tls": TLS, "peerNames": ["a"], "bridge": {"tls": TLS}, "remoteSites": [NAMED]}, "", []),
        ({"remoteSites": [FAR]}, "", []),
        (
            {"remoteSites": [OVER]},
            "UnauthenticatedSite",
            ['can act as site "sfo"', 'allow "bridges/trades/#" to no client in spec.policy of the Routers'],
        ),
        ({"remoteSites": [{**OVER, "acceptInsecure": True}]}, "", []),
        (
            {"tls": TLS, "remoteSites": [OVER]},
            "UnauthenticatedSite",
            ["spec.remoteSites[].acceptInsecure", "set spec.peerNames"],
        ),
        (
            {"discovery": {"type": "multicast"}},
            "UnauthenticatedDiscovery",
            ["set spec.discovery.multicast.acceptInsecure"],
        ),
        ({"discovery": {"type": "multicast", "multicast": {"acceptInsecure": True}}}, "", []),
        (
            {**CLEAR, "remoteSites": [OVER]},
            "ClearText",
            ["remove spec.tls.disabled", "spec.remoteSites[].acceptInsecure"],
        ),
    ],
)
def test_peers_of_a_relay_site_that_no_name_ties_to_a_certificate(
    spec: dict[str, Any], reason: str, parts: list[str]
) -> None:
    planned = plan(model(router("east"), relay_site("nyc", "east", **spec), secrets=[tls_secret("server")]))
    found = relay_site_insecure(planned.relay_sites["nyc"])
    assert (found.status, found.reason) == (("True", reason) if reason else ("False", "Secured"))
    for part in parts:
        assert part in found.message


def test_a_relay_site_that_is_not_in_effect_is_not_insecure() -> None:
    found = relay_site_insecure(plan(model(relay_site("nyc", "gone"))).relay_sites.get("nyc"))
    assert (found.status, found.reason) == ("False", "NotInEffect")


@pytest.mark.parametrize(
    ("spec", "status", "reason", "part"),
    [
        ({}, "False", "Secured", "the namespace's own authority"),
        ({"tls": MUTUAL}, "False", "Secured", "by certificates"),
        ({"tls": {"secretName": "server"}}, "False", "Secured", "by certificates"),
        (
            {"tls": {"secretName": "server", "requireClientCertificate": False}},
            "True",
            "AnonymousMembers",
            "set spec.tls.requireClientCertificate",
        ),
        (CLEAR, "True", "ClearText", "remove spec.tls.disabled, or set spec.tls"),
    ],
)
def test_each_gossip_router_is_judged(spec: dict[str, Any], status: str, reason: str, part: str) -> None:
    found = gossip_router_insecure(model(gossip_router("g", **spec)).gossip_routers["g"])
    assert (found.status, found.reason) == (status, reason)
    assert part in found.message
