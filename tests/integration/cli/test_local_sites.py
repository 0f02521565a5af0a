"""Sites by `isthmus local`: the example as it stands, and members that find each other through gossip routers."""

from __future__ import annotations

from pathlib import Path

from tests.integration.support.isthmus import Isthmus

EXAMPLE = (Path(__file__).parents[3] / "examples" / "sites.yaml").read_text()
GOSSIP = """
---
apiVersion: isthmus.dev/v1alpha1
kind: GossipRouter
metadata: {name: g}
spec: {replicas: 2}
"""


def through_gossip(kind: str) -> str:
    discovery = f"  discovery: {{type: {kind}, gossipRouterRef: {{name: g}}}}\n  group: trades\n"
    return EXAMPLE.replace("  group: trades\n", discovery).replace("replicas: 3", "replicas: 2") + GOSSIP


def sites(isthmus: Isthmus) -> dict[str, tuple[str, str, list[str]]]:
    """State, members of those wanted, and states of the remote sites, by name."""
    return {
        row["name"]: (row["state"], row["formed"], [remote["state"] for remote in row["remotes"]])
        for row in isthmus.status()["sites"]
    }


def in_clear_text(isthmus: Isthmus) -> dict[str, tuple[list[str], bool]]:
    """Kinds of connections between members that their routers show, and whether one has warned of it, by router."""
    ids = [router["id"] for router in isthmus.status()["routers"]]
    return {
        router_id: (
            isthmus.document(router_id)["relay"]["plainText"],
            "connections without TLS" in (isthmus.folder / "routers" / router_id / "router.log").read_text(),
        )
        for router_id in ids
    }


def test_the_example(isthmus: Isthmus) -> None:
    isthmus.up(EXAMPLE)
    assert sites(isthmus) == {"nyc": ("ready", "3/3", ["up"]), "sfo": ("ready", "3/3", ["up"])}
    members = [f"{site}-{number}" for site in ("nyc", "sfo") for number in range(3)]
    assert in_clear_text(isthmus) == dict.fromkeys(members, ([], False))
    pid = isthmus.pid("nyc-0")
    routers = EXAMPLE[: EXAMPLE.index("kind: RelaySite")].rpartition("---")[0]
    isthmus.up(routers)
    assert sites(isthmus) == {}
    isthmus.up(EXAMPLE)
    assert sites(isthmus)["nyc"] == ("ready", "3/3", ["up"])
    assert isthmus.pid("nyc-0") == pid, "a site comes and goes while its routers run"


def test_members_that_ask_or_go_through_gossip_routers(isthmus: Isthmus) -> None:
    for kind in ("gossipRouter", "tunnel"):
        isthmus.up(through_gossip(kind))
        assert sites(isthmus) == {"nyc": ("ready", "2/2", ["up"]), "sfo": ("ready", "2/2", ["up"])}, kind
