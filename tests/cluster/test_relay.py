"""Two sites in traffic, while their pods, their connections and their certificates come and go.

Everything between members, between sites and to the gossip routers is over mutual TLS, with certificates of
SslProfiles.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import trustme
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.provider import Faults
from tests.cluster.support.sites import AUTHORITY, GROUP, Site, bridge_name
from tests.cluster.support.traffic import MORE, Traffic
from tests.unit.operator.support import relay_site, router, ssl_profile

UNDER_WAY = 30
"""Messages between the sites while nothing is wrong: less than those of half a second."""


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
            *shown, _ = site.column()
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
            (remote,) = site.relay(site.coordinator())["remotes"]
            assert remote["lagMessages"] < UNDER_WAY, remote
            drawn = " ".join(site.network.isthmus_status().stdout.split())
            assert f"{site.name} {site.name} ready 3/3 {other} up" in drawn, drawn
            return True

        site.cluster.eventually(f"{site.name} is shown as well", settled, timeout=180)
        assert site.remote()["dropped"] == site.remote()["gaps"] == 0


def others(site: Site, *pods: str) -> list[str]:
    return [pod for pod in site.pods if pod not in pods]


def test_deletion_of_each_coordinator(sites: dict[str, Site]) -> None:
    nyc, sfo = sites["nyc"], sites["sfo"]
    coordinators = {site.name: site.coordinator() for site in (nyc, sfo)}
    with Traffic(
        "fall",
        nyc,
        sfo,
        asker=others(nyc, coordinators["nyc"])[0],
        server=others(sfo, coordinators["sfo"])[0],
    ) as traffic:
        for site in (nyc, sfo):
            coordinator, before = coordinators[site.name], site.network.pods(site.name)
            view = int(site.status()["view"].split()[0])
            site.network.kubectl("delete", f"pod/{coordinator}", "--wait=false")
            site.cluster.eventually(
                "another one coordinates",
                lambda site=site, coordinator=coordinator: site.coordinator() != coordinator,
            )
            traffic.advance()
            site.replaced([coordinator], before)
            healthy(nyc, sfo)
            assert int(site.status()["view"].split()[0]) >= view + 2
        traffic.all_answered()
        traffic.end(interrupted=[coordinators["sfo"]])


def test_rolling_restart_of_both_sites_at_once(sites: dict[str, Site]) -> None:
    nyc, sfo = sites["nyc"], sites["sfo"]
    before = {site.name: site.network.pods(site.name) for site in (nyc, sfo)}
    with Traffic("roll", nyc, sfo, asker=nyc.pods[0], server=sfo.pods[0]) as traffic:
        for site in (nyc, sfo):
            site.network.kubectl("rollout", "restart", f"statefulset/{site.name}")
        for site in (nyc, sfo):
            site.replaced(site.pods, before[site.name])
        healthy(nyc, sfo)
        traffic.advance()
        traffic.end(interrupted=sfo.pods)


def test_deletion_of_all_pods_of_the_sending_site(sites: dict[str, Site]) -> None:
    """What it has accepted is there."""
    nyc, sfo = sites["nyc"], sites["sfo"]
    before, begun = nyc.network.pods("nyc"), datetime.now(UTC)
    with Traffic("gone", nyc, sfo, asker=nyc.pods[0], server=sfo.pods[0]) as traffic:
        nyc.network.kubectl("delete", "pods", *nyc.pods, "--wait=false")
        sfo.cluster.eventually("it is missed", lambda: sfo.has_missed(nyc, begun))
        nyc.replaced(nyc.pods, before)
        healthy(nyc, sfo)
        traffic.advance()
        traffic.end()


def test_deletion_of_all_pods_of_the_receiving_site(sites: dict[str, Site]) -> None:
    """It starts empty, and has all from then on. The other one goes on."""
    nyc, sfo = sites["nyc"], sites["sfo"]
    before, begun = sfo.network.pods("sfo"), datetime.now(UTC)
    with Traffic("emptied", nyc, sfo, asker=nyc.pods[0], server=sfo.pods[0], witness=True) as traffic:
        sfo.network.kubectl("delete", "pods", *sfo.pods, "--wait=false")
        nyc.cluster.eventually("it is missed", lambda: nyc.has_missed(sfo, begun))
        for sender in traffic.senders.values():
            sender.reaches("accepted", sender.progress()["accepted"] + MORE)
        sfo.replaced(sfo.pods, before)
        healthy(nyc, sfo)
        traffic.advance()
        traffic.end(interrupted=sfo.pods)


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
            told(site, f"site {other} is unreachable: connecting takes too long")
        for sender in traffic.senders.values():
            sender.reaches("accepted", sender.progress()["accepted"] + 40)
        nyc.cluster.eventually("what waits is counted", lambda: nyc.remote()["lagMessages"] > 300)
        assert int(nyc.column()[-1]) > 300
        faults.undrop()
        healthy(nyc, sfo)
        nyc.cluster.eventually("the lag is shown as past", lambda: int(nyc.column()[-1]) < UNDER_WAY)
        traffic.advance()
        traffic.end()


def test_a_site_that_does_not_belong_is_refused(sites: dict[str, Site]) -> None:
    """Both ends say why, and what to do."""
    nyc, sfo = sites["nyc"], sites["sfo"]
    with Traffic("refused", nyc, sfo, asker=nyc.pods[0], server=sfo.pods[0]) as traffic:
        second = Site(nyc.cluster, nyc.network.namespace, "twin", nyc.node, nyc.image)
        second.renew("twin", bridge_name("sfo"))
        nyc.network.apply(
            ssl_profile("twin", "twin"),
            router("twin", site="twin"),
            relay_site(
                "twin",
                "twin",
                GROUP,
                site="sfo",
                copies=1,
                bridge={"tls": {"sslProfile": "twin"}},
                remoteSites=[{"site": "nyc", "relaySiteRef": {"name": "nyc"}}],
            ),
        )
        told(second, "another site is named sfo as well: give one of them another name")
        nyc.network.kubectl("delete", "rsite/twin", "rtr/twin", "sslp/twin")
        healthy(nyc, sfo)

        sfo.rotate("bridge.fra.example")
        sfo.revoke()
        problem = f"not {bridge_name('sfo')}: issue it for that name, or change peerNames"
        for site in (nyc, sfo):
            told(site, problem)
        sfo.rotate(bridge_name("sfo"))
        healthy(nyc, sfo)
        traffic.advance()
        traffic.end()


def told(site: Site, problem: str) -> None:
    """Waits until the condition of a RelaySite and an Event about it say what is wrong with the other site."""
    site.cluster.eventually(
        f"{site.name} says why", lambda: problem in site.network.condition(site.resource)["message"]
    )
    site.cluster.eventually(
        f"an Event about {site.name} says why",
        lambda: any(problem in note for note in site.events("SiteUnreachable")),
    )


def test_rotation_of_the_certificates_of_the_bridge(sites: dict[str, Site]) -> None:
    """First others of the same authority, then those of another one, after which the first is trusted no more."""
    nyc, sfo = sites["nyc"], sites["sfo"]
    authority = trustme.CA()
    with Traffic("rotated", nyc, sfo, asker=nyc.pods[0], server=sfo.pods[0]) as traffic:
        for issuer, *trusted in ((AUTHORITY, authority), (authority,)):
            for site in (nyc, sfo):
                site.rotate(bridge_name(site.name), issuer, *trusted)
            healthy(nyc, sfo)
            traffic.advance()
        for site in (nyc, sfo):
            site.revoke()
            assert site.network.get("sslp/bridge")["status"]["authorities"] == 1
        healthy(nyc, sfo)
        traffic.all_answered()
        traffic.end()
