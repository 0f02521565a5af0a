"""RelaySites become sections, Services and findings of their Routers."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.operator.support import gossip_router, model, relay_site, router, tls_secret

from isthmus_operator.model import NamespaceModel
from isthmus_operator.names import scraped
from isthmus_operator.render import (
    KubernetesResolver,
    Rendered,
    RenderSettings,
    config_bytes,
    plan,
    render,
    router_config,
)
from isthmus_operator.render.restrictions import Restrictions
from isthmus_operator.render.sites import memberships
from isthmus_router.config import Discovery, parse

EXPOSED = Restrictions(allowed_exposures=("NodePort", "LoadBalancer"))
SETTINGS = RenderSettings(router_image="router:1", restrictions=EXPOSED)
SFO = {"site": "sfo", "relaySiteRef": {"name": "sfo"}}


def rendered(*manifests: dict[str, Any], **secrets: Any) -> Rendered:
    return render(model(*manifests, **secrets), SETTINGS)


def sections(found: NamespaceModel, router_name: str, section: str) -> list[dict[str, Any]]:
    instance = plan(found).instances[router_name][0]
    config = router_config(instance, KubernetesResolver("net"))
    return [dict(attributes) for name, attributes in config if name == section]


def reasons(found: Rendered, name: str) -> list[tuple[str, str]]:
    return [(item.reason, item.message) for item in found.findings_of("RelaySite", name)]


def service(found: Rendered, router_name: str, name: str) -> dict[str, Any]:
    objects = found.routers[router_name].objects
    (item,) = [item for item in objects if (item["kind"], item["metadata"]["name"]) == ("Service", name)]
    spec: dict[str, Any] = item["spec"]
    return spec


def two_sites(**nyc: Any) -> list[dict[str, Any]]:
    return [
        router("east", replicas=2),
        router("west", replicas=2),
        relay_site("nyc", "east", remoteSites=[SFO], **nyc),
        relay_site("sfo", "west", remoteSites=[{"site": "nyc", "relaySiteRef": {"name": "nyc"}}]),
    ]


@pytest.mark.parametrize("refused", [{"site": "nyc"}, {"site": "nyc", "routerRef": {"name": "nowhere"}}])
def test_a_refused_site_does_not_stand_for_another_one(refused: dict[str, Any]) -> None:
    newer = {"creationTimestamp": "2026-01-02T00:00:00Z"}
    manifests = two_sites()
    found, findings = memberships(
        model(*manifests, router("bos", replicas=2), relay_site("bos", "bos", meta=newer, **refused))
    )
    assert {item.name for item in findings} == {"bos"}
    assert set(found) == {"east", "west"}
    assert found["west"].neighbors["nyc"].name == "nyc"


def test_a_node_port_is_of_one_listener_bridge_or_gossip_router() -> None:
    bridge = {"expose": "NodePort", "nodePort": 30900}
    found = rendered(
        router(
            "first", listeners=[{"name": "amqp", "port": 5672, "exposure": "NodePort", "nodePort": 30672}]
        ),
        router("second"),
        relay_site("nyc", "second", bridge=bridge),
        router("third", listeners=[{"name": "in", "port": 5672, "exposure": "NodePort", "nodePort": 30900}]),
        gossip_router("g1", expose="NodePort", nodePort=30672),
        gossip_router("g2", expose="NodePort", nodePort=30801),
        gossip_router("g3", expose="NodePort", nodePort=30801),
    )
    assert set(found.routers) == {"first", "second"}
    assert set(found.gossip_routers) == {"g2"}
    assert [(item.name, item.reason, item.message) for item in found.findings if item.blocking] == [
        (
            "g1",
            "PortConflict",
            'Service "g1-gossip-exposed": nodePort 30672 is used by Router "first" already',
        ),
        (
            "g3",
            "PortConflict",
            'Service "g3-gossip-exposed": nodePort 30801 is used by GossipRouter "g2" already',
        ),
        (
            "third",
            "ListenerConflict",
            'Service "third-in": nodePort 30900 is used by Router "second" already',
        ),
    ]


def test_a_host_list_is_taken_over() -> None:
    hosts = ["east-0.east-mesh", "east-1.east-mesh:7801"]
    found = model(*two_sites(discovery={"type": "hostList", "hosts": hosts, "portRange": 2}))
    (site,) = sections(found, "east", "relaySite")
    assert (site["discovery"], site["discoveryHosts"]) == ("hostList", ", ".join(hosts))
    assert site["portRange"] == 2


def test_more_relays_than_members_are_told() -> None:
    assert reasons(rendered(*two_sites(relays=2)), "nyc") == []
    message = (
        'spec.relays is 8, but Router "east" (spec.routerRef) has 2 replicas; lower it, or have more replicas'
    )
    found = rendered(*two_sites(relays=8))
    assert reasons(found, "nyc") == [("InvalidSpec", message)]
    assert found.plan.instances["east"][0].relay is not None, "it runs all the same"


def test_what_is_rendered_is_what_the_router_reads() -> None:
    manifests = two_sites(
        relays=2,
        buffer={"messages": 10, "bytes": 2048, "seconds": 5},
        addresses=[{"pattern": "a/#"}, {"pattern": "b", "sites": []}, {"pattern": "c", "sites": ["sfo"]}],
        stateAddress="state",
        tls={"secretName": "net"},
        bridge={"tls": {"secretName": "net"}},
        peerNames=["*.east"],
    )
    manifests[3]["spec"]["bridge"] = {"tls": {"secretName": "net"}}
    found = plan(model(*manifests, secrets=[tls_secret("net")]))
    assert found.findings == ()
    for number, instance in enumerate(found.instances["east"]):
        text = config_bytes(router_config(instance, KubernetesResolver("net"))).decode()
        site = parse(text, "f").relay_site
        assert site is not None
        assert (site.group, site.site, site.domain) == ("trades", "nyc", "net/nyc")
        assert site.member_name == f"east-{number}"
        assert (site.member_port, site.bridge_port, site.announce) == (7800, 7900, ())
        assert (site.discovery, site.whom_to_ask) == (Discovery.DNS, (("east-mesh.net.svc", 7800),))
        assert (site.ssl_profile, site.bridge_ssl_profile, site.peer_names) == ("net", "net", ("*.east",))
        assert site.initial_members == 2
        assert (site.relays, site.buffer_messages, site.buffer_bytes, site.buffer_seconds) == (2, 10, 2048, 5)
        assert site.state_address == "state"
        configuration = parse(text, "f")
        (remote,) = configuration.relay_remotes
        assert (remote.site, remote.bridges) == ("sfo", (("sfo-bridge.net.svc", 7900),))
        addresses = [(item.pattern, item.sites) for item in configuration.relay_addresses]
        assert addresses == [("a/#", ("*",)), ("b", ()), ("c", ("sfo",))]


def test_members_find_pods_that_are_not_ready_and_other_sites_see_each_of_them() -> None:
    found = rendered(*two_sites())
    mesh = service(found, "east", "east-mesh")
    assert mesh["publishNotReadyAddresses"]
    assert mesh["clusterIP"] == "None"
    assert {item["port"] for item in mesh["ports"]} == {55672, 7800}
    bridge = service(found, "east", "nyc-bridge")
    assert (bridge["type"], bridge["clusterIP"], bridge["publishNotReadyAddresses"]) == (
        "ClusterIP",
        "None",
        True,
    )
    assert [item["port"] for item in bridge["ports"]] == [7900]
    assert bridge["selector"] == mesh["selector"]


def test_a_bridge_is_exposed_as_it_says() -> None:
    bridge = {"expose": "LoadBalancer", "nodePort": 30900, "serviceAnnotations": {"a": "b"}, "port": 443}
    found = service(rendered(*two_sites(bridge=bridge)), "east", "nyc-bridge")
    assert (found["type"], "clusterIP" in found) == ("LoadBalancer", False)
    assert found["ports"] == [
        {"name": "bridge", "port": 443, "targetPort": 443, "protocol": "TCP", "nodePort": 30900}
    ]
    hidden = rendered(*two_sites(bridge={"expose": "None"}))
    assert "nyc-bridge" not in {item["metadata"]["name"] for item in hidden.routers["east"].objects}
    assert reasons(hidden, "sfo")[0][0] == "NotExposed"


def test_a_site_restarts_no_pod() -> None:
    bare = rendered(router("east", replicas=2), router("west", replicas=2))
    found = rendered(*two_sites())
    for name in ("east", "west"):
        assert bare.routers[name].objects[-1] == found.routers[name].objects[-1]
        assert bare.routers[name].config_hashes != found.routers[name].config_hashes


def test_a_network_policy_admits_members_and_sites() -> None:
    spec = {"discovery": {"type": "multicast", "multicast": {"port": 7801}}}
    found = rendered(router("east"), relay_site("nyc", "east", **spec))
    (policy,) = [item for item in found.routers["east"].objects if item["kind"] == "NetworkPolicy"]
    routers = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "isthmus-router"}}}
    admitted = {
        (port["port"], port["protocol"]): rule.get("from")
        for rule in policy["spec"]["ingress"]
        for port in rule["ports"]
    }
    assert admitted[7800, "TCP"] == admitted[7801, "UDP"] == [routers]
    assert admitted[7900, "TCP"] == [routers], "no other namespace trusts the namespace's own authority"


def test_the_older_of_two_in_conflict_counts() -> None:
    old, new = {"creationTimestamp": "2026-01-01"}, {"creationTimestamp": "2026-01-02"}
    twice = relay_site("b", "west", meta=old)
    twice["spec"]["site"] = "nyc"
    found = rendered(router("east"), router("west"), relay_site("nyc", "east", meta=new), twice)
    assert set(found.plan.relay_sites) == {"b"}
    assert reasons(found, "nyc") == [
        ("SiteConflict", 'RelaySite "b" is site "nyc" of group "trades" already; change spec.site')
    ]
    found = rendered(
        router("east"), relay_site("a", "east", meta=old), relay_site("b", "east", "x", meta=new)
    )
    assert reasons(found, "b") == [
        ("RouterInUse", 'Router "east" is in RelaySite "a" already; name another one in spec.routerRef')
    ]


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        (
            {"routerRef": {"name": "esat"}},
            "Pending",
            'Router "esat" (spec.routerRef) does not exist (did you mean "east"?)',
        ),
        ({"routerRef": {"name": "edge"}}, "RoleMismatch", "spec.routerRef needs an interior Router"),
        (
            {"memberPort": 5672},
            "PortConflict",
            'spec.memberPort 5672 is listener "amqp" of Router "east"; choose',
        ),
        ({"bridge": {"port": 9090}}, "PortConflict", "spec.bridge.port 9090 is the health port of Router"),
        ({"tls": {"secretName": "none"}}, "SecretNotFound", 'Secret "none" does not exist'),
        ({"bridge": {"tls": {"secretName": "half"}}}, "SecretInvalid", 'Secret "half" has no key "ca.crt"'),
        (
            {"discovery": {"type": "tunnel", "gossipRouterRef": {"name": "none"}}},
            "Pending",
            'GossipRouter "none" (spec.discovery.gossipRouterRef) does not exist',
        ),
        (
            {"discovery": {"type": "tunnel", "gossipRouterRef": {"name": "safe"}}},
            "TlsMismatch",
            'GossipRouter "safe" uses TLS; set spec.discovery.gossipTls',
        ),
        (
            {
                "discovery": {
                    "type": "tunnel",
                    "gossipRouterRef": {"name": "own"},
                    "gossipTls": {"secretName": "half"},
                }
            },
            "TlsMismatch",
            "uses certificates of the namespace's own authority; remove spec.discovery.gossipTls",
        ),
        (
            {
                "discovery": {
                    "type": "tunnel",
                    "gossipRouterRef": {"name": "own"},
                    "gossipTls": {"disabled": True},
                }
            },
            "TlsMismatch",
            "uses certificates of the namespace's own authority; remove spec.discovery.gossipTls",
        ),
        (
            {
                "discovery": {
                    "type": "tunnel",
                    "gossipRouterRef": {"name": "clear"},
                    "gossipTls": {"secretName": "half"},
                }
            },
            "TlsMismatch",
            'GossipRouter "clear" does not use TLS; remove spec.discovery.gossipTls',
        ),
        (
            {"discovery": {"type": "gossipRouter", "gossipRouters": ["far.example"]}},
            "TlsRequired",
            "connections with spec.discovery.gossipRouters need TLS; set gossipTls there",
        ),
    ],
)
def test_what_keeps_a_site_from_being(spec: dict[str, Any], reason: str, words: str) -> None:
    manifests = [router("east"), router("edge", mode="edge"), relay_site("nyc", "east", **spec)]
    manifests.append(gossip_router("safe", tls={"secretName": "half"}))
    manifests += [gossip_router("own"), gossip_router("clear", tls={"disabled": True})]
    found = rendered(*manifests, secrets=[tls_secret("half", "tls.crt", "tls.key")])
    ((told, message),) = reasons(found, "nyc")
    assert told == reason
    assert words in message
    assert not found.findings_of("RelaySite", "nyc")[0].in_effect
    assert found.plan.relay_sites == {}
    assert "east" in found.routers, "the Router runs all the same"


@pytest.mark.parametrize(
    ("sfo", "reason", "words"),
    [
        ({"group": "news"}, "GroupMismatch", 'RelaySite "sfo" is of group "news", this one of "trades"'),
        ({"site": "san"}, "SiteMismatch", 'RelaySite "sfo" is site "san"; name that one'),
        (
            {"bridge": {"tls": {"secretName": "x"}}},
            "TlsMismatch",
            "that one has bridge.tls, this one has not",
        ),
        ({"routerRef": {"name": "gone"}}, "Pending", 'Router "gone" of RelaySite "sfo" does not exist'),
    ],
)
def test_a_remote_site_that_does_not_fit_is_left_undialled(
    sfo: dict[str, Any], reason: str, words: str
) -> None:
    manifests = two_sites()
    manifests[3]["spec"] = {**manifests[3]["spec"], **sfo, "remoteSites": []}
    found = model(*manifests)
    (finding,) = plan(found).findings_of("RelaySite", "nyc")
    assert (finding.reason, finding.in_effect) == (reason, True)
    assert words in finding.message
    remotes = [item["site"] for item in sections(found, "east", "relayRemote")]
    assert remotes == ["sfo"], "it may still dial this one"


def test_certificates_that_vanish_leave_a_site_with_those_it_has() -> None:
    manifests = two_sites(tls={"secretName": "net"})
    before = rendered(*manifests, secrets=[tls_secret("net")])
    config = next(iter(plan(model(*manifests, secrets=[tls_secret("net")])).instances["east"]))
    files = {**config.files, "east-0.json": config_bytes(router_config(config, KubernetesResolver("net")))}
    manifests[2]["spec"]["tls"] = {"secretName": "other"}
    later = model(*manifests).at(datetime.now(UTC), {"east": files})
    found = plan(later)
    (finding,) = found.findings_of("RelaySite", "nyc")
    assert (finding.reason, finding.in_effect) == ("SecretNotFound", True)
    assert "keep the earlier certificates" in finding.message
    assert found.relay_sites["nyc"].tls == before.plan.relay_sites["nyc"].tls == "net"


def delivered(found: NamespaceModel, name: str) -> NamespaceModel:
    """The same, with what is rendered of it at the router."""
    instance = plan(found).instances[name][0]
    config = config_bytes(router_config(instance, KubernetesResolver("net")))
    return found.at(datetime.now(UTC), {name: {**instance.files, f"{name}-0.json": config}})


@pytest.mark.parametrize("field", ["tls", "bridge"])
def test_a_running_site_without_tls_goes_on_so_while_the_profile_that_it_is_to_have_is_missing(
    field: str,
) -> None:
    # Of an operator whose namespaces had no authority yet.
    before = delivered(NamespaceModel.from_manifests("net", two_sites()), "east")
    tls = {"sslProfile": "typo"}
    changed = model(*two_sites(**{field: tls if field == "tls" else {"tls": tls}}))
    missing = 'SslProfile "typo" does not exist'
    told = [item for item in plan(changed).findings_of("RelaySite", "nyc") if missing in item.message]
    assert [item.in_effect for item in told] == [False], "a new site waits for it"
    later = changed.at(before.now or datetime.now(UTC), before.delivered)
    (finding,) = (item for item in plan(later).findings_of("RelaySite", "nyc") if missing in item.message)
    assert (finding.reason, finding.in_effect) == ("Pending", True)
    assert "the members go on without TLS" in finding.message
    site = plan(later).relay_sites["nyc"]
    assert (site.tls if field == "tls" else site.bridge_tls) is None


@pytest.mark.parametrize(
    "discovery",
    [
        {"type": "gossipRouter", "gossipRouterRef": {"name": "g"}},
        {"type": "dns"},
        {"type": "hostList", "hosts": ["a", "b:1"], "portRange": 2},
        {"type": "multicast", "multicast": {"address": "239.1.2.3"}},
    ],
    ids=lambda discovery: discovery["type"],
)
def test_a_running_site_keeps_its_discovery_while_the_gossip_router_that_it_is_to_have_is_missing(
    discovery: dict[str, Any],
) -> None:
    others = router("east"), gossip_router("g", port=9)
    before = delivered(model(relay_site("nyc", "east", discovery=discovery), *others), "east")
    typo = {"type": "gossipRouter", "gossipRouterRef": {"name": "typo"}}
    changed = model(relay_site("nyc", "east", discovery=typo), *others)
    (finding,) = plan(changed).findings_of("RelaySite", "nyc")
    assert not finding.in_effect, "a new site waits for it"
    later = changed.at(before.now or datetime.now(UTC), before.delivered)
    (finding,) = plan(later).findings_of("RelaySite", "nyc")
    assert (finding.reason, finding.in_effect) == ("Pending", True)
    assert 'GossipRouter "typo"' in finding.message
    assert "the members find each other as before" in finding.message
    (site,) = sections(later, "east", "relaySite")
    assert site == sections(before, "east", "relaySite")[0]
    policies = [
        [
            item["spec"]
            for item in render(state, SETTINGS).routers["east"].objects
            if item["kind"] == "NetworkPolicy"
        ]
        for state in (before, later)
    ]
    assert policies[0] == policies[1], "their ports stay open to each other"


@pytest.mark.parametrize(
    ("spec", "members_bound", "remote_names"),
    [
        ({}, True, "sfo"),
        ({"bridge": {"tls": {"secretName": "net"}}}, True, "*"),
        ({"tls": {"secretName": "net"}}, False, "sfo"),
        ({"tls": {"secretName": "net"}, "bridge": {"tls": {"secretName": "net"}}}, False, "*"),
        ({"tls": {"disabled": True}}, True, "sfo"),
    ],
)
def test_names_are_bound_where_certificates_are_those_of_the_own_authority(
    spec: dict[str, Any], members_bound: bool, remote_names: str
) -> None:
    remotes: list[dict[str, Any]] = [
        {"site": "sfo", "endpoints": ["far.example"]},
        {"site": "over", "over": "bridges/trades"},
    ]
    expected: dict[str, str | None] = {"sfo": remote_names, "over": None}
    if "bridge" in spec:
        remotes.append({"site": "named", "endpoints": ["far.example"], "peerNames": ["bridge.example"]})
        expected["named"] = "bridge.example"
    site = relay_site("nyc", "east", remoteSites=remotes, **spec)
    found = model(router("east"), site, secrets=[tls_secret("net")])
    (section,) = sections(found, "east", "relaySite")
    assert section.get("bindNames", True) is members_bound
    names = {item["site"]: item.get("peerNames") for item in sections(found, "east", "relayRemote")}
    assert names == expected


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("tunnel", {}, "east"),
        ("tunnel", {"tls": {"secretName": "net"}}, None),
        ("tunnel", {"tls": {"secretName": "net"}, "peerNames": ["*.members"]}, "*.members, east"),
        ("gossipRouter", {"tls": {"secretName": "net"}, "peerNames": ["*.members"]}, "*.members"),
    ],
)
def test_peer_names_include_those_of_certificates_at_gossip_routers_that_carry_frames(
    kind: str, spec: dict[str, Any], expected: str | None
) -> None:
    site = relay_site("nyc", "east", discovery={"type": kind, "gossipRouterRef": {"name": "g"}}, **spec)
    found = model(router("east"), site, gossip_router("g"), secrets=[tls_secret("net")])
    (section,) = sections(found, "east", "relaySite")
    assert section.get("peerNames") == expected


@pytest.mark.parametrize("kind", ["gossipRouter", "tunnel"])
def test_members_and_gossip_routers_use_certificates_of_the_namespaces_own_authority(kind: str) -> None:
    spec = {"discovery": {"type": kind, "gossipRouterRef": {"name": "g"}}}
    found = model(router("east"), relay_site("nyc", "east", **spec), gossip_router("g"))
    (site,) = sections(found, "east", "relaySite")
    assert "plainText" not in site
    profiles = {item["name"]: item for item in sections(found, "east", "sslProfile")}
    used = profiles[site["gossipSslProfile"]]
    assert {used[name].rpartition("-")[2] for name in ("certFile", "caCertFile")} == {"tls.crt", "ca.crt"}
    objects = {item["kind"]: item for item in render(found, SETTINGS).gossip_routers["g"].objects}
    (container,) = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert "--plain-text" not in container["args"]
    assert "--tls-ca=/etc/isthmus/ca.crt" in container["args"]
    own = found.ledgers["g_gossip"].material
    assert {key: b64decode(value) for key, value in objects["Secret"]["data"].items()} == own


@pytest.mark.parametrize(
    ("discovery", "gossip"),
    [
        ({"gossipRouterRef": {"name": "g"}}, {"tls": {"disabled": True}}),
        ({"gossipRouterRef": {"name": "g"}, "gossipTls": {"disabled": True}}, {"tls": {"disabled": True}}),
        ({"gossipRouters": ["far.example"], "gossipTls": {"disabled": True}}, {}),
    ],
)
def test_connections_with_gossip_routers_in_clear_text_are_stated(
    discovery: dict[str, Any], gossip: dict[str, Any]
) -> None:
    spec = {"discovery": {"type": "tunnel", **discovery}}
    found = model(router("east"), relay_site("nyc", "east", **spec), gossip_router("g", **gossip))
    (site,) = sections(found, "east", "relaySite")
    assert site["plainText"] is True
    assert "gossipSslProfile" not in site
    assert site["sslProfile"] == site["bridgeSslProfile"]
    if gossip:
        (*_, stateful_set) = render(found, SETTINGS).gossip_routers["g"].objects
        assert "--plain-text" in stateful_set["spec"]["template"]["spec"]["containers"][0]["args"]


def test_a_gossip_router_without_the_certificate_of_the_authority_never_runs_in_clear_text() -> None:
    built = NamespaceModel.from_manifests("net", [gossip_router("g")]).with_authority(None, "no rights")
    found = render(built, SETTINGS)
    (finding,) = found.findings_of("GossipRouter", "g")
    assert (finding.reason, finding.blocking) == ("Pending", True)
    assert "has not issued a certificate yet: no rights" in finding.message
    assert found.gossip_routers == {}


def test_a_site_keeps_certificates_for_gossip_routers_while_its_discovery_is_that_of_before() -> None:
    """The configuration has none where the members do not connect to gossip routers."""
    before = delivered(model(router("east"), relay_site("nyc", "east")), "east")
    spec = {"discovery": {"type": "tunnel", "gossipRouterRef": {"name": "g"}}}
    changed = model(router("east"), relay_site("nyc", "east", **spec), gossip_router("g", replicas=0))
    (site,) = sections(changed.at(before.now or datetime.now(UTC), before.delivered), "east", "relaySite")
    assert (site["discovery"], site.get("gossipSslProfile"), site.get("plainText")) == ("dns", None, None)


def test_gossip_routers_are_asked_one_by_one() -> None:
    spec = {"discovery": {"type": "gossipRouter", "gossipRouterRef": {"name": "g"}}}
    found = model(router("east"), relay_site("nyc", "east", **spec), gossip_router("g", port=9))
    (site,) = sections(found, "east", "relaySite")
    assert (site["discovery"], site["discoveryHosts"]) == (
        "gossipRouter",
        "g-gossip-0.g-gossip.net.svc:9, g-gossip-1.g-gossip.net.svc:9",
    )
    listed = {"discovery": {"type": "hostList", "hosts": ["a", "b:1"], "portRange": 2}}
    (site,) = sections(model(router("east"), relay_site("nyc", "east", **listed)), "east", "relaySite")
    assert (site["discoveryHosts"], site["portRange"]) == ("a, b:1", 2)


def test_objects_of_a_gossip_router() -> None:
    spec = {"replicas": 3, "tls": {"secretName": "net"}, "expose": "NodePort", "nodePort": 30001}
    found = rendered(gossip_router("g", **spec), secrets=[tls_secret("net")])
    objects = {(item["kind"], item["metadata"]["name"]): item for item in found.gossip_routers["g"].objects}
    assert set(objects) == {
        *((kind, "g-gossip") for kind in ("ServiceAccount", "Secret", "Service", "StatefulSet")),
        *((kind, "g-gossip") for kind in ("PodDisruptionBudget", "NetworkPolicy")),
        ("Service", "g-gossip-exposed"),
    }
    assert objects["Service", "g-gossip"]["spec"]["clusterIP"] == "None"
    assert objects["Service", "g-gossip-exposed"]["spec"]["ports"][0]["nodePort"] == 30001
    assert set(objects["Secret", "g-gossip"]["data"]) == {"ca.crt", "tls.crt", "tls.key"}
    template = objects["StatefulSet", "g-gossip"]["spec"]["template"]
    assert template["metadata"]["annotations"] == scraped(9090)
    pod = template["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["isthmus-gossip-router"]
    assert set(container["args"]) == {
        *("--port=12001", "--health-port=9090", "--expiry=30"),
        *(
            f"--tls-{option}=/etc/isthmus/{file}"
            for option, file in (("cert", "tls.crt"), ("key", "tls.key"))
        ),
        "--tls-ca=/etc/isthmus/ca.crt",
        "--tls-minimum-version=TLSv1.2",
    }
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert all(item["metadata"]["namespace"] == "net" for item in objects.values())
    json.dumps(found.gossip_routers["g"].objects)


def test_a_gossip_router_waits_for_its_certificates_and_its_name() -> None:
    found = rendered(gossip_router("g", tls={"secretName": "net"}))
    (finding,) = found.findings_of("GossipRouter", "g")
    assert (finding.reason, finding.blocking) == ("SecretNotFound", True)
    found = rendered(gossip_router("g"), router("g-gossip"))
    assert {item.reason for item in found.findings_of("GossipRouter", "g")} == {"NameConflict"}
    assert found.gossip_routers == {}
