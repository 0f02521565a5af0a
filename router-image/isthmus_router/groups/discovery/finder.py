"""Rounds of discovery: everybody is asked who is there, and who answers is told of.

A round asks once; membership starts another while it lacks answers, as datagrams are lost and hosts come up later.
Every member answers who wants to join; who looks for other views gets no answer from its own. A member that
leaves answers nobody, so that it is not merged back.

Source: the logical address design (discovery request and response).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from isthmus_router.groups.announcements import Discover, Found, VersionMismatchError
from isthmus_router.groups.discovery.ways import Ways
from isthmus_router.groups.frames import FrameError, Kind, encode_frame
from isthmus_router.groups.identity import NOBODY, GroupName, MemberId, MemberInfo
from isthmus_router.groups.resolver import Resolver
from isthmus_router.groups.views import View, ViewId

MOST_ANSWERS = 2_000
WORTH = 2.0
"""Seconds after which nobody waits for an answer any more."""


class Answer(NamedTuple):
    """Of one member of the group."""

    info: MemberInfo
    is_member: bool
    """Of a view; else it is looking for one itself."""
    view_id: ViewId | None
    coordinator: MemberId | None
    """Of that view; frames can be sent to it."""


class FinderUser(Protocol):
    """Who wants to know; membership, and who logs."""

    def found(self, now: float, answers: Sequence[Answer]) -> None:
        """Another answer came: all of this round so far."""

    def collision(self, now: float, domain: str, info: MemberInfo) -> None:
        """Another domain has members of a site with the same name in a group with the same name."""

    def version_mismatch(self, now: float, sender: MemberId, version: int) -> None:
        """Somebody speaks another version of the protocol."""


class Finder:
    """Asks and answers for one member of one group."""

    def __init__(self, resolver: Resolver, ways: Ways, user: FinderUser) -> None:
        self._resolver = resolver
        self._ways = ways
        self._user = user
        self._view: View | None = None
        self._leaving = False
        self._answers: dict[MemberId, Answer] = {}

    def find(self, now: float, *, initial: bool = True) -> None:
        """Start a round: to join, or (not `initial`) to look for other views of the group."""
        if self._leaving:
            return
        self._answers.clear()
        resolver = self._resolver
        view = None if self._view is None else self._view.id
        body = Discover(resolver.group, resolver.self_info, initial, view).encode()
        self._ways.ask(now, encode_frame(Kind.DISCOVER, resolver.self_info.id, NOBODY, body), worth=WORTH)

    def view_installed(self, view: View) -> None:
        """What is answered from now on."""
        self._view = view

    def leave(self) -> None:
        """Nothing is asked or answered any more."""
        self._leaving = True

    def on_resolved(self, now: float, host: str, addresses: Sequence[str]) -> None:
        """A DNS name was looked up."""
        self._ways.on_resolved(now, host, addresses)

    def on_gossip_members(self, now: float, infos: Sequence[MemberInfo]) -> None:
        """A gossip router has said whom it knows."""
        self._resolver.suggest(now, infos)
        self._ways.on_gossip_members(now, infos)

    def on_frame(
        self, now: float, kind: Kind, sender: MemberId, frame: bytes, *, by_multicast: bool = False
    ) -> None:
        """DISCOVER or FOUND. Raises FrameError."""
        if self._leaving or sender == self._resolver.self_info.id:
            return
        try:
            match kind:
                case Kind.DISCOVER:
                    self._on_discover(now, sender, Discover.decode(frame), by_multicast)
                case Kind.FOUND:
                    self._on_found(now, sender, Found.decode(frame))
                case _:
                    raise ValueError(f"not of discovery: {kind.name}")
        except VersionMismatchError as error:
            self._user.version_mismatch(now, sender, error.version)

    def _on_discover(self, now: float, sender: MemberId, discover: Discover, by_multicast: bool) -> None:
        _check(sender, discover.asker)
        if not self._is_ours(now, discover.group, discover.asker):
            return
        resolver, view = self._resolver, self._view
        resolver.learn(now, discover.asker, own_word=not by_multicast)
        if not discover.initial and view is not None and view.id == discover.view:
            return
        body = Found(
            resolver.group,
            resolver.self_info,
            None if view is None else view.id,
            None if view is None else view.coordinator,
        ).encode()
        resolver.send(now, sender, encode_frame(Kind.FOUND, resolver.self_info.id, sender, body))

    def _on_found(self, now: float, sender: MemberId, found: Found) -> None:
        _check(sender, found.info)
        if not self._is_ours(now, found.group, found.info):
            return
        self._resolver.learn(now, found.info, own_word=True)
        if found.coordinator is not None:
            self._resolver.learn(now, found.coordinator, own_word=False)
        if len(self._answers) >= MOST_ANSWERS and sender not in self._answers:
            return
        coordinator = None if found.coordinator is None else found.coordinator.id
        is_member = found.view is not None
        self._answers[sender] = Answer(found.info, is_member, found.view, coordinator)
        self._user.found(now, list(self._answers.values()))

    def _is_ours(self, now: float, group: GroupName, info: MemberInfo) -> bool:
        own = self._resolver.group
        if group == own:
            return True
        self._resolver.counters.foreign += 1
        if (group.group, group.site) == (own.group, own.site):
            self._user.collision(now, group.domain, info)
        return False


def _check(sender: MemberId, info: MemberInfo) -> None:
    if info.id != sender:
        raise FrameError("discovery frame that speaks for another than its sender")
