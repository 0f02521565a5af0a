"""Resources of the same second that claim the same object or port: exactly one of them gets it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.operator.api_server import WholeApiServer, store_of
from tests.unit.operator.support import (
    flow_analysis,
    flow_log,
    gossip_router,
    model,
    opaque_secret,
    own_authority,
    relay_site,
    router,
)

from isthmus_operator.apply import Identity, controller, identity
from isthmus_operator.names import CHILD_KINDS
from isthmus_operator.observe import Observer
from isthmus_operator.reconcile import Operator, Reconciliation
from isthmus_operator.render import RenderSettings, render
from isthmus_operator.render.flows.place import KEYS
from isthmus_operator.render.restrictions import Restrictions
from isthmus_operator.seniority import claims

ALL = Restrictions("Any", "Any", ("*",), allowed_exposures=("NodePort", "LoadBalancer"))
SETTINGS = RenderSettings("r:1", "c:1", analysis_image="a:1", collector_image="f:1", restrictions=ALL)
SECOND = {"creationTimestamp": "2026-01-02T00:00:00Z", "resourceVersion": "7"}
BEFORE = {**SECOND, "creationTimestamp": "2026-01-01T00:00:00Z"}

Resource = dict[str, Any]


class Api(WholeApiServer):
    """One without Events."""

    async def pages(self, kind: str, namespace: str, **query: str) -> AsyncIterator[list[Resource]]:
        for page in ():
            yield page


class Namespace:
    """A namespace with an operator."""

    def __init__(self) -> None:
        self.api = Api()
        self.observer = Observer(lambda _: None)
        self.restart()

    def restart(self) -> None:
        """Have another operator reconcile the namespace."""
        api: Any = self.api
        operator = Operator(api, SETTINGS, self.observer, "1", "pod", time.monotonic)
        self._reconciliation = Reconciliation("net", operator)

    async def reconcile(self, *resources: Resource) -> None:
        """Reconcile until nothing changes."""
        for _ in range(3):
            await self._reconciliation.look(store_of(*resources, live=self.api.live()))

    def configured(self, resource: Resource) -> dict[str, str]:
        """The condition `Configured`."""
        conditions = self.api.statuses[key_of(resource)]["conditions"]
        return next(item for item in conditions if item["type"] == "Configured")

    def message(self, resource: Resource) -> str:
        """Of the condition `Configured`."""
        return self.configured(resource)["message"]

    def objects(self, resource: Resource) -> set[Identity]:
        """The objects that a resource controls."""
        uid = resource["metadata"]["uid"]
        return {key for key, item in self.api.objects.items() if (controller(item) or {}).get("uid") == uid}

    def blocked(self, *rivals: Resource) -> list[Resource]:
        """The `rivals` whose conditions name another one of them as the one that has what they want."""
        return [
            item
            for item in rivals
            if any(title(other) in self.message(item) for other in rivals if other is not item)
        ]


@pytest.fixture
async def namespace() -> AsyncIterator[Namespace]:
    found = Namespace()
    yield found
    await found.observer.close()


def key_of(resource: Resource) -> tuple[str, str]:
    return resource["kind"], resource["metadata"]["name"]


def title(resource: Resource) -> str:
    kind, name = key_of(resource)
    return f'{kind} "{name}"'


@dataclass(frozen=True)
class Pair:
    """Two resources that want the same, and what each of them has if it gets that."""

    one: Resource
    other: Resource
    of_one: Identity
    of_other: Identity


def exposed(name: str, **more: Any) -> Resource:
    return router(name, meta=SECOND, listeners=[{"name": "b", "port": 5672, "exposure": "NodePort", **more}])


HUB = router("hub", meta=BEFORE)
LOGS = flow_log("logs", "hub", meta=BEFORE)
BASE = "r-9a-66e23d5f"
"""The name of the objects of both a Router `9a` and a Router of this name."""
PAIRS = {
    "mesh": Pair(
        router("p", meta=SECOND),
        router("p-mesh", meta=SECOND),
        ("Service", "p-mesh"),
        ("Service", "p-mesh"),
    ),
    "listener": Pair(exposed("a"), router("a-b", meta=SECOND), ("Service", "a-b"), ("Service", "a-b")),
    "gossip router": Pair(
        gossip_router("x", meta=SECOND),
        router("x-gossip", meta=SECOND),
        ("Secret", "x-gossip-certificates"),
        ("Secret", "x-gossip-certificates"),
    ),
    "exposed gossip router": Pair(
        gossip_router("x", meta=SECOND, expose="NodePort"),
        router("x-gossip-exposed", meta=SECOND),
        ("Service", "x-gossip-exposed"),
        ("Service", "x-gossip-exposed"),
    ),
    "flow log": Pair(
        flow_log("x", meta=SECOND),
        router("x-flowlog", meta=SECOND),
        ("ServiceAccount", "x-flowlog"),
        ("ServiceAccount", "x-flowlog"),
    ),
    "flow analysis": Pair(
        flow_analysis("x", "logs", meta=SECOND),
        router("x-analysis", meta=SECOND),
        ("ServiceAccount", "x-analysis"),
        ("ServiceAccount", "x-analysis"),
    ),
    "base name": Pair(
        router("9a", meta=SECOND), router(BASE, meta=SECOND), ("StatefulSet", BASE), ("StatefulSet", BASE)
    ),
    "node port": Pair(
        exposed("m", nodePort=30000), exposed("n", nodePort=30000), ("Service", "m-b"), ("Service", "n-b")
    ),
    "node port of a gossip router": Pair(
        exposed("m", nodePort=30000),
        gossip_router("n", meta=SECOND, expose="NodePort", nodePort=30000),
        ("Service", "m-b"),
        ("Service", "n-gossip-exposed"),
    ),
}
pairs = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)


@pytest.mark.parametrize("turned", [False, True], ids=["one", "other"])
@pairs
async def test_of_two_resources_of_one_second_the_one_that_has_the_object_keeps_it(
    pair: Pair, turned: bool, namespace: Namespace
) -> None:
    first, second = (pair.other, pair.one) if turned else (pair.one, pair.other)
    contested = pair.of_other if turned else pair.of_one
    await namespace.reconcile(HUB, LOGS, first)
    for _ in range(2):
        await namespace.reconcile(HUB, LOGS, first, second)
        assert namespace.blocked(first, second) == [second]
        assert contested in namespace.objects(first)
        namespace.restart()


@pairs
async def test_of_two_resources_that_are_seen_together_one_gets_the_object(
    pair: Pair, namespace: Namespace
) -> None:
    await namespace.reconcile(HUB, LOGS, pair.one, pair.other)
    (loser,) = namespace.blocked(pair.one, pair.other)
    winner, contested = (pair.other, pair.of_other) if loser is pair.one else (pair.one, pair.of_one)
    assert contested in namespace.objects(winner)
    namespace.restart()
    await namespace.reconcile(LOGS, HUB, pair.other, pair.one)
    assert namespace.blocked(pair.one, pair.other) == [loser]


@pairs
async def test_the_loser_is_not_told_to_wait(pair: Pair, namespace: Namespace) -> None:
    """A gossip router was `Pending`, and its certificate "not issued yet", although nothing would ever change."""
    await namespace.reconcile(HUB, LOGS, pair.one, pair.other)
    (loser,) = namespace.blocked(pair.one, pair.other)
    assert namespace.configured(loser)["reason"] in {
        *("NameConflict", "ObjectConflict"),
        *("ListenerConflict", "PortConflict"),
    }
    assert "yet" not in namespace.message(loser)


async def test_the_loser_gets_the_object_when_the_winner_is_gone(namespace: Namespace) -> None:
    pair = PAIRS["mesh"]
    await namespace.reconcile(pair.other)
    await namespace.reconcile(pair.one, pair.other)
    for key in namespace.objects(pair.other):
        del namespace.api.objects[key]
    await namespace.reconcile(pair.one)
    assert pair.of_one in namespace.objects(pair.one)


async def test_a_resource_with_nothing_but_its_certificates_gets_its_objects(namespace: Namespace) -> None:
    """The API server refused the others before the operator had seen the second resource."""
    gossip, other = PAIRS["gossip router"].one, PAIRS["gossip router"].other
    namespace.api.refusing |= {(kind, "x-gossip") for kind in CHILD_KINDS}
    await namespace.reconcile(gossip)
    assert namespace.objects(gossip) == {("Secret", "x-gossip-certificates")}
    namespace.api.refusing.clear()
    namespace.restart()
    await namespace.reconcile(gossip, other)
    assert namespace.blocked(gossip, other) == [other]
    assert ("StatefulSet", "x-gossip") in namespace.objects(gossip)


async def test_an_older_resource_comes_first_whoever_has_the_object(namespace: Namespace) -> None:
    older, younger = router("p", meta=BEFORE), router("p-mesh", meta=SECOND)
    await namespace.reconcile(younger)
    await namespace.reconcile(older, younger)
    assert 'belongs to Router "p"' in namespace.message(younger)


def hosts(*resources: Resource, uid: str) -> dict[str, bool]:
    """Whether the certificate of each resource names Service `p-mesh`, which the resource with this uid has."""
    found = model(*resources).beside({("Service", "p-mesh"): uid}).with_authority(own_authority())
    return {name: "p-mesh.net.svc" in item.names.hosts for name, item in found.own.items()}


def test_certificates_name_the_services_that_their_owners_get() -> None:
    one, other = PAIRS["mesh"].one, PAIRS["mesh"].other
    assert hosts(one, other, uid="uid-p-mesh") == {"p-mesh_router": True, "p_router": False}
    assert hosts(one, other, uid="uid-p") == {"p_router": True, "p-mesh_router": False}


def test_a_resource_that_does_not_want_an_object_has_no_right_to_it() -> None:
    """Somebody who may change Services alone can give one another owner."""
    found = model(PAIRS["mesh"].one, PAIRS["mesh"].other, router("z", meta=SECOND))
    for uid in ("uid-z", "nobody", "uid-p"):
        assert found.beside({("Service", "p-mesh"): uid}).juniors <= {"uid-p-mesh"}


@pytest.mark.parametrize("mode", ["interior", "edge"])
@pytest.mark.parametrize("expose", ["ClusterIP", "NodePort", "None"])
def test_claims_contain_all_objects_that_are_rendered(mode: str, expose: str) -> None:
    """Except runs of analyses, whose names nothing else has."""
    outside = {"expose": "NodePort", "nodePort": 30001} if expose == "NodePort" else {}
    listeners: list[Resource] = [{"name": "b", "port": 5672, "exposure": "NodePort", "nodePort": 30002}]
    if mode == "interior":
        listeners.append({"name": "routers", "role": "inter-router", "port": 55672})
    found = model(
        router("hub", replicas=3, mode=mode, listeners=listeners),
        router("r", replicas=3),
        relay_site("s", "r", bridge={"expose": expose, **({"nodePort": 30003} if outside else {})}),
        gossip_router("g", replicas=2, **outside),
        flow_log("logs", "r"),
        flow_log("stored", "r", s3={"url": "s3a://bucket/a", "secretName": "keys"}),
        flow_analysis("once", "logs"),
        flow_analysis("hourly", "stored", schedule="@hourly"),
        secrets=[opaque_secret("keys", *KEYS)],
    )
    sites = {site.spec.router_ref.name: site for site in found.relay_sites.values()}
    made_for = list(render(found, SETTINGS).owners())
    assert len(made_for) == 7
    for owner, objects in made_for:
        wanted = set(claims(owner, sites))
        made = {identity(item) for item in objects}
        ports = {
            ("nodePort", str(port["nodePort"]))
            for item in objects
            if item["kind"] == "Service"
            for port in item["spec"].get("ports", ())
            if "nodePort" in port
        }
        assert {key for key in made | ports if key[0] != "Job"} <= wanted
