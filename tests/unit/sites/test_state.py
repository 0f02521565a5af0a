"""Who asks for the state, and who gives it: what is in it comes once, and what is not follows."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from proton import Message
from tests.unit.amqp.rig import Rig
from tests.unit.sites.loopback import A, B, Client, D, member_of

from isthmus_router.groups.batch import GroupMessage
from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import MemberId
from isthmus_router.message import control, rewriting
from isthmus_router.message.control import encode_message
from isthmus_router.message.types import encode
from isthmus_router.sites import state_giver, state_taker
from isthmus_router.sites.port import SiteMember
from isthmus_router.sites.state_giver import _has_more
from isthmus_router.sites.state_messages import (
    ANSWERS,
    MOST_POSITIONS,
    STATE,
    Ask,
    No,
    Part,
    decode_state,
    encode_state,
)

PLACE = "trades/state"


class Stand:
    """The member A with a client; B and D are played by the test."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.site, self.face = member_of(rig, state_address=PLACE)
        self.client = Client(rig, "c")

    def receiver(self, name: str, address: str, *, state: bool) -> Any:
        link = self.client.session.receiver(name)
        link.source.address = address
        if state:
            link.source.capabilities.put_array(False, link.source.capabilities.SYMBOL)
            link.source.capabilities.enter()
            link.source.capabilities.put_symbol("isthmus.relay-state")
            link.source.capabilities.exit()
        link.open()
        link.flow(1_000)
        self.rig.settle_down()
        return link

    def multicast(self, origin: SiteMember, number: int, *texts: str) -> None:
        messages = [GroupMessage("relay/trades", bytes(Message(body=text).encode())) for text in texts]
        self.face.deliver(origin, messages, number)
        self.site.delivered[origin.id] = number
        self.turn()

    def turn(self, seconds: float = 0.05) -> None:
        self.site.pass_time(seconds)
        self.rig.work_off()
        self.site.pass_time(0.0)
        self.rig.driver.flush()
        self.rig.settle_down()

    def hears(self, sender: SiteMember, message: Ask | No | Part) -> None:
        self.face.received(sender, GroupMessage(STATE, encode_state(message)))
        self.turn()

    def said(self) -> list[tuple[MemberId, Ask | No | Part]]:
        """What A has said to others, and what it has said to itself."""
        sent, self.site.sent = self.site.sent, []
        return [(member, decode_state(message.payload)) for member, message, _ in sent]

    def asked(self, member: SiteMember) -> Ask:
        """A has asked that member, and nobody else."""
        ((to, ask),) = self.said()
        assert to == member.id
        assert isinstance(ask, Ask)
        return ask

    def asks(self, member: SiteMember) -> Ask:
        """A has asked itself and those before the member, who have not got it; it asks the member now."""
        for before in (A, B, D):
            ask = self.asked(before)
            if before is member:
                break
            self.hears(before, No(ask.request, "no application there gives it"))
        return ask


@pytest.fixture
def stand(rig: Rig) -> Stand:
    return Stand(rig)


def payload(text: str, **fields: Any) -> bytes:
    return bytes(Message(body=text, **fields).encode())


def annotations(message: Message) -> dict[str, Any]:
    return {str(key): value for key, value in (message.annotations or {}).items()}


def test_state_then_what_is_not_in_it(stand: Stand) -> None:
    stand.multicast(B, 4, "b4")
    stand.receiver("settles", "relay/trades", state=True)
    stand.receiver("settles-plain", "relay/trades", state=False)
    stand.turn()
    ask = stand.asks(D)
    assert ask.positions == {B.id: 4}
    for number in range(5, 9):
        stand.multicast(B, number, f"b{number}", f"b{number} too")
    stand.multicast(D, 1, "d1")
    assert stand.client.texts("settles") == []
    stand.hears(D, Part(ask.request, False, {}, payload("one")))
    stand.hears(D, Part(ask.request, True, {B.id: 6}, payload("two")))
    stand.multicast(B, 9, "b9")
    assert stand.client.texts("settles") == ["one", "two", "b7", "b7 too", "b8", "b8 too", "d1", "b9"]
    got = [annotations(message).get("x-opt-isthmus.state") for message in stand.client.got["settles"]]
    assert got == ["more", "last"] + [None] * 6
    assert stand.client.texts("settles-plain")[-1] == "b9"
    assert len(stand.client.texts("settles-plain")) == 10


def test_what_begins_behind_the_state_is_asked_for_again(stand: Stand) -> None:
    stand.receiver("settles", "relay/trades", state=True)
    stand.turn()
    ask = stand.asks(B)
    stand.multicast(D, 7, "d7")  # known here from 7 on
    stand.hears(B, Part(ask.request, True, {D.id: 5}, payload("old")))
    again = stand.asks(B)
    assert again.positions == {D.id: 7}
    stand.hears(B, Part(ask.request, True, {D.id: 9}, payload("late")))
    stand.hears(B, Part(again.request, True, {D.id: 7}, payload("new")))
    assert stand.client.texts("settles") == ["new"]


def test_a_member_that_goes_while_it_gives(stand: Stand) -> None:
    stand.receiver("settles", "relay/trades", state=True)
    stand.turn()
    ask = stand.asks(B)
    stand.hears(B, Part(ask.request, False, {}, payload("half")))
    stand.face.members_changed((A, D))
    ask = stand.asked(D)
    stand.hears(D, Part(ask.request, True, {}, payload("whole")))
    assert stand.client.texts("settles") == ["whole"]


def test_a_member_that_falls_silent_while_it_gives(stand: Stand) -> None:
    stand.receiver("settles", "relay/trades", state=True)
    stand.turn()
    ask = stand.asks(B)
    stand.turn(state_taker.MEMBER_SECONDS - 1.0)
    stand.hears(B, Part(ask.request, False, {}, payload("half")))
    stand.turn(2.0)
    assert stand.said() == [], "each part is waited for anew"
    stand.turn(state_taker.MEMBER_SECONDS)
    stand.asked(D)


def test_a_member_that_leaves_lets_nobody_wait(stand: Stand) -> None:
    link = stand.receiver("r", "relay/trades", state=True)
    stand.face.close()
    stand.turn()
    assert "this router has left the group" in link.remote_condition.description


def test_who_is_asked_first(stand: Stand) -> None:
    far = SiteMember(MemberId(b"0" * 16), "sfo", "far")
    stand.face.members_changed((far, D, B, A))
    stand.receiver("r", "relay/trades", state=True)
    stand.turn()
    for member in (A, B, far):
        stand.hears(member, No(stand.asked(member).request, "no application there gives it"))
    stand.asked(D)


def test_a_silent_member_is_passed_over_and_the_error_says_why(stand: Stand) -> None:
    link = stand.receiver("r", "relay/trades", state=True)
    stand.turn()
    stand.asks(B)
    stand.turn(state_taker.MEMBER_SECONDS + 0.1)
    ask = stand.asked(D)
    stand.hears(D, No(ask.request, "no application there gives it"))
    condition = link.remote_condition
    assert condition.name == "amqp:not-found"
    assert "nyc/B: nothing came within 13 s; sfo/D: no application there gives it" in condition.description


def test_bounds(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_taker, "MOST_HELD", 20)
    monkeypatch.setattr(state_taker, "MOST_STATE_BYTES", 1_000)
    waiting = stand.receiver("waiting", "relay/trades", state=True)
    stand.turn()
    stand.asks(B)
    stand.multicast(B, 1, *map(str, range(21)))
    assert waiting.remote_condition.name == "amqp:resource-limit-exceeded"
    large = stand.receiver("large", "relay/trades", state=True)
    stand.turn()
    ask = stand.asks(B)
    stand.hears(B, Part(ask.request, False, {}, bytes(1_001)))
    assert large.remote_condition.name == "amqp:resource-limit-exceeded"
    stand.multicast(B, 2, "more")
    assert not stand.client.texts("large")


def test_a_state_of_very_many_messages_is_refused(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_taker, "MOST_PARTS", 50)
    link = stand.receiver("r", "relay/trades", state=True)
    stand.turn()
    ask = stand.asks(B)
    for _ in range(51):
        stand.hears(B, Part(ask.request, False, {}, b""))
    assert link.remote_condition.name == "amqp:resource-limit-exceeded"


def test_a_state_of_many_messages_has_one_timer_and_is_made_ready_in_steps(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bytes] = []

    def annotated(payload: bytes, *how: Any) -> bytes:
        made.append(payload)
        return rewriting.annotated(payload, *how)

    monkeypatch.setattr(state_taker, "annotated", annotated)
    stand.receiver("settles", "relay/trades", state=True)
    stand.turn()
    ask = stand.asks(B)
    timers = len(stand.site.timers)
    texts = [str(number) for number in range(5 * state_taker.AT_ONCE)]
    for text in texts:
        part = Part(ask.request, False, {}, payload(text))
        stand.face.received(B, GroupMessage(STATE, encode_state(part)))
    assert len(stand.site.timers) == timers
    stand.face.received(
        B, GroupMessage(STATE, encode_state(Part(ask.request, True, {B.id: 2}, payload("end"))))
    )
    assert not made
    for number in range(1, 5):  # they come while the state is made ready
        stand.face.deliver(B, [GroupMessage("relay/trades", payload(f"b{number}"))], number)
    stand.turn()
    assert stand.client.texts("settles") == [*texts, "end", "b3", "b4"]
    got = [annotations(message).get("x-opt-isthmus.state") for message in stand.client.got["settles"]]
    assert got == ["more"] * len(texts) + ["last", None, None]


def test_a_receiver_that_goes_while_its_state_is_made_ready(stand: Stand) -> None:
    link = stand.receiver("settles", "relay/trades", state=True)
    stand.turn()
    ask = stand.asks(B)
    for number in range(100):
        part = Part(ask.request, number == 99, {}, payload(str(number)))
        stand.face.received(B, GroupMessage(STATE, encode_state(part)))
    link.close()
    stand.rig.settle_down()
    stand.turn()
    assert "settles" not in stand.client.got
    assert not _kept("_Asking")


def test_a_receiver_is_asked_in_line(stand: Stand) -> None:
    stand.receiver("settles", PLACE, state=False)
    stand.multicast(B, 1, "b1")
    stand.hears(D, Ask(b"request1", {B.id: 2}))
    assert stand.client.texts("settles") == ["b1"], "it lacks what the other member has"
    stand.multicast(B, 2, "b2")
    stand.multicast(B, 3, "b3")
    *_, last, request = stand.client.got["settles"][:3]
    assert last.body == "b2"
    assert request.subject == "isthmus.state-request"
    assert annotations(request) == {"x-opt-isthmus.state-request": True}
    answers = stand.client.sender(None)
    delivery = stand.client.send(
        answers, Message("one", address=request.reply_to, properties={"isthmus_more": True})
    )
    stand.client.send(answers, Message("two", address=request.reply_to))
    stand.turn()
    assert delivery.remote_state == 0, "accepted when who asked has it"
    stand.site.protect()
    stand.turn()
    assert delivery.remote_state == delivery.ACCEPTED


def test_what_is_answered_goes_to_who_asked(stand: Stand) -> None:
    stand.receiver("settles", PLACE, state=False)
    stand.multicast(B, 3, "b3")
    stand.hears(D, Ask(b"request1", {B.id: 2, MemberId(b"?" * 16): 5}))
    request = stand.client.got["settles"][-1]
    answers = stand.client.sender(None)
    first = Message("one", address=request.reply_to, properties={"isthmus_more": True})
    stand.client.send(answers, first)
    stand.client.send(answers, Message("two", address=request.reply_to))
    stand.turn()
    (to, one), (_, two) = stand.said()
    assert to == D.id
    assert isinstance(one, Part)
    assert isinstance(two, Part)
    assert (one.last, two.last, two.positions) == (False, True, {B.id: 3})
    late = stand.client.send(answers, Message("three", address=request.reply_to))
    stand.turn()
    assert late.remote.condition.name == "amqp:not-found"


def test_only_those_give_it_who_have_it(stand: Stand) -> None:
    stand.hears(D, Ask(b"request1", {}))
    assert stand.said() == [(D.id, No(b"request1", "no application there gives it"))]
    stand.receiver("r", PLACE, state=True)
    stand.hears(D, Ask(b"request2", {}))
    assert (D.id, No(b"request2", "no application there gives it")) in stand.said()


def test_a_site_that_nothing_is_kept_for_yet_waits(stand: Stand) -> None:
    stand.site.contacts = {"nyc"}
    link = stand.receiver("settles", PLACE, state=False)
    stand.hears(D, Ask(b"request1", {}))
    assert stand.client.texts("settles") == []
    stand.site.contacts.add("sfo")
    stand.turn()
    assert stand.client.got["settles"][0].subject == "isthmus.state-request"
    link.close()
    stand.turn()
    assert stand.said() == [(D.id, No(b"request1", "the application has gone"))]


def test_a_site_that_asks_very_often_gives_way_to_another(stand: Stand) -> None:
    stand.site.contacts = {"nyc"}  # so that all of them wait
    stand.receiver("settles", PLACE, state=False)
    for number in range(state_giver.MOST_REQUESTS + 1):
        stand.hears(D, Ask(number.to_bytes(8), {}))
    refused = [message for _, message in stand.said()]
    assert [message.request for message in refused] == [state_giver.MOST_REQUESTS.to_bytes(8)]
    stand.hears(B, Ask(b"request1", {}))
    last = state_giver.MOST_REQUESTS - 1
    assert stand.said() == [(D.id, No(last.to_bytes(8), "members of other sites ask for it as well"))]


def test_requests_with_many_positions_take_turns(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_giver, "LOOKED_AT", 100)
    stand.multicast(B, 1, "before")
    stand.receiver("settles", PLACE, state=False)
    far = {MemberId(number.to_bytes(16)): 0 for number in range(1, 90)} | {B.id: 1 << 40}
    for number in range(8):
        stand.hears(D, Ask(number.to_bytes(8), far))
    stand.hears(D, Ask(b"request1", {}))
    for _ in range(10):
        stand.turn()
    assert len(stand.client.texts("settles")) == 1, "the one that does not have to wait"


def test_positions_beyond_the_number_of_streams_are_refused() -> None:
    most = {MemberId(number.to_bytes(16)): 1 for number in range(1, MOST_POSITIONS + 1)}
    assert decode_state(encode_state(Ask(b"12345678", most))) == Ask(b"12345678", most)
    with pytest.raises(FrameError):
        decode_state(encode_state(Ask(b"12345678", {**most, A.id: 1})))
    with pytest.raises(FrameError, match="message about the state of"):
        decode_state(encode_state(No(b"12345678", "x" * (17 << 20))))


def test_nothing_is_kept_for_a_receiver_that_is_gone(stand: Stand) -> None:
    """Timers that wait for its state do not hold it: it may attach and go many times before they end."""
    link = stand.receiver("r", "relay/trades", state=True)
    stand.multicast(B, 1, "held back")
    assert len(_kept("_Asking")) == 1
    link.close()
    stand.turn()
    assert not _kept("_Asking")


def _kept(kind: str) -> list[object]:
    gc.collect()
    return [each for each in gc.get_objects() if type(each).__name__ == kind]


def test_nothing_is_kept_for_a_request_that_is_over(stand: Stand) -> None:
    """Nor has each of many answers a timer."""
    stand.receiver("settles", PLACE, state=False)
    stand.hears(D, Ask(b"request1", {B.id: 0}))
    request = stand.client.got["settles"][0]
    answers = stand.client.sender(None)
    timers = len(stand.site.timers)
    for number in range(20):
        more = {"isthmus_more": True} if number < 19 else {}
        stand.client.send(answers, Message("part", address=request.reply_to, properties=more))
    stand.rig.settle_down()
    assert len(stand.site.timers) == timers
    assert len(stand.said()) == 20
    assert not _kept("_Request")
    stand.hears(D, Ask(b"request2", {}))
    stand.face.members_changed((A, B))
    assert not _kept("_Request")


def test_an_application_that_falls_silent_while_it_answers(stand: Stand) -> None:
    stand.receiver("settles", PLACE, state=False)
    stand.hears(D, Ask(b"request1", {}))
    request = stand.client.got["settles"][0]
    stand.turn(9.5)
    more = Message("part", address=request.reply_to, properties={"isthmus_more": True})
    stand.client.send(stand.client.sender(None), more)
    stand.turn(0.1)
    stand.said()
    stand.turn(9.5)
    assert stand.said() == [], "each answer is waited for anew"
    stand.turn(2.0)
    assert stand.said() == [(D.id, No(b"request1", "the application does not answer within 10 s"))]


def test_an_application_that_does_not_answer(stand: Stand) -> None:
    stand.receiver("settles", PLACE, state=False)
    stand.hears(D, Ask(b"request1", {}))
    stand.turn(11.0)
    assert stand.said() == [(D.id, No(b"request1", "the application does not answer within 10 s"))]


def test_clients_cannot_speak_for_members(stand: Stand) -> None:
    sender = stand.client.sender(None)
    for member in (A, D):
        address = f"relay/trades/~/{member.id.hex()}/{STATE}"
        delivery = stand.client.send(sender, Message(encode_state(No(b"r", "x")), address=address))
        stand.turn()
        assert delivery.remote.condition.name == "amqp:not-allowed"
    guess = stand.client.send(sender, Message("x", address=f"relay/trades/~/{A.id.hex()}/{ANSWERS}00"))
    stand.turn()
    assert guess.remote.condition.name == "amqp:not-found"
    assert stand.site.sent == []


def test_without_a_state_address(rig: Rig) -> None:
    member_of(rig)
    stand = Stand.__new__(Stand)
    stand.rig, stand.client = rig, Client(rig, "c")
    link = stand.receiver("r", "relay/trades", state=True)
    assert link.remote_condition.name == "amqp:not-implemented"


def test_messages_between_members() -> None:
    positions = {A.id: 3, D.id: 1 << 60}
    for message in (
        Ask(b"12345678", positions),
        No(b"12345678", "why"),
        Part(b"12345678", True, positions, b"payload"),
    ):
        encoded = encode_state(message)
        assert decode_state(encoded) == message
        for end in range(len(encoded)):
            with pytest.raises(FrameError):
                decode_state(encoded[:end])


def test_noise_of_a_member_is_counted(stand: Stand) -> None:
    stand.face.received(D, GroupMessage(STATE, b"noise"))
    assert stand.face.state.malformed == 1


def test_whether_more_follows_is_read_without_the_body() -> None:
    """The body may have a million values, and may even be none: nothing of it is decoded."""

    def message(**properties: object) -> bytes:
        return encode_message(control.Message(application_properties=properties)) + b"\x00\x53\x77\x3f"

    assert _has_more(message(isthmus_more=True))
    assert not _has_more(message(isthmus_more=False))
    assert not _has_more(message(other=True))
    assert not _has_more(message())
    assert not _has_more(message(**{f"p{number}": 0 for number in range(1000)}, isthmus_more=True))
    for invalid in (b"", b"\x00\x53\x74\xc1", b"\x00\x53\x74\xc1\x03\x02\x3f\x3f"):
        assert not _has_more(invalid)


def test_a_message_about_the_state_with_too_many_values_is_refused() -> None:
    with pytest.raises(FrameError, match="more than"):
        decode_state(encode([3, b"r", True, b"", b"m", *[None] * 1000]))
