"""Rights of the chart that no request has, since the API server asks for them while it decides about another request;
and requests of the operator that no other test leads to. `rights.py` compares the others with requests of all tests."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator

import pytest
from tests.unit.operator.support import (
    flow_analysis,
    flow_log,
    gossip_router,
    relay_site,
    router,
    ssl_profile,
    tls_data,
)

from .harness.cluster import Cluster
from .harness.local.provider import LocalProvider
from .support.network import USABLE, Network
from .support.tenant import Place, place_of_a_tenant, plain

OPERATOR = "isthmus-operator"
OWNERS = {
    "routers": router("owner"),
    "gossiprouters": gossip_router("owner"),
    "sslprofiles": ssl_profile("owner", "net"),
    "flowlogs": flow_log("owner", "owner"),
    "flowanalyses": flow_analysis("owner", "owner"),
}
"""Resources that objects of the operator belong to, by their name in the API."""


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Iterator[Place]:
    with place_of_a_tenant(cluster) as place:
        yield place


@pytest.fixture
def network(cluster: Cluster, place: Place) -> Iterator[Network]:
    network = Network(cluster, place.namespace)
    yield network
    network.kubectl("delete", "fan,flog,rsite,sslp,gossip,rtr", "--all", "--wait=true", "--timeout=60s")


def says(network: Network, resource: str, word: str) -> Callable[[], bool]:
    """Whether a condition of the resource has the word in its message."""

    def told() -> bool:
        conditions = network.get(resource).get("status", {}).get("conditions", ())
        assert any(word in str(item["message"]) for item in conditions), conditions
        return True

    return told


def test_objects_that_block_the_deletion_of_their_owner_need_the_right_to_its_finalizers(
    place: Place, network: Network
) -> None:
    if not isinstance(network.cluster.provider, LocalProvider):
        pytest.skip("asked for by the admission plugin OwnerReferencesPermissionEnforcement alone")
    secret = plain("Secret", labels=USABLE)
    secret["metadata"]["name"] = "net"
    secret["data"] = {key: base64.b64encode(value).decode() for key, value in tls_data().items()}
    network.cluster.apply(secret, namespace=network.namespace)
    asked = ("update", "routers.isthmus.dev", "--subresource=finalizers")
    with place.without(OPERATOR, OPERATOR, *asked) as resources:
        assert set(resources) == {f"{plural}/finalizers" for plural in OWNERS}
        network.apply(*OWNERS.values())
        for plural in OWNERS:
            owner = f"{plural}.isthmus.dev/owner"
            told = says(network, owner, "cannot set blockOwnerDeletion")
            network.cluster.eventually(f"{owner}: the object is refused", told, timeout=60)


def test_who_gives_a_role_needs_the_right_to_bind_it(place: Place, network: Network) -> None:
    with place.without(OPERATOR, OPERATOR, "bind", "role/isthmus-flow-driver") as resources:
        assert resources == ["roles"]
        network.apply(flow_log("flows"), flow_analysis("bound"))
        told = says(network, "fan/bound", "attempting to grant RBAC permissions not currently held")
        network.cluster.eventually("the RoleBinding is refused", told, timeout=60)
    network.cluster.wait("create", "rolebinding/bound-analysis", namespace=network.namespace, timeout=90)


def test_what_a_changed_resource_no_longer_wants_is_deleted(network: Network) -> None:
    keys = plain("Secret", labels=USABLE)
    keys["metadata"]["name"] = "keys"
    keys["stringData"] = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    network.cluster.apply(keys, namespace=network.namespace)
    store = {"url": "s3a://flows", "endpoint": "http://store:9000", "secretName": "keys"}
    network.apply(router("hub", replicas=2), flow_log("stored", s3=store), relay_site("nyc", "hub"))
    unwanted = (
        "pdb/hub",
        "networkpolicy/hub",
        "service/nyc-bridge",
        "secret/stored-flowlog-store-keys",
    )
    for item in unwanted:
        network.cluster.wait("create", item, namespace=network.namespace)
    network.apply(
        router("hub", networkPolicy="Disabled"),
        flow_log("stored"),
        relay_site("nyc", "hub", bridge={"expose": "None"}),
    )
    for item in unwanted:
        network.cluster.wait("delete", item, namespace=network.namespace)


def test_the_claim_of_a_flow_log_is_made_and_changed(network: Network) -> None:
    network.apply(router("hub"), flow_log("flows", volume={"size": "1Gi"}))
    claim = "pvc/flows-flowlog"
    network.cluster.wait("create", claim, namespace=network.namespace)
    network.kubectl("label", claim, "app.kubernetes.io/component-")
    network.cluster.wait(
        "jsonpath={.metadata.labels.app\\.kubernetes\\.io/component}", claim, namespace=network.namespace
    )


def test_an_analysis_without_its_schedule_runs_once(network: Network) -> None:
    network.apply(flow_log("flows"), flow_analysis("often", schedule="0 0 1 1 *", suspend=True))
    network.cluster.wait("create", "cronjob/often-analysis", namespace=network.namespace)

    def runs() -> list[str]:
        return network.kubectl("get", "jobs", "--output=name").split()

    network.apply(flow_analysis("often", suspend=True))
    network.cluster.wait("delete", "cronjob/often-analysis", namespace=network.namespace)
    (first,) = network.cluster.eventually("there is a run", runs)
    network.apply(flow_analysis("often", suspend=True, window={"last": "1h"}))
    network.cluster.eventually("there is another one", lambda: runs() and first not in runs())
