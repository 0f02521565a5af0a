"""Two sites in traffic, while their pods, their connections and their certificates come and go.

Everything between members, between sites and to the gossip routers is over mutual TLS, with certificates of
SslProfiles.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.provider import Faults
from tests.cluster.support.sites import Site
from tests.cluster.support.traffic import Traffic

UNDER_WAY = 100
"""Messages between the sites while nothing is wrong: less than those of a quarter of a second."""


@pytest.fixture(scope="module")
def sites(cluster: Cluster) -> Iterator[dict[str, Site]]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(installation.schemas(cluster))
        namespaces = {name: stack.enter_context(cluster.namespace(name)) for name in ("nyc", "sfo")}
        nodes = sorted(cluster.nodes())
        stack.enter_context(installation.operator(cluster, *namespaces.values(), node=nodes[0]))
        image = installation.router_image(cluster)
        nyc, sfo = (
            Site(cluster, namespace, name, node, image)
            for (name, namespace), node in zip(namespaces.items(), nodes[-2:], strict=True)
        )
        nyc.apply(sfo, {"type": "dns"})
        sfo.apply(nyc, {"type": "gossipRouter", "gossipRouterRef": {"name": "meet"}})
        healthy(nyc, sfo)
        yield {"nyc": nyc, "sfo": sfo}


def healthy(*sites: Site) -> None:
    """Waits until the status of each says that all is well, and hardly anything waits for the other one."""
    for site in sites:
        site.network.ready(site.resource)
        other = {"nyc": "sfo", "sfo": "nyc"}[site.name]

        def settled(site: Site = site, other: str = other) -> bool:
            *shown, lag = site.column()
            expected = [
                site.name,
                "True",
                "Ready",
                "trades",
                site.name,
                site.coordinator(),
                "3/3",
                other,
                "up",
            ]
            assert shown == expected
            assert int(lag) < UNDER_WAY, lag
            return True

        site.cluster.eventually(f"{site.name} is shown as well", settled, timeout=30)
        assert site.remote()["dropped"] == site.remote()["gaps"] == 0


def others(site: Site, *pods: str) -> list[str]:
    return [pod for pod in site.pods if pod not in pods]


@pytest.mark.parametrize("name", ["nyc", "sfo"])
def test_deletion_of_a_coordinator(sites: dict[str, Site], name: str) -> None:
    nyc, sfo, site = sites["nyc"], sites["sfo"], sites[name]
    coordinator, before = site.coordinator(), site.network.pods(name)
    view = int(site.status()["view"].split()[0])
    with Traffic(
        f"{name}-falls",
        nyc,
        sfo,
        asker=others(nyc, coordinator)[0],
        server=others(sfo, coordinator)[0],
    ) as traffic:
        site.network.kubectl("delete", f"pod/{coordinator}", "--wait=false")
        site.cluster.eventually("another one coordinates", lambda: site.coordinator() != coordinator)
        traffic.advance()
        site.replaced([coordinator], before)
        healthy(nyc, sfo)
        assert int(site.status()["view"].split()[0]) >= view + 2
        traffic.all_answered()
        traffic.end(interrupted=[coordinator])


@pytest.mark.parametrize("name", ["nyc", "sfo"])
def test_rolling_restart_of_a_site(sites: dict[str, Site], name: str) -> None:
    nyc, sfo, site = sites["nyc"], sites["sfo"], sites[name]
    before = site.network.pods(name)
    with Traffic(f"{name}-rolls", nyc, sfo, asker=nyc.pods[0], server=sfo.pods[0]) as traffic:
        site.network.kubectl("rollout", "restart", f"statefulset/{name}")
        site.replaced(site.pods, before)
        healthy(nyc, sfo)
        traffic.advance()
        traffic.end(interrupted=sfo.pods if site is sfo else ())


def test_deletion_of_all_pods_of_the_sending_site(sites: dict[str, Site]) -> None:
    """What it has accepted is there."""
    nyc, sfo = sites["nyc"], sites["sfo"]
    before = nyc.network.pods("nyc")
    with Traffic("gone", nyc, sfo, asker=nyc.pods[0], server=sfo.pods[0]) as traffic:
        nyc.network.kubectl("delete", "pods", *nyc.pods, "--wait=false")
        sfo.cluster.eventually("it is told", lambda: sfo.remote()["state"] != "up")
        nyc.replaced(nyc.pods, before)
        healthy(nyc, sfo)
        traffic.advance()
        traffic.end()


def test_isolation_of_the_sites(sites: dict[str, Site], faults: Faults) -> None:
    nyc, sfo = sites["nyc"], sites["sfo"]
    with Traffic("apart", nyc, sfo, asker=nyc.pods[0], server=sfo.pods[0]) as traffic:
        ranges = [faults.pod_range(site.node) for site in (nyc, sfo)]
        faults.drop(*ranges)
        faults.drop(*reversed(ranges))
        for site, other in ((nyc, "sfo"), (sfo, "nyc")):
            site.cluster.eventually(
                "it is noticed", lambda site=site: site.remote()["state"] == "unreachable"
            )
            message = site.network.becomes(site.resource, "False", "SiteUnreachable")
            assert message.startswith(f"site {other} is unreachable: connecting takes too long"), message
            assert site.column()[-3:-1] == [other, "unreachable"]
            assert len(site.status()["members"]) == 3, "it goes on by itself"
        for sender in traffic.senders.values():
            sender.reaches("accepted", sender.progress()["accepted"] + 100)
        nyc.cluster.eventually("what waits is counted", lambda: nyc.remote()["lagMessages"] > 300)
        assert int(nyc.column()[-1]) > 300
        faults.undrop()
        healthy(nyc, sfo)
        traffic.advance()
        traffic.end()
