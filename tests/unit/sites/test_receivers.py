"""What receivers of a group's addresses get: all of it, in order, or an error; and where their replies go."""

from __future__ import annotations

import random
from typing import Any

import pytest
from proton import Message, symbol
from tests.unit.amqp.rig import Rig
from tests.unit.sites.loopback import A, B, Client, D, LoopbackSite, member_of

from isthmus_router.amqp.kernel import inside
from isthmus_router.core.address import InProcessConsumer
from isthmus_router.core.roles import Role
from isthmus_router.groups.batch import GroupMessage
from isthmus_router.sites import receivers
from isthmus_router.sites.face import RelayFace
from isthmus_router.sites.port import SiteMember


def group_messages(*texts: str, address: str = "relay/trades", **fields: Any) -> list[GroupMessage]:
    return [GroupMessage(address, bytes(Message(body=text, **fields).encode())) for text in texts]


def deliver(rig: Rig, face: RelayFace, origin: SiteMember, messages: list[GroupMessage]) -> None:
    face.deliver(origin, messages, 0)
    rig.driver.flush()
    rig.settle_down()


@pytest.fixture
def site(rig: Rig) -> LoopbackSite:
    return member_of(rig, addresses=("orders/#",))[0]


@pytest.fixture
def face(site: LoopbackSite) -> RelayFace:
    assert site.face is not None
    return site.face


def test_every_receiver_gets_every_message_in_order(rig: Rig, face: RelayFace) -> None:
    clients = [
        Client(rig, f"c{number}", role) for number, role in enumerate((Role.NORMAL, Role.EDGE, Role.NORMAL))
    ]
    for client in clients:
        client.receiver("settles", "relay/trades")
        client.receiver("other", "orders/eu")
    for number in range(50):
        deliver(rig, face, D, group_messages(f"{number}a", f"{number}b"))
    deliver(rig, face, D, group_messages("x", address="orders/eu") + group_messages("y", address="orders/us"))
    for client in clients:
        assert client.texts("settles") == [f"{number}{part}" for number in range(50) for part in "ab"]
        assert client.texts("other") == ["x"]
    assert face.receivers.counters.delivered == 303


def test_a_sender_reaches_receivers_only_by_the_group(rig: Rig, site: LoopbackSite) -> None:
    client = Client(rig, "c")
    client.receiver("r", "relay/trades")
    client.send(client.sender("relay/trades"), "one")
    rig.settle_down()
    assert site.texts() == ["one"]
    assert not client.got


def test_messages_say_where_they_come_from(rig: Rig, face: RelayFace) -> None:
    client = Client(rig, "c")
    client.receiver("r", "relay/trades")
    deliver(rig, face, D, group_messages("far", reply_to="replies"))
    deliver(rig, face, B, group_messages("near", reply_to="replies"))
    deliver(rig, face, D, [GroupMessage("relay/trades", b"\x00\x53\x77\xa1\x01x")])
    far, near, plain = client.got["r"]
    assert far.annotations == {symbol("x-opt-isthmus.origin"): "sfo/D"}
    assert far.reply_to == f"relay/trades/~/{D.id.hex()}/replies"
    assert near.annotations == {symbol("x-opt-isthmus.origin"): "nyc/B"}
    assert near.reply_to == "replies"
    assert plain.body == "x"


def test_what_is_malformed_arrives_as_it_is(rig: Rig, face: RelayFace) -> None:
    client = Client(rig, "c")
    client.receiver("r", "relay/trades")
    deliver(rig, face, D, [GroupMessage("relay/trades", b"noise")])
    assert face.counters.malformed == 1
    (link,) = next(iter(rig.core.connections.values())).links
    assert link.deliveries == 1


def test_what_is_malformed_and_speaks_for_a_router_does_not_arrive(rig: Rig, face: RelayFace) -> None:
    client = Client(rig, "c")
    client.receiver("r", "relay/trades")
    forged = Message(body="forged", annotations={symbol("x-opt-isthmus.origin"): "sfo/D"}).encode()
    payload = b"\x00\x53\x72\x40" + forged
    deliver(rig, face, D, [GroupMessage("relay/trades", payload), *group_messages("next")])
    face.received(D, GroupMessage("", payload))
    rig.settle_down()
    assert client.texts("r") == ["next"]
    assert face.counters.malformed == 2


@pytest.mark.parametrize("seed", range(10))
def test_order_whatever_credit_there_is(rig: Rig, face: RelayFace, seed: int) -> None:
    chance = random.Random(seed)
    client = Client(rig, "c")
    receivers = [client.receiver(name, "relay/trades", credit=0) for name in ("settles", "keeps")]
    sent: list[str] = []
    for _ in range(60):
        for receiver in receivers:
            if chance.random() < 0.4:
                receiver.flow(chance.randrange(1, 5))
        texts = [str(len(sent) + number) for number in range(chance.randrange(4))]
        sent += texts
        if chance.random() < 0.2:
            texts_ = [text + "x" * 3000 for text in texts]
            sent[len(sent) - len(texts) :] = texts_
            texts = texts_
        deliver(rig, face, D, group_messages(*texts))
    for receiver in receivers:
        receiver.flow(len(sent))
    rig.settle_down()
    assert client.texts("settles") == client.texts("keeps") == sent


def test_nothing_overtakes_what_waits(rig: Rig, face: RelayFace) -> None:
    client = Client(rig, "c")
    client.receiver("r", "relay/trades")
    (link,) = next(iter(rig.core.connections.values())).links
    hold = rig.driver.forwarder.parking.hold(link)
    deliver(rig, face, D, group_messages("one", "two"))
    assert not client.got
    rig.driver.forwarder.parking.lift(hold)
    deliver(rig, face, D, group_messages("three"))
    assert client.texts("r") == ["one", "two", "three"]


def test_a_receiver_that_is_too_far_behind_is_told(
    rig: Rig, face: RelayFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside, "MOST_WAITING", 20)
    client = Client(rig, "c")
    slow = client.receiver("slow", "relay/trades", credit=5)
    client.receiver("quick", "relay/trades")
    deliver(rig, face, D, group_messages(*map(str, range(25))))
    assert not slow.remote_condition
    assert client.texts("slow") == list("01234")
    deliver(rig, face, D, group_messages("26"))
    assert slow.remote_condition.name == "amqp:resource-limit-exceeded"
    assert "relay/trades" in slow.remote_condition.description
    deliver(rig, face, D, group_messages("27"))
    assert client.texts("quick") == [*map(str, range(25)), "26", "27"]
    assert face.receivers.counters.detached == 1
    again = client.receiver("again", "relay/trades")
    deliver(rig, face, D, group_messages("28"))
    assert not again.remote_condition
    assert client.texts("again") == ["28"]


def test_bytes_that_wait_are_bounded(rig: Rig, face: RelayFace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "MOST_WAITING_BYTES", 10_000)
    client = Client(rig, "c")
    slow = client.receiver("slow", "relay/trades", credit=0)
    for _ in range(9):
        deliver(rig, face, D, group_messages("x" * 1000))
    slow.flow(4)
    rig.settle_down()
    for _ in range(4):
        deliver(rig, face, D, group_messages("x" * 1000))
    assert not slow.remote_condition
    deliver(rig, face, D, group_messages("x" * 1000))
    assert slow.remote_condition.name == "amqp:resource-limit-exceeded"


def test_messages_that_wait_on_all_links_of_a_client_are_bounded(
    rig: Rig, face: RelayFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside, "MOST_WAITING_OF_CLIENT", 40)
    client = Client(rig, "c")
    links = [client.receiver(f"slow{number}", "relay/trades", credit=0) for number in range(4)]
    (connection,) = {link.connection for link in rig.core.addresses["Mrelay/trades"].consumers}
    deliver(rig, face, D, group_messages(*map(str, range(10))))
    assert connection.relayed_waiting == 40
    assert not any(link.remote_condition for link in links)
    deliver(rig, face, D, group_messages("10"))
    refused = [link for link in links if link.remote_condition]
    assert refused
    assert {link.remote_condition.name for link in refused} == {"amqp:resource-limit-exceeded"}
    left = next(link for link in links if link not in refused)
    left.flow(100)
    rig.settle_down()
    assert client.texts(left.name) == [*map(str, range(11))]
    assert connection.relayed_waiting <= 40
    client.connection.close()
    rig.settle_down()
    assert (connection.relayed_waiting, connection.parked_bytes) == (0, 0)


def test_what_is_never_settled_is_bounded(rig: Rig, face: RelayFace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "MOST_UNSETTLED", 30)
    client = Client(rig, "c")
    keeps, settles = (client.receiver(name, "relay/trades") for name in ("keeps", "settles"))
    for number in range(31):
        deliver(rig, face, D, group_messages(str(number)))
    assert keeps.remote_condition.name == "amqp:resource-limit-exceeded"
    assert not settles.remote_condition
    assert len(client.got["settles"]) == 31


def test_a_receiver_of_settled_messages(rig: Rig, face: RelayFace) -> None:
    client = Client(rig, "c")
    link = client.session.receiver("r")
    link.source.address = "relay/trades"
    link.snd_settle_mode = link.SND_SETTLED
    link.open()
    link.flow(100)
    rig.settle_down()
    deliver(rig, face, D, group_messages("one"))
    assert client.texts("r") == ["one"]
    (own,) = next(iter(rig.core.connections.values())).links
    assert (own.presettled, own.unsettled) == (1, {})


def test_a_receiver_of_small_messages(rig: Rig, face: RelayFace) -> None:
    client = Client(rig, "c")
    link = client.session.receiver("r")
    link.source.address = "relay/trades"
    link.max_message_size = 500
    link.open()
    link.flow(100)
    rig.settle_down()
    deliver(rig, face, D, group_messages("one", "x" * 1000, "two"))
    assert client.texts("r") == ["one", "two"]
    assert face.receivers.counters.oversized == 1


def test_only_addresses_of_the_group_get_messages_of_the_group(rig: Rig, face: RelayFace) -> None:
    client = Client(rig, "c")
    client.receiver("r", "private")
    deliver(rig, face, D, group_messages("one", address="private"))
    deliver(rig, face, D, group_messages("two", address="$management"))
    assert not client.got


def test_a_message_to_this_member(rig: Rig, face: RelayFace) -> None:
    client = Client(rig, "c")
    client.receiver("short", "relay/trades/A")
    client.receiver("long", "relay/trades/nyc/A")
    client.receiver("all", "relay/trades")
    face.received(D, group_messages("hello", address="", reply_to="replies")[0])
    rig.driver.flush()
    rig.settle_down()
    assert client.texts("short") == client.texts("long") == ["hello"]
    assert client.got["short"][0].reply_to == f"relay/trades/~/{D.id.hex()}/replies"
    assert not client.texts("all")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("relay/trades/D", "relay/trades/D is for another member: attach at the router D of site sfo"),
        ("relay/trades/sfo/D", "attach at the router D of site sfo"),
        ("relay/trades/X", "no member X in group trades"),
        ("relay/trades/state", "no state address, as relaySite has no stateAddress"),
        ("relay/trades/~/00/x", "attach to relay/trades for what all get"),
    ],
)
def test_receivers_of_other_members_attach_there(rig: Rig, face: RelayFace, address: str, why: str) -> None:
    link = Client(rig, "c").receiver("r", address)
    assert link.remote_condition.name == "amqp:not-allowed"
    assert "relay/trades/A" in link.remote_condition.description
    assert why in link.remote_condition.description


def test_request_and_reply(rig: Rig, site: LoopbackSite, face: RelayFace) -> None:
    """A request from the other site is answered here; the answer to one of ours comes back."""
    client = Client(rig, "c")
    client.receiver("requests", "relay/trades")
    deliver(rig, face, D, group_messages("request", reply_to="_topo/0/D/temp.1"))
    (request,) = client.got["requests"]
    client.send(client.sender(request.reply_to), "answer")
    rig.settle_down()
    ((member, answer, _),) = site.sent
    assert (member, answer.address) == (D.id, "_topo/0/D/temp.1")

    asked: list[bytes] = []
    rig.core.register("$management", InProcessConsumer(lambda payload, _: asked.append(payload)), mobile=True)
    replies = client.session.receiver("replies")
    replies.source.dynamic = True
    replies.open()
    replies.flow(10)
    rig.settle_down()
    for address in (replies.remote_source.address, "nowhere", "$management"):
        face.received(D, group_messages("answer", address=address)[0])
    rig.driver.flush()
    rig.settle_down()
    assert client.texts("replies") == ["answer"]
    assert not asked
    assert face.counters.unanswerable == 2


@pytest.mark.parametrize("to", ["orders", "$management", "_local/temp.1", "amqp:/_topo/0/D/qdrouter"])
def test_addresses_of_another_network_that_are_not_temporary_are_refused(
    rig: Rig, site: LoopbackSite, face: RelayFace, to: str
) -> None:
    """Who may send to the group would reach what no policy of the other network allows."""
    address = f"relay/trades/~/{D.id.hex()}/{to}"
    client = Client(rig, "c")
    link = client.sender(address)
    rig.settle_down()
    assert link.remote_condition.name == "amqp:unauthorized-access"
    anonymous = client.sender(None)
    delivery = client.send(anonymous, Message("order", address=address))
    rig.settle_down()
    assert delivery.remote_state == delivery.REJECTED
    assert delivery.remote.condition.name == "amqp:unauthorized-access"
    assert not site.sent
    received: list[bytes] = []
    rig.core.register("orders", InProcessConsumer(lambda payload, _: received.append(payload)), mobile=True)
    face.received(D, group_messages("order", address=to)[0])
    assert not received
    assert face.counters.unanswerable == 1


def test_gaps_are_told_to_who_asks(rig: Rig, face: RelayFace) -> None:
    client = Client(rig, "c")
    client.receiver("asks", "relay/trades", gaps=True)
    client.receiver("asks too", "orders/eu", gaps=True)
    client.receiver("does not", "relay/trades")
    client.receiver("elsewhere", "private", gaps=True)
    face.gap(D, 17)
    rig.driver.flush()
    rig.settle_down()
    assert set(client.got) == {"asks", "asks too"}
    (message,) = client.got["asks"]
    assert message.annotations == {
        symbol("x-opt-isthmus.gap"): {"site": "sfo", "origin": "D", "messages": 17}
    }
    assert message.body is None
    assert face.counters.lost == 17


def test_at_a_gap_the_ways_to_edges_end(rig: Rig, face: RelayFace) -> None:
    """What they do then with their receivers is in `test_edge.py`."""
    edge = Client(rig, "e", Role.EDGE)
    ways = [edge.receiver("group", "relay/trades"), edge.receiver("pattern", "orders/eu")]
    private = edge.receiver("private", "private")
    face.gap(D, 17)
    rig.driver.flush()
    rig.settle_down()
    for way in ways:
        assert way.remote_condition.name == "amqp:link:detach-forced"
        assert "17 messages" in way.remote_condition.description
    assert private.remote_condition is None
    assert edge.got == {}


def test_the_network_is_told_of_the_group(rig: Rig, site: LoopbackSite) -> None:
    def told() -> set[str]:
        return {
            key[1:] for key, address in rig.core.addresses.items() if rig.core.has_local_consumers(address)
        }

    always = {"relay/trades", "relay/trades/A", "relay/trades/nyc/A"}
    assert told() == always
    client = Client(rig, "c")
    sender = client.sender("orders/eu")
    assert told() == always
    receiver = client.receiver("r", "orders/eu")
    assert told() == always | {"orders/eu"}
    receiver.close()
    rig.settle_down()
    assert told() == always
    sender.close()
    rig.settle_down()
    assert "Morders/eu" not in rig.core.addresses
    assert site.room


def test_addresses_that_were_there_before(rig: Rig) -> None:
    client = Client(rig, "c")
    receiver = client.receiver("r", "orders/eu")
    sender = client.sender("orders/eu")
    client.send(sender, "before")
    site, face = member_of(rig, addresses=("orders/#",))
    rig.settle_down()
    client.send(sender, "after")
    rig.settle_down()
    assert site.texts() == ["before", "after"]
    deliver(rig, face, A, group_messages("relayed", address="orders/eu"))
    assert client.texts("r") == ["relayed"]
    face.close()
    client.send(sender, "direct")
    rig.settle_down()
    assert client.texts("r") == ["relayed", "direct"]
    receiver.close()
    sender.close()
    rig.settle_down()
    assert "Morders/eu" not in rig.core.addresses


def test_receivers_are_behind_while_much_waits_for_them_and_they_take_some(
    rig: Rig, face: RelayFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "MANY", 20)
    client = Client(rig, "c")
    slow = client.receiver("settles", "relay/trades", credit=1)
    client.receiver("quick", "relay/trades")
    deliver(rig, face, D, group_messages(*map(str, range(21))))
    assert not face.behind(0.0)
    deliver(rig, face, D, group_messages("21"))
    for now in range(5):
        assert face.behind(now)
        slow.flow(1)
        rig.settle_down()
    assert face.behind(5.0)
    assert not face.behind(6.0)
    slow.flow(1)
    rig.settle_down()
    assert face.behind(7.0)
    slow.flow(5)
    rig.settle_down()
    assert not face.behind(7.0)


def test_a_receiver_that_is_gone_is_not_behind(
    rig: Rig, face: RelayFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "MANY_BYTES", 10_000)
    client = Client(rig, "c")
    slow = client.receiver("slow", "relay/trades", credit=0)
    deliver(rig, face, D, group_messages("x" * 11_000))
    assert face.behind(0.0)
    slow.close()
    rig.settle_down()
    assert not face.behind(0.1)


def with_ten_receivers(rig: Rig) -> Client:
    """A client that receives `relay/trades` on the links r0 to r9."""
    client = Client(rig, "c")
    for number in range(10):
        client.receiver(f"r{number}", "relay/trades")
    return client


def test_copies_for_many_receivers_have_their_turns(
    rig: Rig, site: LoopbackSite, face: RelayFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "COPIES_AT_ONCE", 20)
    client = Client(rig, "c")
    links = [client.receiver(f"r{number}", "relay/trades") for number in range(30)]
    for number in range(10):
        deliver(rig, face, D, group_messages(f"{number}a", f"{number}b"))
    given = face.receivers.counters.delivered
    assert 0 < given <= 22
    for _ in range(3):
        (_, callback), *site.timers = site.timers
        callback()
        assert 0 < face.receivers.counters.delivered - given <= 22
        given = face.receivers.counters.delivered
    links[-1].close()
    rig.settle_down()
    late = client.receiver("late", "relay/trades")
    deliver(rig, face, D, group_messages("last"))
    site.pass_time(0.0)
    rig.driver.flush()
    rig.settle_down()
    for number in range(29):
        assert client.texts(f"r{number}") == [*(f"{n}{part}" for n in range(10) for part in "ab"), "last"]
    assert client.texts("r29") == ["0a", "0b"], "it has left before its other turns"
    assert client.texts("late") == ["last"]
    assert late.credit > 0


def test_copies_that_wait_hold_the_group_back(
    rig: Rig, site: LoopbackSite, face: RelayFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "COPIES_AT_ONCE", 10)
    monkeypatch.setattr(receivers, "COPIES_THAT_WAIT", 10)
    monkeypatch.setattr(receivers, "MOST_COPIES_THAT_WAIT", 30)
    client = with_ten_receivers(rig)
    for number in range(2):
        deliver(rig, face, D, group_messages(str(number)))
        assert not face.behind(0.0)
    deliver(rig, face, D, group_messages("2"))
    assert face.behind(0.0)
    deliver(rig, face, D, group_messages("3"))
    assert client.texts("r9") == ["0"]
    deliver(rig, face, D, group_messages("4"))
    assert client.texts("r9") == ["0", "1"], "no more may wait"
    site.pass_time(0.0)
    rig.driver.flush()
    rig.settle_down()
    assert client.texts("r0") == client.texts("r9") == [*"01234"]
    assert not face.behind(0.0)


def test_bytes_of_messages_whose_copies_wait_are_bounded(
    rig: Rig, face: RelayFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "COPIES_AT_ONCE", 10)
    monkeypatch.setattr(receivers, "MANY_BYTES", 1_000)
    monkeypatch.setattr(receivers, "MOST_BYTES_THAT_WAIT", 2_000)
    client = with_ten_receivers(rig)
    deliver(rig, face, D, group_messages("w"))
    deliver(rig, face, D, group_messages("x" * 800))
    assert not face.behind(0.0)
    deliver(rig, face, D, group_messages("y" * 800))
    assert face.behind(0.0)
    assert client.texts("r9") == ["w"]
    deliver(rig, face, D, group_messages("z" * 800))
    assert client.texts("r9") == ["w", "x" * 800]


@pytest.mark.parametrize("bound", ["MOST_COPIES_THAT_WAIT", "MOST_BYTES_THAT_WAIT"])
def test_the_client_with_most_receivers_loses_them_when_no_turn_has_time_for_all(
    rig: Rig, site: LoopbackSite, face: RelayFace, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """Clients can have hundreds of thousands of receivers."""
    monkeypatch.setattr(receivers, "COPIES_AT_ONCE", 5)
    monkeypatch.setattr(receivers, "LINKS_AT_ONCE", 5)
    monkeypatch.setattr(receivers, bound, 30)
    other = Client(rig, "other")
    other.receiver("one", "relay/trades")
    greedy = with_ten_receivers(rig)
    for connection in face._core.connections.values():
        connection.client = connection.container
    deliver(rig, face, D, group_messages("0"))
    for number in range(1, 10):
        deliver(rig, face, D, group_messages(f"{number}" * 8))
    late = greedy.receiver("late", "relay/trades")
    deliver(rig, face, D, group_messages("last"))
    rig.work_off()
    site.pass_time(0.0)
    rig.driver.flush()
    rig.settle_down()
    everything = ["0", *(f"{number}" * 8 for number in range(1, 10)), "last"]
    assert other.texts("one") == everything
    got = [greedy.texts(f"r{number}") for number in range(10)]
    assert all(texts == everything[: len(texts)] for texts in got), "no gap"
    assert face.receivers.counters.detached == sum(texts != everything for texts in got) == 10
    assert greedy.texts("late") == ["last"]
    assert late.credit > 0


@pytest.mark.parametrize("bound", ["MOST_COPIES_THAT_WAIT", "MOST_BYTES_THAT_WAIT"])
def test_receivers_that_have_left_make_room(
    rig: Rig, site: LoopbackSite, face: RelayFace, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """They are not among those that the router may detach, which may be none."""
    monkeypatch.setattr(receivers, "COPIES_AT_ONCE", 5)
    monkeypatch.setattr(receivers, "LINKS_AT_ONCE", 5)
    other, greedy = Client(rig, "other"), Client(rig, "greedy")
    links = [greedy.receiver(f"r{number}", "relay/trades") for number in range(10)]
    for number in range(5):
        deliver(rig, face, D, group_messages(f"{number}" * 8))
    for link in links:
        link.close()
    rig.settle_down()
    monkeypatch.setattr(receivers, bound, 0)
    last = other.receiver("last", "relay/trades")
    deliver(rig, face, D, group_messages("last"))
    assert other.texts("last") == ["last"]
    assert face.receivers.counters.detached == 0
    assert last.credit > 0


def test_receivers_that_have_too_much_waiting_are_detached_in_steps(
    rig: Rig, site: LoopbackSite, face: RelayFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes longer than a copy."""
    monkeypatch.setattr(receivers, "COPIES_AT_ONCE", 20)
    monkeypatch.setattr(receivers, "LINKS_AT_ONCE", 1)
    monkeypatch.setattr(face._core.port, "deliver", lambda link, payloads, annotations: False)
    with_ten_receivers(rig)
    deliver(rig, face, D, group_messages("0"))
    assert face.receivers.counters.detached == 2
    for count in (4, 6, 8, 10):
        (_, callback), *site.timers = site.timers
        callback()
        assert face.receivers.counters.detached == count


def test_copies_that_wait_are_made_before_the_group_is_left(
    rig: Rig, face: RelayFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "COPIES_AT_ONCE", 1)
    client = with_ten_receivers(rig)
    deliver(rig, face, D, group_messages("0"))
    assert client.texts("r9") == []
    face.close()
    rig.driver.flush()
    rig.settle_down()
    assert client.texts("r9") == ["0"]
