"""What is sent to a group while the router is no member of it, though it is to be one."""

from __future__ import annotations

from proton import Delivery, Message
from tests.unit.amqp.rig import Rig
from tests.unit.sites.loopback import A, Client, LoopbackSite, member_of

from isthmus_router.sites.face import RelayFace
from isthmus_router.sites.port import FaceSettings
from isthmus_router.sites.waiting import Pending, WaitingRoom


def wait(rig: Rig, pending: Pending) -> WaitingRoom:
    return WaitingRoom(rig.core, "trades", ("orders/#",), 1_000, pending)


def test_it_waits_for_the_next_member(rig: Rig) -> None:
    site, face = member_of(rig, addresses=("orders/#",))
    site.room = 0
    client = Client(rig, "c")
    senders = [client.sender("relay/trades", name="one"), client.sender("orders/eu", name="two")]
    deliveries = [client.send(senders[0], "1")]
    rig.settle_down()
    room = wait(rig, face.close())
    for number in range(2, 6):
        deliveries += [client.send(sender, str(number)) for sender in senders]
    rig.settle_down()
    assert not any(delivery.settled for delivery in deliveries)
    pending = room.close()
    assert len(pending.messages) == 3, "one more of each sender, which are not read then"
    second = LoopbackSite()
    second.face = RelayFace(rig.core, FaceSettings("trades", A, ("orders/#",)), second, second.later)
    second.face.take_over(pending)
    rig.core.port.read_on()
    rig.driver.flush()
    rig.settle_down()
    assert sorted(second.texts()) == sorted(["1", "2", "2", "3", "3", "4", "4", "5", "5"])
    by_address = [message.address for messages, _ in second.published for message in messages]
    assert by_address.count("orders/eu") == 4
    second.protect()
    rig.driver.flush()
    rig.settle_down()
    assert {delivery.remote_state for delivery in deliveries} == {Delivery.ACCEPTED}


def test_what_is_for_one_member_comes_back(rig: Rig) -> None:
    wait(rig, Pending())
    client = Client(rig, "c")
    client.receiver("r", "relay/trades/sfo/D")
    anonymous = client.sender(None)
    delivery = client.send(anonymous, Message(address="relay/trades/sfo/D", body=""))
    rig.settle_down()
    assert delivery.remote_state == Delivery.RELEASED
    assert client.texts("r") == []


def test_so_does_what_the_next_member_would_not_take(rig: Rig) -> None:
    room = wait(rig, Pending())
    client = Client(rig, "c")
    assert client.sender("relay/trades", name="told").remote_max_message_size == 1_000
    long = Message(address="relay/trades", body="x" * 1_000)
    delivery = client.send(client.sender(None, name="anonymous"), long)
    rig.settle_down()
    assert delivery.remote_state == Delivery.RELEASED
    client.send(client.sender(None, name="unconfirmed"), long, settled=True)
    rig.settle_down()
    assert room.close() == Pending()


def test_what_is_settled_waits_as_well_and_is_not_answered(rig: Rig) -> None:
    room = wait(rig, Pending())
    client = Client(rig, "c")
    client.send(client.sender("relay/trades"), "1", settled=True)
    rig.settle_down()
    pending = room.close()
    assert (len(pending.messages), pending.deliveries) == (1, [])


def test_nobody_else_gets_it(rig: Rig) -> None:
    room = wait(rig, Pending())
    client = Client(rig, "c")
    client.receiver("r", "relay/trades")
    delivery = client.send(client.sender("relay/trades"), "waits")
    rig.settle_down()
    assert not delivery.settled
    assert client.texts("r") == []
    assert len(room.close().messages) == 1
    client.send(client.sender("relay/trades", name="later"), "goes on")
    rig.settle_down()
    assert client.texts("r") == ["goes on"], "to who has it now: nobody waits any more"
