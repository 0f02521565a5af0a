"""A router becomes another member of its site, or none any more, while messages pass: nothing is lost in silence."""

from __future__ import annotations

import pytest
from tests.integration.sites.support.stand import EVERYBODY, Flow, SiteRouter, TwoSites, await_mutual
from tests.integration.support.client import Clients, Receiver
from tests.integration.support.routers import eventually


def rejoin(router: SiteRouter) -> None:
    """Other hosts to ask for members: only another member can have them. Wait until it has joined."""
    before = router.relay["id"]
    for kind, section in router.sections:
        if kind == "relaySite":
            hosts = section["discoveryHosts"].split(",")
            section["discoveryHosts"] = ",".join(hosts[1:] + hosts[:1])
    router.configure()
    eventually(lambda: router.relay.get("id", before) != before, f"{router.id} is another member")


def receiver_at(clients: Clients, router: SiteRouter) -> Receiver:
    """Of everything."""
    with router.host.inside():
        return clients.connect(router.port).receiver(EVERYBODY, credit=20_000, accept=True)


@pytest.mark.parametrize("who", ["a", "c"], ids=["relay", "plain member"])
def test_senders_wait_until_their_router_is_a_member_again(
    stand: TwoSites, roles: dict[str, SiteRouter], who: str
) -> None:
    changing = roles[who]
    flow = Flow(changing, [router for router in roles.values() if router is not changing], messages=3_000)
    try:
        flow.after(1)
        rejoin(changing)
        flow.end("another member")
    finally:
        flow.stop()
    await_mutual(stand.nyc, stand.sfo)


def test_receivers_are_told_to_attach_again(
    stand: TwoSites, roles: dict[str, SiteRouter], clients: Clients
) -> None:
    changing, source = roles["f"], roles["c"]
    receiver, other = receiver_at(clients, changing), receiver_at(clients, roles["e"])
    with source.host.inside():
        sender = clients.connect(source.port).sender(EVERYBODY).await_credit()
    assert sender.deliver("before") == "accepted"
    clients.until(lambda: receiver.bodies() == other.bodies() == ["before"], "both have it")
    rejoin(changing)
    condition = receiver.client.refusal(receiver.link)
    assert condition.name == "amqp:link:detach-forced"
    assert "attach the link again" in condition.description
    await_mutual(stand.nyc, stand.sfo)
    again = receiver_at(clients, changing)
    assert sender.deliver("after") == "accepted"
    clients.until(lambda: again.bodies() == ["after"], "it comes to the new link")
    clients.until(lambda: other.bodies() == ["before", "after"], "and to the other one")


def test_clients_are_told_that_their_router_is_no_member_any_more(
    stand: TwoSites, roles: dict[str, SiteRouter], clients: Clients
) -> None:
    leaving = roles["f"]
    sections = leaving.sections
    receiver = receiver_at(clients, leaving)
    sender = receiver.client.sender(EVERYBODY).await_credit()
    assert sender.deliver("before") == "accepted"
    try:
        leaving.sections = [section for section in sections if not section[0].startswith("relay")]
        leaving.configure()
        assert receiver.client.refusal(receiver.link).name == "amqp:link:detach-forced"
        gone = sender.client.refusal(sender.link)
        assert gone.name == "amqp:resource-deleted"
        assert "no member of group" in gone.description
    finally:
        leaving.sections = sections
        leaving.configure()
    await_mutual(stand.nyc, stand.sfo)
