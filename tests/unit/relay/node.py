"""A member of a site in a world: its streams and its relay, and all that they call, which writes down what happens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from isthmus_router.groups.batch import Batch, GroupMessage, decode_batch
from isthmus_router.groups.frames import Kind, decode_header, encode_frame
from isthmus_router.groups.identity import NOBODY, MemberId, MemberInfo, member_id
from isthmus_router.groups.streams.streams import Streams
from isthmus_router.groups.streams.user import StreamsSettings
from isthmus_router.groups.views import View, ViewId
from isthmus_router.relay.messages import BridgeKind
from isthmus_router.relay.relay import Relay
from isthmus_router.relay.settings import Endpoint, RelaySettings
from isthmus_router.relay.sites import GlobalView, SiteState

if TYPE_CHECKING:
    from tests.unit.relay.world import Site, World

LOCAL_DELAY = 0.0005


class CrashError(Exception):
    """The member is gone in the middle of what it did."""


class BridgeEnd:
    """A member's `BridgePort`."""

    def __init__(self, node: Node) -> None:
        self.node, self.world = node, node.world

    def dial(self, session: int, site: str, endpoint: Endpoint) -> None:
        self.world.dial(self.node, session, endpoint)

    def send(self, session: int, frame: bytes) -> None:
        node, kind = self.node, BridgeKind(frame[0])
        node.sent_frames.append(kind)
        if kind is BridgeKind.BATCH:
            node.hook("before_bridge_send")
        self.world.transmit(node, session, frame)
        if kind is BridgeKind.BATCH:
            node.hook("after_bridge_send")
        elif kind in (BridgeKind.HELLO, BridgeKind.HELLO_ACK):
            node.hook("in_handshake")
        elif kind is BridgeKind.ACK:
            node.hook("after_ack")

    def close(self, session: int, reason: str) -> None:
        self.world.close(self.node, session)

    def backlog(self, session: int) -> int:
        return 0

    def splice(self, session: int, endpoint: Endpoint, first: bytes) -> None:
        self.world.splice(self.node, session, endpoint, first)


class Node:
    """A member; its `MemberPort`, and its relay's user."""

    def __init__(self, world: World, site: Site, name: str, settings: RelaySettings) -> None:
        self.world, self.site, self.name = world, site, name
        self.id = member_id(world.random.randbytes(16), settings.site)
        self.info = MemberInfo(self.id, name, ())
        self.certificate = (settings.site,)
        self.alive = True
        self.view = View(ViewId(0, self.id), (self.info,))
        self.deliveries: dict[MemberId, list[int]] = defaultdict(list)
        self.gaps: dict[MemberId, list[tuple[int, int, int]]] = defaultdict(list)
        self.states: list[tuple[float, str, SiteState]] = []
        self.views: list[GlobalView] = []
        self.unicasts: list[tuple[Kind, MemberId, bytes]] = []
        self.left = False
        self.backlogs: dict[MemberId, int] = {}
        """Bytes that wait for members of its site."""
        self.is_behind: Callable[[], bool] = lambda: False
        self.events: list[tuple[str, dict[str, object]]] = []
        self.sent_frames: list[BridgeKind] = []
        self.published = 0
        self.safe = 0
        self.rooms = 0
        self.accepted = count(-1, -1)
        self.due = float("inf")
        relays = StreamsSettings(relays=settings.relays)
        rng = Random(world.random.random())
        self.streams = Streams(self.id, site.name, relays, self, self, rng)
        self.relay = Relay(
            self.info, settings, self.streams, BridgeEnd(self), self, self, Random(world.random.random())
        )

    def hook(self, point: str, site: str = "") -> None:
        """Where it may crash."""
        self.world.hook(self, point, site)

    def kept(self, origin: Node) -> int:
        """Batches of an origin in its log."""
        log = self.streams.log(origin.id)
        return log.count if log else 0

    def publish(self, messages: int = 1, targets: tuple[str, ...] | None = None, size: int = 0) -> None:
        batch = []
        for _ in range(messages):
            batch.append(GroupMessage("a", self.published.to_bytes(4, "big") + bytes(size)))
            self.published += 1
        self.streams.publish(self.world.now, batch, targets)

    # MemberPort

    def send(self, now: float, to: MemberId, kind: Kind, body: bytes) -> None:
        node = self.world.by_id.get(to)
        if node is not None and node.site is self.site and self.world.together(self, node):
            frame = encode_frame(kind, self.id, NOBODY, body)
            self.world.fifo(self, node, LOCAL_DELAY, lambda: node.on_frame(frame))

    def send_all(self, now: float, kind: Kind, body: bytes) -> None:
        site = decode_batch(body).site if kind is Kind.BATCH else self.site.name
        if site != self.site.name:
            self.hook("before_local_dissem", site)
        for member in self.view.ids:
            if member != self.id:
                self.send(now, member, kind, body)
        if site != self.site.name:
            self.hook("after_local_dissem", site)

    def on_frame(self, frame: bytes) -> None:
        kind, sender, _ = decode_header(frame)
        if sender not in self.view:
            return
        if kind in (Kind.SITES, Kind.SITE_ACKS, Kind.FORWARD, Kind.BEHIND):
            self.relay.on_frame(self.world.now, kind, sender, frame)
        else:
            self.streams.on_frame(self.world.now, kind, sender, frame)

    # RelayUser

    def delivered(self, now: float, batch: Batch) -> None:
        numbers = self.deliveries[batch.origin]
        numbers += [int.from_bytes(message.payload[:4], "big") for message in batch.messages()]
        self.hook("before_relay", batch.site)
        self.relay.delivered(now, batch)
        self.hook("after_local_deliver", batch.site)

    def held(self, now: float, origin: MemberId, number: int) -> None:
        self.relay.held(now, origin, number)

    def protected(self, now: float, number: int) -> None:
        self.safe = number

    def relayed(self, origin: MemberId) -> float:
        return self.relay.relayed(origin)

    def elsewhere(self, number: int) -> int:
        return number

    def room_changed(self, now: float) -> None:
        self.rooms += 1

    def gap(self, now: float, origin: MemberId, site: str, first: int, last: int, lost: int) -> None:
        self.gaps[origin].append((first, last, lost))

    def site_changed(self, now: float, site: str, state: SiteState) -> None:
        self.states.append((now, site, state))

    def global_view(self, now: float, view: GlobalView) -> None:
        self.views.append(view)

    def forwarded(self, now: float, kind: Kind, source: MemberId, body: bytes) -> None:
        self.unicasts.append((kind, source, body))

    def backlog(self, member: MemberId) -> int:
        return self.backlogs.get(member, 0)

    def behind(self, now: float) -> bool:
        return self.is_behind()

    def relay_left(self, now: float) -> None:
        self.left = True

    def stranger(self, site: str, reason: str) -> None:
        self.log("stranger", site=site, reason=reason)

    def log(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))
