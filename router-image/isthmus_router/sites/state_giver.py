"""Where an application hands out its state: it is asked in line with its messages, so the state has a position.

The application receives at the `stateAddress` what others receive at `relay/<group>`. When another member asks for the
state, and all that this one must have had is delivered here, a request is put into the application's queue, behind what
it has been sent so far: the *positions* of the state. What it answers goes to who asked, with them.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from weakref import ref

from isthmus_router.core.address import Address
from isthmus_router.core.model import Link
from isthmus_router.core.port import CallLater
from isthmus_router.core.terms import Condition
from isthmus_router.groups.batch import GroupMessage
from isthmus_router.groups.identity import MemberId
from isthmus_router.message.control import BodyKind, Message, Properties, encode_message
from isthmus_router.message.sections import IncompleteError, SectionError, section_at, skip_value
from isthmus_router.message.types import DecodeError, Symbol, decode
from isthmus_router.sites.port import SiteMember, SitePort
from isthmus_router.sites.receivers import Receivers
from isthmus_router.sites.silence import when_silent
from isthmus_router.sites.state_messages import ANSWERS, STATE, Ask, No, Part, Positions, encode_state

REQUEST = "x-opt-isthmus.state-request"
SUBJECT = "isthmus.state-request"
MORE = "isthmus_more"
"""Application property of an answer that others follow."""
ANSWER_SECONDS = 10.0
"""From when a member asks to the application's first answer, and from each answer to the next."""
POLL_SECONDS = 0.02
MOST_REQUESTS = 64
LOOKED_AT = 20_000
"""Positions of requests that wait, at a time; the other requests have their turn the next time."""
_APPLICATION_PROPERTIES = 0x74


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Request:
    asker: SiteMember
    ask: Ask
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    """Where it is answered; nobody else can know it."""
    link: Link | None = None
    """Where it was put."""
    positions: Positions = field(default_factory=dict)
    answers: int = 0


class StateGiver:
    """At one member, for applications attached to it."""

    def __init__(
        self,
        site: SitePort,
        receivers: Receivers,
        where: Callable[[], Address | None],
        asking: Collection[Link],
        later: CallLater,
        reply_prefix: str,
    ) -> None:
        """`where`: the state address, if it has receivers here. `asking`: those that have no state themselves."""
        self._site = site
        self._receivers = receivers
        self._where = where
        self._asking = asking
        self._later = later
        self._prefix = reply_prefix + ANSWERS
        self._requests: dict[str, _Request] = {}
        self._polls = False

    def asked(self, asker: SiteMember, ask: Ask) -> None:
        """Another member, or this one, asks."""
        request = _Request(asker, ask)
        if self._application() is None:
            self._refuse(request, "no application there gives it")
        elif not self._has_room_for(asker.site):
            self._refuse(request, f"asked for it {MOST_REQUESTS} times at once")
        else:
            self._requests[request.name] = request
            self._await(request)
            self._poll_later()

    def _has_room_for(self, site: str) -> bool:
        """A site that asks very often gives way to one that does not."""
        if len(self._requests) < MOST_REQUESTS:
            return True
        of_sites = Counter(request.asker.site for request in self._requests.values())
        greatest, number = of_sites.most_common(1)[0]
        if number <= of_sites[site] + 1:
            return False
        newest = next(each for each in reversed(self._requests.values()) if each.asker.site == greatest)
        self._give_up(newest, "members of other sites ask for it as well")
        return True

    def answered(self, name: str, payload: bytes, delivery: object | None) -> Condition | None:
        """A message to the reply-to of a request; why it is rejected, if it is."""
        request = self._requests.get(name)
        if request is None or request.link is None:
            return Condition("amqp:not-found", "There is no such request for the state, or it was given up")
        last = not _has_more(payload)
        request.answers += 1
        if last:
            del self._requests[name]
        part = Part(request.ask.request, last, request.positions if last else {}, payload)
        token = None if delivery is None else [delivery]
        source = request.link.connection.id
        self._site.send_to(request.asker.id, GroupMessage(STATE, encode_state(part)), token, source)
        return None

    def link_gone(self, link: Link) -> None:
        """A receiver is gone."""
        for request in [request for request in self._requests.values() if request.link is link]:
            self._give_up(request, "the application has gone")

    def members_changed(self, ids: Collection[MemberId]) -> None:
        """Who is not there does not ask any more."""
        for name in [name for name, request in self._requests.items() if request.asker.id not in ids]:
            del self._requests[name]

    # Within

    def _application(self) -> Link | None:
        address = self._where()
        for link in address.consumers if address is not None else ():
            if not (link.connection.role.is_between_interiors or link.proxy or link in self._asking):
                return link
        return None

    def _poll_later(self) -> None:
        if not self._polls:
            self._polls = True
            self._later(POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        """Between turns: what is delivered is with the receivers, nothing else is."""
        self._polls = False
        waiting = [request for request in self._requests.values() if request.link is None]
        if not waiting:
            return
        positions = self._site.positions()
        left = LOOKED_AT
        for request in waiting:
            wanted = request.ask.positions.items()
            left -= len(wanted)
            if left < 0 and request is not waiting[0]:
                self._poll_later()
                break
            # The next time it is the last one.
            self._requests[request.name] = self._requests.pop(request.name)
            if self._site.in_contact(request.asker.site) and all(
                positions.get(origin, 0) >= number or not self._site.awaits(origin)
                for origin, number in wanted
            ):
                self._put(request, positions)
            else:
                self._poll_later()

    def _put(self, request: _Request, positions: Positions) -> None:
        address, link = self._where(), self._application()
        if address is None or link is None:
            self._give_up(request, "the application has gone")
            return
        request.link, request.positions = link, positions
        message = Message(
            message_annotations={Symbol(REQUEST): True},
            properties=Properties(
                message_id=request.name,
                subject=SUBJECT,
                reply_to=self._prefix + request.name,
                correlation_id=request.name,
            ),
            body_kind=BodyKind.VALUE,
        )
        self._receivers.give(address, [encode_message(message)], [link])

    def _await(self, request: _Request) -> None:
        """Timers do not hold a request, which may have many positions."""
        of = ref(request)
        when_silent(self._later, ANSWER_SECONDS, partial(self._answers, of), partial(self._overdue, of))

    def _answers(self, of: ref[_Request]) -> int | None:
        request = of()
        return request.answers if request is not None and request.name in self._requests else None

    def _overdue(self, of: ref[_Request]) -> None:
        request = of()
        if request is not None and request.name in self._requests:
            reason = (
                "it lacks what others have" if request.link is None else "the application does not answer"
            )
            self._give_up(request, f"{reason} within {ANSWER_SECONDS:g} s")

    def _give_up(self, request: _Request, reason: str) -> None:
        del self._requests[request.name]
        self._refuse(request, reason)

    def _refuse(self, request: _Request, reason: str) -> None:
        """Who hears nothing asks another one after a while."""
        no = encode_state(No(request.ask.request, reason))
        self._site.answer(request.asker.id, GroupMessage(STATE, no))


def _has_more(payload: bytes) -> bool:
    """Only what comes before the body is looked at: that may be large, and each byte of it a value."""
    try:
        code, at = section_at(payload, 0, len(payload))
        while 0 < code < _APPLICATION_PROPERTIES:
            code, at = section_at(payload, skip_value(payload, at, len(payload)), len(payload))
        if code != _APPLICATION_PROPERTIES:
            return False
        section = payload[at : skip_value(payload, at, len(payload))]
        properties = decode(section)[0]
    except (IncompleteError, SectionError, DecodeError):
        return False
    return isinstance(properties, dict) and properties.get(MORE) is True
