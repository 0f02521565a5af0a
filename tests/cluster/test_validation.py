"""The API server refuses wrong values of every field and names the field; it accepts what is right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.operator.bad_values import ALL, IDS, Bad
from tests.unit.operator.support import connector, gossip_router, relay_site, router

from . import installation
from .harness.cluster import Cluster
from .harness.host import CommandError


@pytest.fixture(scope="module", autouse=True)
def _schemas(cluster: Cluster) -> Iterator[None]:
    with installation.schemas(cluster):
        yield


def create(cluster: Cluster, manifest: dict[str, Any], *, dry: bool = True) -> str:
    manifest = {**manifest, "metadata": {"name": manifest["metadata"]["name"]}}
    arguments = ["create", "--namespace=default", "--filename=-", "--output=json"]
    return cluster.kubectl(*arguments, *(["--dry-run=server"] if dry else []), input=json.dumps(manifest))


@pytest.fixture(scope="module")
def refusals(cluster: Cluster) -> dict[str, str]:
    """What kubectl says of the resources with one wrong value each that the schema refuses, by name. All in one
    command, as each takes a process."""
    items = [
        {
            "apiVersion": "isthmus.dev/v1alpha1",
            "kind": bad.kind,
            "metadata": {"name": f"x{number}"},
            "spec": bad.spec,
        }
        for number, bad in enumerate(ALL)
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    # Without `--validate=false`, kubectl itself would refuse the list as a whole.
    arguments = ("create", "--namespace=default", "--filename=-", "--dry-run=server", "--validate=false")
    with pytest.raises(CommandError) as refused:
        cluster.kubectl(*arguments, input=text, timeout=300)
    _, *parts = re.split(r'"(x[0-9]+)" is invalid', refused.value.output)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize(("name", "bad"), [(f"x{at}", bad) for at, bad in enumerate(ALL)], ids=IDS)
def test_a_wrong_value_is_refused_with_the_path_of_the_field(
    refusals: dict[str, str], name: str, bad: Bad
) -> None:
    assert name in refusals, "it must be the schema that refuses"
    assert "spec." in refusals[name]
    assert bad.field in refusals[name]


def test_defaults_are_filled_in_by_the_api_server(cluster: Cluster) -> None:
    listeners = [{"name": "amqp", "port": 5672}]
    found = json.loads(create(cluster, router("west", listeners=listeners)))
    assert found["spec"]["mode"] == "interior"
    assert found["spec"]["listeners"] == listeners, "or it would differ from what is applied again"
    link = json.loads(create(cluster, connector("c", "west", "east", "inter-router")))
    assert link["spec"]["cost"] == 1


@pytest.mark.parametrize(
    "path", sorted((installation.ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name
)
def test_an_example_applied_again_is_unchanged(cluster: Cluster, namespace: str, path: Path) -> None:
    apply = ("apply", f"--namespace={namespace}", f"--filename={path}")
    cluster.kubectl(*apply)
    again = cluster.kubectl(*apply).splitlines()
    assert again
    assert [line for line in again if not line.endswith(" unchanged")] == []


def test_defaults_of_sites_and_gossip_routers(cluster: Cluster) -> None:
    remotes = [{"site": "sfo", "endpoints": ["sfo.example"]}]
    site = json.loads(create(cluster, relay_site("nyc", "west", remoteSites=remotes)))["spec"]
    assert site["discovery"] == {"type": "dns", "portRange": 0}
    assert site["bridge"] == {"port": 7900, "expose": "ClusterIP"}
    assert site["buffer"] == {"messages": 65536, "bytes": 64 * 2**20, "seconds": 60}
    assert (site["memberPort"], site["relays"], site["copies"]) == (7800, 1, 2)
    assert site["remoteSites"] == remotes, "or it would differ from what is applied again"
    gossip = json.loads(create(cluster, gossip_router("g")))["spec"]
    assert (gossip["replicas"], gossip["port"], gossip["expose"]) == (2, 12001, "ClusterIP")


def test_columns_of_sites(cluster: Cluster, namespace: str) -> None:
    site = {**relay_site("nyc", "west"), "metadata": {"name": "nyc"}}
    cluster.apply(site, namespace=namespace)
    status = {
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "SiteUnreachable",
                "message": "sfo: nobody answers",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "coordinator": "west-0",
        "formed": "2/2",
        "remotes": "sfo unreachable",
        "lagMessages": 12,
    }
    patch = f"-p={json.dumps({'status': status})}"
    where = f"--namespace={namespace}"
    cluster.kubectl("patch", "rsite/nyc", where, "--subresource=status", "--type=merge", patch)
    heading, row = cluster.kubectl("get", "rsite", where).splitlines()
    assert heading.split()[:-1] == [
        *("NAME", "READY", "REASON", "GROUP", "SITE", "COORDINATOR", "MEMBERS", "REMOTES", "LAG", "INSECURE"),
    ]
    assert row.split()[:9] == [
        "nyc",
        "False",
        "SiteUnreachable",
        "trades",
        "nyc",
        "west-0",
        "2/2",
        "sfo",
        "unreachable",
    ]
    chosen = ("get", "rsite", where, "--field-selector=spec.group=trades,spec.routerRef.name=west", "-oname")
    assert cluster.kubectl(*chosen).strip() == "relaysite.isthmus.dev/nyc"


def test_a_gossip_router_can_be_scaled(cluster: Cluster, namespace: str) -> None:
    cluster.apply({**gossip_router("g"), "metadata": {"name": "g"}}, namespace=namespace)
    cluster.kubectl("scale", "gossip/g", "--replicas=3", f"--namespace={namespace}")
    assert cluster.get("gossip/g", namespace=namespace)["spec"]["replicas"] == 3


def test_an_unknown_field_is_named(cluster: Cluster) -> None:
    with pytest.raises(CommandError) as refused:
        create(cluster, router("west", replica=2))
    assert "spec.replica" in refused.value.output


def test_the_mode_of_a_router_cannot_change_and_it_can_be_scaled(cluster: Cluster, namespace: str) -> None:
    cluster.apply({**router("west"), "metadata": {"name": "west"}}, namespace=namespace)
    with pytest.raises(CommandError) as refused:
        cluster.kubectl(
            "patch", "rtr/west", f"--namespace={namespace}", "--type=merge", '-p={"spec":{"mode":"edge"}}'
        )
    assert "spec.mode" in refused.value.output
    assert "immutable" in refused.value.output
    cluster.kubectl("scale", "rtr/west", "--replicas=3", f"--namespace={namespace}")
    assert cluster.get("rtr/west", namespace=namespace)["spec"]["replicas"] == 3
    with pytest.raises(CommandError) as refused:
        cluster.kubectl("scale", "rtr/west", "--replicas=33", f"--namespace={namespace}")
    assert "at most 32" in refused.value.output


def test_resources_are_found_by_category_short_name_and_field(cluster: Cluster, namespace: str) -> None:
    for manifest in (router("west"), router("shop", mode="edge"), connector("up", "shop", "west", "edge")):
        cluster.apply({**manifest, "metadata": {"name": manifest["metadata"]["name"]}}, namespace=namespace)
    everything = cluster.kubectl("get", "isthmus", f"--namespace={namespace}", "--output=name")
    assert sorted(everything.split()) == [
        "connector.isthmus.dev/up",
        "router.isthmus.dev/shop",
        "router.isthmus.dev/west",
    ]
    edges = cluster.get("rtr", "--field-selector=spec.mode=edge", namespace=namespace)["items"]
    assert [item["metadata"]["name"] for item in edges] == ["shop"]
    table = cluster.kubectl("get", "conn", f"--namespace={namespace}")
    assert table.split("\n")[0].split() == [
        "NAME", "READY", "REASON", "FROM", "TO", "ROLE", "COST", "OPEN", "INSECURE", "AGE",
    ]  # fmt: skip
