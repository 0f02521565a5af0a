"""Sites whose routers are one network: the relays meet at an address of it."""

from __future__ import annotations

from tests.integration.sites.support.relay_sites import RelaySites, Stream, Tail
from tests.integration.support.client import Clients
from tests.integration.support.routers import Routers, listener
from tests.integration.support.topology import Network

ADDRESS = "bridges/trades"


def test_nothing_is_lost_when_relays_are_killed(routers: Routers, clients: Clients) -> None:
    network = Network(routers)
    network.mesh("nyc-0", "nyc-1", "sfo-0", "sfo-1")
    sites = RelaySites()
    sites.site("nyc", network["nyc-0"], network["nyc-1"])
    sites.site("sfo", network["sfo-0"], network["sfo-1"])
    sites.over("nyc", "sfo", ADDRESS)
    network.start()
    sites.formed()
    near, far = sites.other("nyc"), sites.other("sfo")
    tail = Tail(clients.connect(far.port).receiver("relay/trades", credit=10_000, accept=True))
    stream = Stream(clients, clients.connect(near.port).sender("relay/trades").await_credit())
    stream.send(2_000)
    sites.relay("nyc").kill()
    stream.send(3_000)
    sites.relay("sfo").kill()
    stream.send(3_000)
    stream.accepted()
    clients.until(lambda: len(tail.read()) >= stream.count, "all messages")
    clients.round_trip()
    assert tail.read() == list(range(stream.count))


def test_one_site_by_a_connection_and_another_over_the_network(routers: Routers, clients: Clients) -> None:
    network = Network(routers)
    network.line("nyc-0", "sfo-0")
    lon = routers.add("lon-0", listener(0, "inter-router", name="unused"), mode="interior")
    lon.sections.pop()
    sites = RelaySites()
    sites.site("nyc", network["nyc-0"])
    sites.site("sfo", network["sfo-0"])
    sites.site("lon", lon)
    sites.over("nyc", "sfo", ADDRESS)
    sites.direct("nyc", "lon")
    routers.start_all()
    sites.formed()
    tails = [
        Tail(clients.connect(router.port).receiver("relay/trades", credit=10_000, accept=True))
        for router in (network["sfo-0"], lon)
    ]
    stream = Stream(clients, clients.connect(network["nyc-0"].port).sender("relay/trades").await_credit())
    stream.send(1_000)
    stream.accepted()
    for tail in tails:
        clients.until(lambda t=tail: len(t.read()) >= stream.count, "all messages")  # type: ignore[misc]
        assert tail.numbers == list(range(stream.count))


def test_a_client_is_no_relay(routers: Routers, clients: Clients) -> None:
    network = Network(routers)
    network.line("nyc-0", "sfo-0")
    sites = RelaySites()
    sites.site("nyc", network["nyc-0"])
    sites.site("sfo", network["sfo-0"])
    sites.over("nyc", "sfo", ADDRESS)
    routers.start_all()
    sites.formed()
    sender = clients.connect(network["sfo-0"].port).sender(f"{ADDRESS}/trades/sfo").await_credit()
    for number in range(20):
        sender.send(bytes(range(number)))
    clients.round_trip()
    member, events = network["sfo-0"], "relay_transport_events_total"
    assert member.metric(events, 'event="network_refused"') == 20
    assert member.metric(events, 'event="network_malformed"') == 0
    sites.formed()
