"""Members of a site find each other on networks of their own, in every way there is."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.integration.sites.support.netns import Host, Network
from tests.integration.sites.support.stand import Flow, Site, SiteRouter, addresses, await_mutual
from tests.integration.support.routers import eventually

Make = Callable[..., Site]


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture
def make(network: Network, tmp_path: Path) -> Iterator[Make]:
    """Makes a site of routers on hosts, all with these attributes; they are not started."""
    made: list[Site] = []

    def site(hosts: Sequence[Host], named: str = "nyc", **attributes: Any) -> Site:
        made.append(Site(named, [SiteRouter(tmp_path, host, named, **attributes) for host in hosts]))
        return made[-1]

    yield site
    for each in made:
        each.kill()


def lan(network: Network) -> list[Host]:
    """Three hosts in one segment."""
    segment = network.segment("10.74.1.0/24")
    return [network.host(f"nyc-{number}", segment) for number in range(3)]


def gossip_router(host: Host) -> None:
    """One that runs on a host, with the ports of the defaults."""
    host.start(sys.executable, "-m", "isthmus_router.gossip", "--plain-text", "--log-level", "error")

    def listens() -> bool:
        with host.inside(), suppress(OSError), socket.create_connection(("localhost", 12001), 1):
            return True
        return False

    eventually(listens, "the gossip router listens")


def exchange(site: Site, messages: int = 200) -> None:
    """From each to all."""
    for source in site.running:
        Flow(source, site.running, messages=messages).end(f"from {source.id}")


def crash_and_come_again(site: Site) -> None:
    """The coordinator; it is found again by those who are left, and finds them."""
    coordinator = site.order()[0]
    coordinator.kill()
    site.order()
    site.start()
    exchange(site)


def test_multicast(network: Network, make: Make) -> None:
    site = make(lan(network), discovery="multicast").start()
    crash_and_come_again(site)


def test_list_of_hosts_with_ranges_of_ports(network: Network, make: Make) -> None:
    """Three members at ports of one host, one at another that is not in the list."""
    segment = network.segment("10.74.1.0/24")
    hosts = [network.host(f"nyc-{number}", segment) for number in range(2)]
    settings = {"discoveryHosts": f"{hosts[0].address}:7800", "portRange": 2}
    site = make(hosts[:1], **settings)
    for port in (7801, 7802):
        there = {"name": f"nyc-{port}", "memberPort": port, "bridgePort": port + 100}
        site.routers += make(hosts[:1], **settings, **there).routers
    site.routers += make(hosts[1:], **settings).routers
    site.start()
    exchange(site)


def test_names(network: Network, make: Make, tmp_path: Path) -> None:
    """The addresses of a name change, as those of a headless Service do."""
    hosts = lan(network)
    names = tmp_path / "hosts"

    def resolve_to(*of: Host) -> None:
        lines = ("127.0.0.1 localhost\n", *(f"{host.address} members.test\n" for host in of))
        names.write_text("".join(lines))

    resolve_to(*hosts[:2])
    site = make(hosts, host_names=names, discovery="dns", discoveryHosts="members.test:7800")
    last = site.routers.pop()
    site.start()
    resolve_to(*hosts)
    site.routers.append(last)
    site.start()
    crash_and_come_again(site)


def test_gossip_routers_of_which_one_ends(network: Network, make: Make) -> None:
    """Nobody notices; and who comes later finds the others by the one that is left, until that has ended too."""
    hosts = lan(network)
    (segment,) = hosts[0].links
    helpers = [network.host(f"gossip-{number}", segment) for number in range(2)]
    for helper in helpers:
        gossip_router(helper)
    site = make(hosts, discovery="gossipRouter", discoveryHosts=addresses(helpers, 12001))
    last = site.routers.pop()
    site.start()
    view = site.routers[0].relay["view"]
    flow = Flow(site.routers[0], site.routers, messages=2_000)
    flow.after(0.5)
    helpers[0].kill()
    flow.end("a gossip router is killed")
    assert site.routers[0].relay["view"] == view
    site.routers.append(last)
    site.start()
    view = site.routers[0].relay["view"]
    helpers[1].kill()
    exchange(site)
    assert site.routers[0].relay["view"] == view
    for helper in helpers:
        gossip_router(helper)
    crash_and_come_again(site)


def test_tunnel_where_members_cannot_connect(network: Network, make: Make) -> None:
    """Each in a network of its own that refuses what comes from others; everything goes through two gossip routers,
    of which one ends under load."""
    middle = network.segment("10.74.9.0/24")
    hosts, gateways = [], []
    for number in range(3):
        own = network.segment(f"10.74.{number + 1}.0/24")
        gateway = network.gateway(f"gateway-{number}", own, middle)
        gateway.translate(own, middle)
        gateways.append(gateway)
        hosts.append(network.host(f"nyc-{number}", own, gateway=gateway))
    helpers = [network.host(f"gossip-{number}", middle) for number in range(2)]
    for helper in helpers:
        gossip_router(helper)
    site = make(hosts, discovery="tunnel", discoveryHosts=addresses(helpers, 12001)).start()
    view = site.routers[0].relay["view"]
    flow = Flow(site.routers[0], site.routers, messages=3_000)
    flow.after(0.5)
    helpers[0].kill()
    delays = flow.end("a gossip router that carries everything is killed")
    assert max(delays.values()) < 5
    assert site.routers[0].relay["view"] == view
    crash_and_come_again(site)


def test_members_behind_address_translation(network: Network, make: Make) -> None:
    """Each site behind a gateway that translates: members and relays announce the addresses that are reached."""
    wan = network.segment("10.74.9.0/24")
    sites: dict[str, list[Host]] = {}
    outside: dict[str, list[str]] = {}
    for number, name in enumerate(("nyc", "sfo"), start=1):
        own = network.segment(f"10.74.{number}.0/24")
        gateway = network.gateway(f"gateway-{name}", own, wan)
        gateway.translate(own, wan)
        sites[name] = [network.host(f"{name}-{at}", own, gateway=gateway) for at in range(2)]
        for at, host in enumerate(sites[name]):
            gateway.publish(wan, 7900 + at, host, 7900)
        outside[name] = [f"{gateway.links[wan].address}:{7900 + at}" for at in range(2)]
    made = []
    for name, other in (("nyc", "sfo"), ("sfo", "nyc")):
        far = ("relayRemote", {"site": other, "endpoints": ",".join(outside[other])})
        members = {"discoveryHosts": addresses(sites[name]), "remotes": [far]}
        routers = [
            make([host], name, announceBridge=reached, **members).routers[0]
            for host, reached in zip(sites[name], outside[name], strict=True)
        ]
        made.append(Site(name, routers).start())
    nyc, sfo = made
    await_mutual(nyc, sfo)
    everybody = nyc.routers + sfo.routers
    Flow(nyc.routers[0], everybody, messages=500).end("to the other site")
    flow = Flow(sfo.order()[1], [*nyc.order()[1:], sfo.order()[1]], messages=2_500)
    flow.after(0.5)
    nyc.order()[0].kill()
    sfo.order()[0].kill()
    flow.end("both relays are killed")


def test_interface_that_goes_down(network: Network, make: Make) -> None:
    """A member with two interfaces stays a member by the other one, and nothing is lost."""
    red, blue = network.segment("10.74.1.0/24"), network.segment("10.74.2.0/24")
    hosts = [network.host(f"nyc-{number}", red, blue) for number in range(3)]
    site = make(hosts, discoveryHosts=addresses(hosts)).start()
    view = site.routers[0].relay["view"]
    flow = Flow(site.routers[0], site.routers, messages=6_000)
    flow.after(0.5)
    hosts[1].links[red].down()
    delays = flow.end("an interface goes down")
    assert site.order()
    assert site.routers[0].relay["view"] == view, "nobody was taken for dead"
    assert max(delays.values()) < 5
