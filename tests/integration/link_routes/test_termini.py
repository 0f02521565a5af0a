"""Attaches and detaches pass from end to end: termini, properties, limits, errors, and when they are answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from proton import Condition, Data, Described, Endpoint, Event, Link, Terminus, symbol, ulong
from tests.integration.support.client import Clients
from tests.integration.support.link_routes import CONTAINER, Chain, Shore
from tests.integration.support.links import Receiver, Sender

ERROR = Condition("acme:enough", "no more of this", {symbol("limit"): ulong(3)})
FILTER = Described(symbol("apache.org:selector-filter:string"), "colour = 'green' AND size > 3")


def attach(chain: Chain, *, sends: bool, dress: Callable[[Any], None], wait: bool = True) -> Any:
    """The client attaches a link that was made up by the test."""
    address, client = chain.address(), chain.client
    link = client.session.sender(address) if sends else client.session.receiver(address)
    dress(link)
    terminus = link.target if sends else link.source
    if not terminus.dynamic:
        terminus.address = address
    link.open()
    if sends:
        client.senders[link.name] = Sender(client, link)
    else:
        client.receivers[link.name] = Receiver(client, link)
    if wait:
        client.attached(link)
    return link


def fill(terminus: Terminus, mark: str) -> None:
    """Everything that a terminus can have; without an address the engine takes it for one that is not there."""
    terminus.address = mark
    terminus.durability = Terminus.DELIVERIES
    terminus.expiry_policy = Terminus.EXPIRE_NEVER
    terminus.timeout = 4000
    terminus.properties.put_object({symbol(mark): {"x": [1, 2]}})
    put_symbols(terminus.capabilities, mark, "queue")


def fill_source(source: Terminus, mark: str) -> None:
    """And a source beyond that."""
    fill(source, mark)
    source.distribution_mode = Terminus.DIST_MODE_COPY
    source.filter.put_object({symbol(mark): FILTER, symbol("no-local"): None})
    put_symbols(source.outcomes, "amqp:accepted:list", "amqp:rejected:list")


def put_symbols(data: Data, *names: str) -> None:
    data.put_array(False, Data.SYMBOL)
    data.enter()
    for name in names:
        data.put_symbol(symbol(name))
    data.exit()


def seen(terminus: Terminus) -> dict[str, Any]:
    """What the peer has said of a terminus."""
    data = ("properties", "capabilities", "filter", "outcomes")
    plain = ("address", "durability", "expiry_policy", "timeout", "dynamic", "distribution_mode", "type")
    return {
        **{name: getattr(terminus, name).encode() for name in data},
        **{name: getattr(terminus, name) for name in plain},
    }


@pytest.mark.parametrize("sends", [True, False])
def test_both_attaches_have_everything_of_the_other_end(chain: Chain, sends: bool) -> None:
    def asks(link: Any) -> None:
        fill_source(link.source, "asked")
        fill(link.target, "wanted")
        link.properties = {symbol("asked"): "of the link", symbol("number"): 7}
        link.max_message_size = 2**40

    def answers(link: Any) -> None:
        fill_source(link.source, "given")
        link.source.timeout = 5000
        fill(link.target, "had")
        link.target.durability = Terminus.CONFIGURATION
        link.properties = {symbol("given"): ["of", "the", "link"]}
        link.max_message_size = 70_000

    chain.container.dress = answers
    near = attach(chain, sends=sends, dress=asks)
    (far,) = chain.container.attached_links
    for here, there in ((near, far), (far, near)):
        assert seen(here.remote_source) == seen(there.source)
        assert seen(here.remote_target) == seen(there.target)
        assert dict(here.remote_properties) == dict(there.properties)
        assert here.remote_max_message_size == there.max_message_size
    assert b"green" in far.remote_source.filter.encode()


@pytest.mark.parametrize("sends", [True, False])
def test_a_dynamic_node_of_the_containers(chain: Chain, sends: bool) -> None:
    """Its link is routed by a property, and the client is told what the container calls it."""

    def asks(link: Any) -> None:
        terminus = link.target if sends else link.source
        terminus.dynamic = True
        terminus.properties.put_object(
            {symbol("x-opt-qd.address"): "b2.dynamic", symbol("lifetime-policy"): Described(ulong(0x2B), [])}
        )

    def answers(link: Any) -> None:
        (link.target if sends else link.source).address = "b2.dynamic.made-up"

    chain.container.dress = answers
    near = attach(chain, sends=sends, dress=asks)
    (far,) = chain.container.attached_links
    asked = far.remote_target if sends else far.remote_source
    assert asked.dynamic
    assert not asked.address
    assert b"lifetime-policy" in asked.properties.encode()
    answer = near.remote_target if sends else near.remote_source
    assert answer.dynamic
    assert answer.address == "b2.dynamic.made-up"


def test_link_names_at_the_container(clients: Clients, shore: Shore) -> None:
    """`<name>@<container id of the client>`; with a number where that would be there twice."""
    container = shore.container(clients)
    twins = [clients.connect(shore["A"].port, container="twin") for _ in range(2)]
    other = clients.connect(shore["C"].port, container="other")
    links = [client.receiver("b2.x", name="mine").link for client in (*twins, other)]
    assert set(container.senders) == {"mine@twin", "mine@twin.2", "mine@other"}
    twins[1].sender("b2.x", name="mine")
    assert set(container.receivers) == {"mine@twin"}
    twins[0].detach(links[0])
    clients.until(lambda: set(container.senders) == {"mine@twin.2", "mine@other"}, "it is gone")
    again = twins[0].receiver("b2.x", name="mine").link
    assert set(container.senders) == {"mine@twin", "mine@twin.2", "mine@other"}
    assert again.name == "mine"


def detach(link: Any, *, closed: bool, error: Condition | None = None) -> None:
    link.condition = error
    if closed:
        link.close()
    else:
        link._update_cond()  # which the binding does for a close only
        link.detach()


class Detaches:
    """How the peers of some links have detached them."""

    def __init__(self, chain: Chain) -> None:
        self.by: dict[Any, list[tuple[str, bool]]] = {chain.client: [], chain.container: []}
        for peer in self.by:
            peer.deal_with = self._noting(peer, peer.deal_with)

    def _noting(self, peer: Any, go_on: Callable[[Event], None]) -> Callable[[Event], None]:
        def deal_with(event: Event) -> None:
            if event.type in {Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH}:
                condition = event.link.remote_condition
                text = str(condition.description) if condition else ""
                self.by[peer].append((text, event.type == Event.LINK_REMOTE_CLOSE))
            go_on(event)

        return deal_with


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("error", [None, ERROR])
def test_the_client_detaches(chain: Chain, closed: bool, error: Condition | None) -> None:
    """It is answered when the container has answered, and as the container has."""
    chain.container.answers_detach = False
    for near, far in (chain.to_container(), chain.from_container()):
        detaches = Detaches(chain)
        detach(near.link, closed=closed, error=error)
        expected = (str(error.description) if error else "", closed)
        chain.clients.until(lambda d=detaches: d.by[chain.container], "the container is told")  # type: ignore[misc]
        assert detaches.by[chain.container] == [expected]
        if error:
            assert far.link.remote_condition.name == error.name
            assert far.link.remote_condition.info == error.info
        chain.clients.round_trip()
        assert not detaches.by[chain.client], "not answered yet"
        detach(far.link, closed=closed)
        chain.clients.until(lambda d=detaches: d.by[chain.client], "the client is answered")  # type: ignore[misc]
        assert detaches.by[chain.client] == [("", closed)]
    chain.shore.await_links(chain.clients)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("error", [None, ERROR])
def test_the_container_detaches(chain: Chain, closed: bool, error: Condition | None) -> None:
    for near, far in (chain.to_container(), chain.from_container()):
        detaches = Detaches(chain)
        chain.client.deal_with = _without_answers(chain.client.deal_with)  # type: ignore[method-assign]
        detach(far.link, closed=closed, error=error)
        chain.clients.until(lambda d=detaches: d.by[chain.client], "the client is told")  # type: ignore[misc]
        assert detaches.by[chain.client] == [(str(error.description) if error else "", closed)]
        if error:
            assert near.link.remote_condition.name == error.name
            assert near.link.remote_condition.info == error.info
        chain.clients.round_trip()
        assert not detaches.by[chain.container], "not answered yet"
        detach(near.link, closed=closed)
        chain.clients.until(lambda d=detaches: d.by[chain.container], "the container is answered")  # type: ignore[misc]
        assert detaches.by[chain.container] == [("", closed)]
    chain.shore.await_links(chain.clients)


def _without_answers(deal_with: Callable[[Event], None]) -> Callable[[Event], None]:
    def passing(event: Event) -> None:
        if event.type == Event.LINK_REMOTE_DETACH:
            detach_was, event.link.detach = event.link.detach, lambda: None
            deal_with(event)
            event.link.detach = detach_was
        else:
            deal_with(event)

    return passing


def test_both_ends_detach_at_the_same_time(chain: Chain) -> None:
    for _ in range(20):
        for near, far in (chain.to_container(), chain.from_container()):
            near.link.close()
            far.link.close()
            chain.client.attached(near.link)
            assert chain.client.refusal(near.link) is None
    chain.shore.await_links(chain.clients)


def test_a_link_is_attached_again_with_its_name(chain: Chain) -> None:
    """As often as the client wants."""
    for _ in range(5):
        link = chain.client.receiver("b2.again", name="again").link
        assert chain.container.gives("b2.again").link.name == "again@buyer"
        chain.client.detach(link)
        link.free()


def test_an_attach_is_answered_when_the_container_answers(chain: Chain) -> None:
    chain.container.answers = False
    links = [attach(chain, sends=sends, dress=lambda _: None, wait=False) for sends in (True, False)]
    chain.clients.until(lambda: len(chain.container.attached_links) == 2, "the container is asked")
    chain.clients.round_trip()
    assert not any(link.state & Endpoint.REMOTE_ACTIVE for link in links)
    for link in chain.container.attached_links:
        chain.container.answer(link)
    for link in links:
        chain.client.attached(link)


@pytest.mark.parametrize("sends", [True, False])
def test_a_client_gives_up_before_the_container_has_answered(chain: Chain, sends: bool) -> None:
    chain.container.answers = False
    link = attach(chain, sends=sends, dress=lambda _: None, wait=False)
    chain.clients.until(lambda: chain.container.attached_links, "the container is asked")
    link.close()
    (far,) = chain.container.attached_links
    chain.clients.until(lambda: far.state & Endpoint.REMOTE_CLOSED, "the container is told")
    far.open()
    far.close()
    chain.clients.until(lambda: link.state & Endpoint.REMOTE_CLOSED, "the client is answered")
    chain.shore.await_links(chain.clients)
    chain.container.answers = True
    chain.client.sender("b2.next")


@pytest.mark.parametrize("sends", [True, False])
def test_a_container_refuses(chain: Chain, sends: bool) -> None:
    """The client sees what the container says: no terminus, then the error."""
    chain.container.refusal = ERROR
    link = attach(chain, sends=sends, dress=lambda _: None)
    condition = chain.client.refusal(link)
    assert (condition.name, condition.description, condition.info) == (
        ERROR.name,
        ERROR.description,
        ERROR.info,
    )
    refused = link.remote_target if sends else link.remote_source
    assert refused.type == Terminus.UNSPECIFIED
    link.close()
    chain.container.refusal = None
    attach(chain, sends=sends, dress=lambda _: None)
    chain.shore.await_links(chain.clients, 1)


def test_a_link_to_a_coordinator_is_told_without_a_route(clients: Clients, shore: Shore) -> None:
    shore.container(clients)
    client = clients.connect(shore["A"].port)
    link = client.sender(None, coordinator=True, wait=False).link
    assert client.refusal(link).name == "amqp:precondition-failed"
    assert CONTAINER not in link.remote_condition.description
    assert link.snd_settle_mode == Link.SND_MIXED
