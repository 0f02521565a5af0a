"""What senders to a group see: accepted when it is protected, no more than there is room for, reasons otherwise."""

from __future__ import annotations

import pytest
from proton import Delivery, Message
from tests.unit.amqp.rig import Rig
from tests.unit.sites.loopback import EVERYBODY, A, Client, D, member_of

from isthmus_router.core.address import InProcessConsumer
from isthmus_router.core.terms import Outcome
from isthmus_router.groups.batch import GroupMessage
from isthmus_router.groups.identity import MemberId
from isthmus_router.sites import face as face_module
from isthmus_router.sites.port import FaceSettings


def test_accepted_when_protected_and_not_before(rig: Rig) -> None:
    site, _ = member_of(rig)
    client = Client(rig, "c")
    sender = client.sender("relay/trades")
    deliveries = [client.send(sender, str(number)) for number in range(3)]
    rig.settle_down()
    assert site.texts() == ["0", "1", "2"]
    assert [delivery.remote_state for delivery in deliveries] == [0, 0, 0]
    site.protect()
    rig.driver.flush()
    rig.settle_down()
    assert {delivery.remote_state for delivery in deliveries} == {Delivery.ACCEPTED}
    assert all(delivery.settled for delivery in deliveries)


def test_one_turn_is_published_at_once(rig: Rig) -> None:
    site, _ = member_of(rig)
    client = Client(rig, "c")
    sender = client.sender("relay/trades")
    for number in range(20):
        client.send(sender, str(number))
    rig.settle_down()
    ((messages, token),) = site.published
    assert [message.address for message in messages] == ["relay/trades"] * 20
    assert token is not None


def test_nobody_waits_for_presettled_messages(rig: Rig) -> None:
    site, _ = member_of(rig)
    client = Client(rig, "c")
    sender = client.sender("relay/trades")
    for number in range(100):  # more than the credit of the link
        while sender.credit <= 0:
            rig.settle_down()
        client.send(sender, str(number), settled=True)
    rig.settle_down()
    assert site.texts() == [str(number) for number in range(100)]
    assert {token for _, token in site.published} == {None}


@pytest.mark.parametrize("settled", [True, False])
def test_without_room_senders_are_not_read(rig: Rig, settled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(face_module, "MOST_PENDING", 10)
    site, face = member_of(rig)
    site.room = 0
    clients = [Client(rig, f"c{number}") for number in range(2)]
    senders = [client.sender("relay/trades") for client in clients]
    for client, sender in zip(clients, senders, strict=True):
        for number in range(30):
            client.send(sender, f"{client.container} {number}", settled=settled)
    rig.settle_down()
    links = [link for connection in rig.core.connections.values() for link in connection.links]
    assert not site.published
    assert (
        sum(link.deliveries for link in links) == 11
    )  # each sender beyond the bound is held with its next one
    assert all(link.paused for link in links)
    site.room = 1
    face.room_changed()
    rig.driver.flush()
    rig.settle_down()
    for client in clients:
        mine = [text for text in site.texts() if text.startswith(client.container)]
        assert mine == [f"{client.container} {number}" for number in range(30)]


@pytest.mark.parametrize("address", ["relay/trades", "relay/trades/B"])
def test_a_message_that_ends_when_the_member_is_gone_comes_back(rig: Rig, address: str) -> None:
    site, face = member_of(rig)
    client = Client(rig, "c")
    sender = client.sender(address)
    message = Message(body="x" * 200_000).encode()
    delivery = sender.delivery("long")
    sender.send(message[:100_000])
    rig.settle_down()
    face.close()
    sender.send(message[100_000:])
    sender.advance()
    rig.settle_down()
    assert delivery.remote_state == Delivery.RELEASED
    assert not site.published
    assert not site.sent


def test_a_sender_that_is_gone_before_its_messages_are_protected(rig: Rig) -> None:
    site, _ = member_of(rig)
    client = Client(rig, "c")
    client.send(client.sender("relay/trades"), "last words")
    rig.settle_down()
    client.drop()
    site.protect()
    rig.driver.flush()
    assert site.texts() == ["last words"]


def test_a_sender_that_is_gone_while_it_is_held(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(face_module, "MOST_PENDING", 1)
    site, face = member_of(rig)
    site.room = 0
    client = Client(rig, "c")
    client.send(client.sender("relay/trades"), "one")
    rig.settle_down()
    assert rig.driver.forwarder.inside.held
    client.drop()
    assert not rig.driver.forwarder.inside.held
    site.room = 1
    face.room_changed()
    rig.driver.flush()
    assert site.texts() == ["one"]


def test_the_bound_of_a_message(rig: Rig) -> None:
    site, face = member_of(rig, max_message_bytes=1000)
    client = Client(rig, "c")
    sender = client.sender("relay/trades")
    assert sender.remote_max_message_size == 1000
    client.send(sender, "x" * 1000)
    rig.settle_down()
    assert sender.remote_condition.name == "amqp:link:message-size-exceeded"
    anonymous = client.sender(None, name="anonymous")
    delivery = client.send(anonymous, Message(address="relay/trades", body="x" * 1000))
    short = client.send(anonymous, Message(address="relay/trades", body="short"))
    rig.settle_down()
    assert delivery.remote_state == Delivery.REJECTED
    assert delivery.remote.condition.name == "amqp:link:message-size-exceeded"
    assert "1000 at most" in delivery.remote.condition.description
    assert site.texts() == ["short"]
    assert not short.settled
    assert face.counters.refused == 1


def test_another_bound_of_a_message(rig: Rig) -> None:
    site, face = member_of(rig, max_message_bytes=1000)
    client = Client(rig, "c")
    anonymous = client.sender(None, name="anonymous")
    long = Message(address="relay/trades", body="x" * 1000)
    face.configure(FaceSettings("trades", A, max_message_bytes=2000))
    client.send(anonymous, long)
    assert client.sender("relay/trades").remote_max_message_size == 2000
    assert site.texts() == ["x" * 1000]
    face.configure(FaceSettings("trades", A, max_message_bytes=500))
    delivery = client.send(anonymous, long)
    rig.settle_down()
    assert delivery.remote_state == Delivery.REJECTED


def test_a_message_that_comes_in_pieces(rig: Rig) -> None:
    site, _ = member_of(rig, max_message_bytes=4 << 20)
    client = Client(rig, "c")
    sender = client.sender("relay/trades")
    text = "x" * (3 << 20)
    long = client.send(sender, text)
    client.send(sender, text + "y", settled=True)
    rig.settle_down()
    assert site.texts() == [text, text + "y"]
    assert not long.settled
    site.protect()
    rig.driver.flush()
    rig.settle_down()
    assert long.remote_state == Delivery.ACCEPTED
    (link,) = next(iter(rig.core.connections.values())).links
    assert (link.accepted, link.presettled, link.unsettled) == (1, 1, {})


def test_a_sender_that_settles_second(rig: Rig) -> None:
    site, _ = member_of(rig)
    client = Client(rig, "c")
    sender = client.session.sender("second")
    sender.target.address = "relay/trades"
    sender.rcv_settle_mode = sender.RCV_SECOND
    sender.open()
    rig.settle_down()
    delivery = client.send(sender, "one")
    rig.settle_down()
    (link,) = next(iter(rig.core.connections.values())).links
    site.protect()
    assert link.unsettled  # the sender's turn
    rig.driver.flush()
    rig.settle_down()
    assert delivery.remote_state == Delivery.ACCEPTED
    assert link.accepted == 1
    assert not link.unsettled


def test_to_one_member(rig: Rig) -> None:
    site, face = member_of(rig)
    client = Client(rig, "c")
    sender = client.sender("relay/trades/sfo/D")
    delivery = client.send(sender, "hello")
    rig.settle_down()
    ((member, message, _),) = site.sent
    assert (member, message.address, len(message.payload) > 0) == (b"D" * 16, "", True)
    assert not delivery.settled
    site.fail(Outcome.MODIFIED)
    rig.driver.flush()
    rig.settle_down()
    assert delivery.remote_state == Delivery.MODIFIED
    assert (delivery.remote.failed, delivery.remote.undeliverable) == (True, False)
    assert face.counters.returned == 1


@pytest.mark.parametrize("address", ["relay/Trades", "relay//x", "relay/a b"])
def test_an_address_of_no_group_is_refused(rig: Rig, address: str) -> None:
    member_of(rig)
    client = Client(rig, "c")
    for link in (client.sender(address), client.receiver("r", address)):
        assert link.remote_condition.name == "amqp:not-found"
        assert "this router is in group trades: relay/trades" in link.remote_condition.description
    for name in ("relay", "relay/orders", "relays/Trades"):
        assert client.sender(name, name=name).remote_condition is None


def test_nobody_of_that_name(rig: Rig) -> None:
    site, face = member_of(rig)
    client = Client(rig, "c")
    refused = client.sender("relay/trades/sfo/X")
    assert refused.remote_condition.name == "amqp:not-found"
    assert "nyc/A, nyc/B, sfo/D" in refused.remote_condition.description
    anonymous = client.sender(None, name="anonymous")
    unknown = ("relay/trades/X", f"relay/trades/~/{'0' * 32}/client")
    deliveries = [client.send(anonymous, Message(address=address, body="")) for address in unknown]
    rig.settle_down()
    assert [delivery.remote_state for delivery in deliveries] == [Delivery.RELEASED] * 2
    assert not site.sent
    assert face.counters.returned == 2


def test_two_of_that_name(rig: Rig) -> None:
    site, face = member_of(rig)
    client = Client(rig, "c")
    anonymous = client.sender(None)
    face.members_changed((*EVERYBODY, D._replace(id=MemberId(b"d" * 16))))
    delivery = client.send(anonymous, Message(address="relay/trades/D", body=""))
    rig.settle_down()
    assert delivery.remote_state == Delivery.REJECTED
    assert "2 members are called D" in delivery.remote.condition.description
    assert not site.sent
    assert face.counters.refused == 1


def test_addresses_by_pattern(rig: Rig) -> None:
    site, _ = member_of(rig, addresses=("orders/#",))
    client = Client(rig, "c")
    anonymous = client.sender(None)
    client.send(anonymous, Message(address="orders/eu", body="one"))
    client.send(client.sender("orders/us", name="targeted"), "two")
    released = client.send(anonymous, Message(address="invoices", body="three"))
    rig.settle_down()
    assert released.remote_state == Delivery.RELEASED
    assert {message.address for messages, _ in site.published for message in messages} == {
        "orders/eu",
        "orders/us",
    }
    client.connection.close()
    rig.settle_down()
    assert not [key for key in rig.core.addresses if key.startswith("Morders")]


def test_other_addresses_while_it_runs(rig: Rig) -> None:
    site, face = member_of(rig, addresses=("orders/#", "stock"))
    client = Client(rig, "c")
    sender = client.sender("orders/eu")
    face.configure(FaceSettings("trades", A, ("invoices", "stock")))
    delivery = client.send(sender, "nobody's")
    client.send(client.sender("invoices", name="invoices"), "one")
    client.send(client.sender("stock", name="stock"), "two")
    rig.settle_down()
    assert delivery.remote_state == Delivery.RELEASED
    assert site.texts() == ["one", "two"]
    assert {"Mstock", "Minvoices"} <= rig.core.addresses.keys()


def test_all_addresses_are_not_those_of_routers(rig: Rig) -> None:
    asked: list[bytes] = []
    rig.core.register("$management", InProcessConsumer(lambda payload, _: asked.append(payload)), mobile=True)
    site, _ = member_of(rig, addresses=("#",))
    client = Client(rig, "c")
    client.receiver("temporary", "_$temp.x")
    for address in ("anything", "$management", "_$temp.x", "mc/sfe.R"):
        client.send(client.sender(None, name=address), Message(address=address, body=address))
    rig.settle_down()
    assert site.texts() == ["anything"]
    assert client.texts("temporary") == ["_$temp.x"]
    assert len(asked) == 1


def test_the_router_itself_may_send(rig: Rig) -> None:
    site, _ = member_of(rig)
    assert rig.core.originate("relay/trades", bytes(Message(body="own").encode()))
    rig.driver.flush()
    assert site.texts() == ["own"]
    assert isinstance(site.published[0][0][0], GroupMessage)


def test_the_end_of_membership(rig: Rig) -> None:
    site, face = member_of(rig)
    site.room = 0
    client = Client(rig, "c")
    sender = client.sender("relay/trades")
    delivery = client.send(sender, "too late")
    rig.settle_down()
    pending = face.close()
    assert len(pending.messages) == len(pending.deliveries) == 1
    assert not delivery.settled
    assert "Mrelay/trades/A" not in rig.core.addresses
    assert rig.core.addresses["Mrelay/trades"].handler is None
