"""Properties of rendering that hold for any valid set of resources."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operator.support import (
    connector,
    gossip_router,
    link_route,
    model,
    opaque_secret,
    relay_site,
    router,
    tls_secret,
)

from isthmus_operator.render import Rendered, RenderSettings, canonical, render
from isthmus_operator.render.restrictions import Restrictions
from isthmus_operator.resources import InvalidResourceError
from isthmus_operator.resources import parse as parse_resource
from isthmus_router.config import parse

EXPOSED = Restrictions(allowed_exposures=("NodePort", "LoadBalancer"))
SETTINGS = RenderSettings(router_image="router:1", restrictions=EXPOSED)
NAMES = ("a", "b", "c", "d", "a-b")
SECRETS = [tls_secret("server"), tls_secret("trust", "ca.crt"), opaque_secret("login", "password")]

names = st.sampled_from(NAMES)
secret_names = st.sampled_from(["server", "trust", "login", "missing"])


@st.composite
def listeners(draw: st.DrawFn, mode: str) -> list[dict[str, Any]]:
    roles = ["normal", "route-container"] + (["inter-router", "edge"] if mode == "interior" else [])
    chosen = draw(st.lists(st.sampled_from(roles), min_size=1, max_size=5))
    if mode == "interior":
        chosen.append("inter-router")
    out = []
    for number, role in enumerate(chosen):
        exposure = draw(st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "None"]))
        listener: dict[str, Any] = {
            "name": f"l{number}",
            "role": role,
            "port": 5000 + number,
            "exposure": exposure,
        }
        if draw(st.booleans()):
            listener["tls"] = {
                "secretName": draw(secret_names),
                "requireClientCertificate": draw(st.booleans()),
            }
        if exposure == "NodePort" and draw(st.booleans()):
            listener["nodePort"] = draw(st.integers(30000, 30003))
        out.append(listener)
    return out


@st.composite
def routers(draw: st.DrawFn, name: str) -> dict[str, Any]:
    mode = draw(st.sampled_from(["interior", "edge"]))
    spec: dict[str, Any] = {"mode": mode, "replicas": draw(st.integers(0, 4))}
    if draw(st.booleans()):
        spec["listeners"] = draw(listeners(mode))
    prefixes = draw(st.lists(st.sampled_from(["x", "y", "z/1"]), unique=True))
    spec["addresses"] = [
        {"prefix": prefix, "distribution": "multicast", "waypoint": draw(st.booleans())}
        for prefix in prefixes
    ]
    return router(name, **spec)


@st.composite
def connectors(draw: st.DrawFn, name: str) -> dict[str, Any]:
    source, to = draw(names), draw(st.one_of(names, st.just(("mq.example", 5672))))
    if to == source:
        to = ("mq.example", 5672)
    role = draw(st.sampled_from(["inter-router", "edge", "normal", "route-container"]))
    spec: dict[str, Any] = {"cost": draw(st.integers(1, 5))}
    if role == "route-container" and draw(st.booleans()):
        spec["autoLinks"] = [{"address": "x", "direction": way} for way in ("in", "out")]
    if draw(st.booleans()):
        spec["tls"] = {"secretName": draw(secret_names)}
    if draw(st.booleans()):
        spec["sasl"] = {"username": "u", "passwordSecretRef": {"name": draw(secret_names)}}
    return connector(name, source, to, role, **spec)


@st.composite
def link_routes(draw: st.DrawFn) -> list[dict[str, Any]]:
    chosen = draw(st.lists(st.sampled_from(["r1", "r2", "r3"]), unique=True))
    found = []
    for name in chosen:
        match = draw(
            st.sampled_from([{"prefix": "x"}, {"prefix": "x.y"}, {"pattern": "x/#"}, {"pattern": "*"}])
        )
        to = draw(st.sampled_from([{"connector": "k1"}, {"connector": "k2"}, {"containerId": "mq"}]))
        routers = draw(st.one_of(st.none(), st.lists(names, unique=True, min_size=1)))
        chosen_ones = {"routers": routers} if routers else {}
        direction = draw(st.sampled_from(["in", "out", "both"]))
        found.append(link_route(name, direction=direction, **match, **to, **chosen_ones))
    return found


@st.composite
def resources(draw: st.DrawFn) -> list[dict[str, Any]]:
    chosen = draw(st.lists(names, unique=True, max_size=4))
    links = draw(st.lists(st.sampled_from(["k1", "k2", "k3", "k4"]), unique=True))
    return [draw(routers(name)) for name in chosen] + [draw(connectors(name)) for name in links]


def with_link_routes() -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.tuples(resources(), link_routes()).map(lambda parts: parts[0] + parts[1])


@st.composite
def with_sites(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Also several on one Router, or of one name, and such that name sites and certificates that are not there."""
    tls = st.sampled_from([{}, {"tls": {"secretName": "server"}}, {"tls": {"secretName": "trust"}}])
    discoveries = [
        {"type": "dns"},
        {"type": "hostList", "hosts": ["h", "[::1]:7801"], "portRange": 3},
        {"type": "multicast", "multicast": {"address": "239.192.78.9", "port": 7801}},
        {"type": "tunnel", "gossipRouterRef": {"name": "g"}},
        {"type": "gossipRouter", "gossipRouters": ["h:1", "i"], "gossipTls": {"secretName": "trust"}},
    ]
    found = [*draw(resources()), router("m", replicas=2), router("n", replicas=1)]
    found += [gossip_router("g", **draw(tls))] if draw(st.booleans()) else []
    for name in draw(st.lists(st.sampled_from(["s1", "s2", "s3"]), min_size=2, unique=True)):
        ways = [{}, {"endpoints": ["h", "i:7901"]}, {"over": "bridge"}, {"relaySiteRef": {"name": "s2"}}]
        others = draw(st.lists(st.sampled_from(["s2", "s3", "s4"]), unique=True))
        remotes = [{"site": other, **draw(st.sampled_from(ways))} for other in others if other != name]
        site = relay_site(
            name,
            draw(st.sampled_from([*NAMES, "m", "n"])),
            draw(st.sampled_from(["trades", "news"])),
            site=draw(st.sampled_from([name, "s5"])),
            discovery=draw(st.sampled_from(discoveries)),
            memberPort=draw(st.sampled_from([7800, 5001])),
            bridge={"expose": draw(st.sampled_from(["ClusterIP", "LoadBalancer", "None"])), **draw(tls)},
            remoteSites=remotes,
            addresses=[{"pattern": "x/#", "sites": [item["site"] for item in remotes]}, {"pattern": "*/y"}],
            **draw(tls),
        )
        found.append(site)
    return found


def rendered(manifests: list[dict[str, Any]]) -> Rendered:
    return render(model(*manifests, secrets=SECRETS), SETTINGS)


class Mounted:
    """A Secret as a router sees it."""

    def __init__(self, secret: dict[str, Any]) -> None:
        self._secret = secret

    def read(self, path: str) -> bytes:
        return b64decode(self._secret["data"][path.removeprefix("/etc/isthmus/")])

    def variable(self, name: str) -> str | None:
        return None


def text(result: Rendered) -> dict[str, list[str]]:
    return {name: [canonical(item) for item in found.objects] for name, found in result.routers.items()}


@settings(deadline=None)
@given(with_link_routes() | with_sites(), st.randoms(use_true_random=False))
def test_rendering_is_deterministic_and_independent_of_order(
    manifests: list[dict[str, Any]], random: Any
) -> None:
    shuffled = list(manifests)
    random.shuffle(shuffled)
    first, second = rendered(manifests), rendered(shuffled)
    assert text(first) == text(second)
    assert first.findings == second.findings


@settings(deadline=None)
@given(with_link_routes() | with_sites())
def test_every_configuration_is_one_the_router_accepts(manifests: list[dict[str, Any]]) -> None:
    assert_accepted(manifests)


@settings(deadline=None)
@given(st.sampled_from(["prefix", "pattern"]), st.text("ab*#./_$ \0", min_size=1, max_size=6))
def test_every_address_of_a_router_is_refused_by_the_schema_or_accepted_by_the_router(
    field: str, text: str
) -> None:
    given_router = router("a", addresses=[{field: text, "distribution": "closest"}])
    try:
        parse_resource(given_router)
    except InvalidResourceError:
        return
    assert_accepted([given_router])


def assert_accepted(manifests: list[dict[str, Any]]) -> None:
    """Check that the router accepts each configuration that the operator renders."""
    for found in rendered(manifests).routers.values():
        secret = next(item for item in found.objects if item["kind"] == "Secret")
        for name, data in secret["data"].items():
            if name.endswith(".json"):
                parse(b64decode(data).decode(), name, default_router_id="edge-x", sources=Mounted(secret))


@settings(deadline=None)
@given(with_link_routes())
def test_object_names_are_unique_and_every_absence_is_explained(manifests: list[dict[str, Any]]) -> None:
    result = rendered(manifests)
    identities = [(i["kind"], i["metadata"]["name"]) for r in result.routers.values() for i in r.objects]
    assert len(identities) == len(set(identities))
    blocked = {item.name for item in result.findings if item.blocking}
    assert {m["metadata"]["name"] for m in manifests if m["kind"] == "Router"} == set(
        result.routers
    ) | blocked
    named = {item.name for item in result.findings if item.kind == "Connector"}
    for manifest in manifests:
        if manifest["kind"] == "Connector":
            name, source = manifest["metadata"]["name"], manifest["spec"]["from"]["routerRef"]["name"]
            instances = result.plan.instances.get(source, ())
            if not instances and source in result.plan.instances:
                continue  # scaled to zero
            present = [any(c.name == name for c in instance.connectors) for instance in instances]
            assert (name in named) != (source in result.plan.instances and all(present))


@settings(deadline=None)
@given(with_sites())
def test_a_site_is_in_effect_at_all_replicas_or_it_is_told_why_not(manifests: list[dict[str, Any]]) -> None:
    result = rendered(manifests)
    for manifest in (item for item in manifests if item["kind"] == "RelaySite"):
        name, router_name = manifest["metadata"]["name"], manifest["spec"]["routerRef"]["name"]
        instances = result.plan.instances.get(router_name, ())
        members = [instance.relay is not None and instance.relay.name == name for instance in instances]
        told = any(not item.in_effect for item in result.findings_of("RelaySite", name))
        assert told != (name in result.plan.relay_sites)
        assert set(members) <= {not told}
    groups = [(item.spec.group, item.spec.site) for item in result.plan.relay_sites.values()]
    assert len(groups) == len(set(groups))


@settings(deadline=None)
@given(with_link_routes(), routers("new"))
def test_an_unrelated_router_touches_no_other(manifests: list[dict[str, Any]], added: dict[str, Any]) -> None:
    added["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    before, after = text(rendered(manifests)), text(rendered([*manifests, added]))
    assert {name: before[name] for name in before} == {name: after[name] for name in before}


@settings(deadline=None)
@given(resources(), connectors("k9"))
def test_a_connector_changes_only_the_configurations_of_its_ends(
    manifests: list[dict[str, Any]], added: dict[str, Any]
) -> None:
    before, after = rendered(manifests), rendered([*manifests, added])
    spec = added["spec"]
    ends = {spec["from"]["routerRef"]["name"], spec["to"].get("routerRef", {}).get("name")}
    for name, found in before.routers.items():
        for old, new in zip(found.objects, after.routers[name].objects, strict=True):
            assert old == new or (name in ends and old["kind"] == "Secret")
