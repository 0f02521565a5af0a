"""Addresses that go to all sites, to one of them, or to none, while relays are killed and the sections change."""

from __future__ import annotations

from tests.integration.sites.support.relay_sites import RelaySites
from tests.integration.support.client import Clients, Receiver
from tests.integration.support.routers import Router, Routers, Section

ADDRESSES = ("all/7", "orders/7", "local/7")
ROUNDS = 100


def pattern(name: str, *sites: str) -> Section:
    return "relayAddress", {"pattern": f"{name}/#", "sites": ",".join(sites)}


def test_each_address_goes_where_it_is_to_go(routers: Routers, clients: Clients) -> None:
    sites = RelaySites()
    for site, members in (("nyc", 3), ("sfo", 1), ("lon", 1)):
        sites.site(site, *(routers.add(f"{site}-{number}", mode="interior") for number in range(members)))
    for other in ("sfo", "lon"):
        sites.direct("nyc", other)
    for site, routes in (("nyc", (pattern("all", "*"), pattern("orders", "sfo"))), ("sfo", ()), ("lon", ())):
        for router in sites.members[site]:
            router.sections += [*(routes or (pattern("all"), pattern("orders"))), pattern("local")]
    routers.start_all()
    sites.formed()
    near, (sfo,), (lon,) = sites.other("nyc"), sites.members["sfo"], sites.members["lon"]
    got = {router.id: receivers(clients, router) for router in (near, sfo, lon)}
    senders = [clients.connect(near.port).sender(address) for address in ADDRESSES]

    def send(number: int) -> None:
        for sender in senders:
            assert sender.deliver(f"{number}") == "accepted"

    for number in range(ROUNDS):
        if number == ROUNDS // 2:
            sites.relay("nyc").kill()
        send(number)
    everything = [f"{number}" for number in range(ROUNDS)]
    wanted = {near.id: ADDRESSES, sfo.id: ADDRESSES[:2], lon.id: ADDRESSES[:1]}
    for router, addresses in wanted.items():
        clients.until(
            lambda r=router, a=addresses: all(len(got[r][each].bodies()) >= ROUNDS for each in a),  # type: ignore[misc]
            f"all messages at {router}",
        )
    # What is sent last goes everywhere, and comes last: whatever else would come is there by then.
    assert senders[0].deliver("end") == "accepted"
    for router, addresses in wanted.items():
        clients.until(lambda r=router: got[r]["all/7"].bodies()[-1] == "end", f"the end at {router}")  # type: ignore[misc]
        for address in ADDRESSES:
            bodies = [body for body in got[router][address].bodies() if body != "end"]
            assert bodies == (everything if address in addresses else []), (router, address)

    for router in sites.members["nyc"]:
        if router.process is not None:
            router.sections[router.sections.index(pattern("local"))] = pattern("local", "lon")
            router.configure()
    clients.until(
        lambda: senders[2].deliver("now") == "accepted" and got[lon.id]["local/7"].bodies(),
        "another site gets it now",
    )
    assert senders[0].deliver("end") == "accepted"
    clients.until(lambda: got[sfo.id]["all/7"].bodies()[-2:] == ["end", "end"], "the end again")
    assert got[sfo.id]["local/7"].bodies() == []
    for router in (sfo, lon):
        assert router.metric("relay_lost_messages_total") == 0


def receivers(clients: Clients, router: Router) -> dict[str, Receiver]:
    client = clients.connect(router.port)
    return {
        address: client.receiver(address, credit=10 * ROUNDS, accept=True, capability="isthmus.relay-gaps")
        for address in ADDRESSES
    }
