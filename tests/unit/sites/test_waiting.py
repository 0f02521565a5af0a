"""What is sent to a group while the router is no member of it, though it is to be one."""

from __future__ import annotations

from proton import Delivery, Message
from tests.unit.amqp.rig import Rig
from tests.unit.sites.loopback import A, Client, LoopbackSite, member_of

from isthmus_router.groups.batch import GroupMessage
from isthmus_router.sites.face import MOST_PENDING, MOST_PENDING_BYTES, RelayFace
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
    assert (len(pending.messages), pending.deliveries) == (1, [None])


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


def test_what_has_waited_is_published_in_steps(rig: Rig) -> None:
    """With thousands of senders, each of which gave one message while there was no room."""
    large = GroupMessage("relay/trades", bytes(MOST_PENDING_BYTES))
    small = [GroupMessage("relay/trades", b"%d" % number) for number in range(2 * MOST_PENDING)]
    messages = [*small, large, large]
    deliveries = [None if number % 2 else object() for number in range(len(messages))]
    site = LoopbackSite()
    site.face = RelayFace(rig.core, FaceSettings("trades", A), site, site.later)
    site.face.take_over(Pending(messages.copy(), deliveries.copy()))
    for steps in (1, 2, 3):
        assert len(site.published) == steps
        site.timers.pop()[1]()
    assert not site.timers
    assert [len(part) for part, _ in site.published] == [MOST_PENDING, MOST_PENDING, 1, 1]
    assert [message for part, _ in site.published for message in part] == messages
    settled = [delivery for _, token in site.published if isinstance(token, list) for delivery in token]
    assert settled == [delivery for delivery in deliveries if delivery is not None]
    assert site.published[2][1] is not None
    assert site.published[3][1] is None


def test_what_is_left_of_it_waits_for_the_next_member(rig: Rig) -> None:
    messages = [GroupMessage("relay/trades", b"%d" % number) for number in range(3 * MOST_PENDING)]
    site = LoopbackSite()
    face = site.face = RelayFace(rig.core, FaceSettings("trades", A), site, site.later)
    face.take_over(Pending(messages.copy(), [None] * len(messages)))
    site.room = 0
    site.pass_time(0.0)
    assert len(site.published) == 1
    site.room = 1
    face.room_changed()
    pending = face.close()
    site.pass_time(0.0)
    assert len(site.published) == 2
    assert pending == Pending(messages[2 * MOST_PENDING :], [None] * MOST_PENDING)
