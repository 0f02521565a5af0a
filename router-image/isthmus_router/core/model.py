"""Connections and links.

They and addresses (`address.py`) hold state and answer questions about it; `router.RouterCore` changes it. A driver
may keep its own handle in the `io` attributes; nothing here looks at them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from isthmus_router.core.access import Access
from isthmus_router.core.address import Purpose, purpose
from isthmus_router.core.balance import RELUCTANT
from isthmus_router.core.roles import Role, StripAnnotations
from isthmus_router.core.terms import (
    CAPABILITY_STREAMING_LINKS,
    RESERVED_PREFIX,
    Condition,
    Direction,
    LinkType,
    Terminus,
)
from isthmus_router.message.sections import DEFAULT_PRIORITY

if TYPE_CHECKING:
    from isthmus_router.core.address import Address
    from isthmus_router.core.guard import MessageGuard
    from isthmus_router.core.nodes import Hop
    from isthmus_router.core.routes import Route

PRIORITIES = 10
WHOLE_MESSAGE_BYTES = 1024 * 1024
MOST_UNREAD_BYTES = 64 * 1024 * 1024
"""Of messages of the router itself that wait on one link until the peer reads them."""
"""Complete messages up to this size are forwarded in one piece."""
LEAST_CAPACITY_FOR_BATCHES = 64
_NEVER = 1 << 30


class Connection:
    """An open AMQP connection."""

    __slots__ = (
        "access",
        "active",
        "annotates",
        "client",
        "collected_bytes",
        "container",
        "control_in",
        "control_out",
        "cost",
        "crowded",
        "data_links",
        "endpoint",
        "grant",
        "group_correlator",
        "group_ordinal",
        "hop",
        "id",
        "idle_streams",
        "incoming",
        "io",
        "kept_bytes",
        "last_delivery",
        "leaving",
        "link_capacity",
        "links",
        "max_message_size",
        "mesh_id",
        "name",
        "offered_capabilities",
        "open_properties",
        "opened_at",
        "own_cost",
        "parked_bytes",
        "parked_on",
        "problem",
        "properties",
        "proven_mesh_id",
        "relayed_waiting",
        "role",
        "router_links_in",
        "router_links_out",
        "standing",
        "strips_in",
        "strips_out",
        "superseded",
        "tls_ordinal",
        "unbounded",
        "user",
        "waiting_bytes",
    )

    def __init__(
        self,
        connection_id: int,
        role: Role,
        *,
        incoming: bool,
        name: str,
        endpoint: str = "",
        container: str = "",
        cost: int = 1,
        own_cost: int = 1,
        link_capacity: int = 250,
        max_message_size: int = 0,
        strip: StripAnnotations = StripAnnotations.BOTH,
        tls_ordinal: int | None = None,
        group_correlator: str | None = None,
        group_ordinal: int | None = None,
        user: str | None = None,
        proven_mesh_id: str | None = None,
        properties: Mapping[str, object] | None = None,
        offered_capabilities: frozenset[str] = frozenset(),
        access: Access | None = None,
        client: str | None = None,
        opened_at: float = 0.0,
        io: Any = None,
    ) -> None:
        self.id = connection_id
        self.role = role
        self.incoming = incoming
        self.name = name
        self.endpoint = endpoint
        """Name of the listener or connector that it belongs to."""
        self.container = container
        self.cost = cost
        """The larger one of what its two ends say."""
        self.own_cost = own_cost
        self.link_capacity = link_capacity
        self.max_message_size = max_message_size
        """Most bytes of a message on any IN link that the peer attaches from now on; 0: no limit."""
        self.tls_ordinal = tls_ordinal
        """Generation of this router's credentials that it was made with; None without TLS."""
        self.group_correlator = group_correlator
        self.group_ordinal = group_ordinal
        """What the connecting router says of the group that the connection belongs to."""
        self.user = user
        self.client = client
        """Who the peer is, where clients or routers share something; None: nobody in particular."""
        self.properties = properties or {}
        self.offered_capabilities = offered_capabilities
        self.access = access or Access()
        """What the peer, unless it is a router, may use of the router itself."""
        self.opened_at = opened_at
        self.io = io
        self.links: set[Link] = set()
        self.standing: dict[Link, None] = {}
        """Those that stand, few of many, in the order in which they were attached."""
        self.leaving = False
        """It has ended; some of its links may still be there, and go step by step. Nothing is attached on it."""
        self.parked_bytes = 0
        """Of all OUT links together."""
        self.relayed_waiting = 0
        """Messages of consumers inside the router that wait on all OUT links together."""
        self.last_delivery: int | None = None
        """The second in which a delivery on one of its links was seen last (`ActivityMonitor`)."""
        self.waiting_bytes = 0
        """Of a client: what waits anywhere of the messages on all of its IN links together."""
        self.crowded = False
        """That is too much: none of its IN links is read."""
        self.parked_on: dict[Link, None] = {}
        """OUT links with pre-settled messages that wait; some may have none any more."""
        self.unbounded = 0
        """Deliveries on all OUT links together that no sender's credit bounds (copies of multicast messages, and
        pre-settled messages to receivers that settle them), and that may be unsettled; at times all unsettled ones are
        counted anew."""
        self.kept_bytes = 0
        """Of messages that are kept to be sent again, if their receiver releases them."""
        self.collected_bytes = 0
        """Of messages for consumers inside this router that have begun and not ended."""
        self.grant: Any = None
        """What the policy allows the peer (`policy.grant.Grant`); None: everything."""
        self.problem: str | None = None
        """Why the connection, though open, does not serve its purpose."""
        self.active = True
        """False for an edge uplink kept in reserve, and for what is not, or no longer, the way to a neighbour."""
        self.superseded = False
        """Another connection takes over from this one, or has done so; it goes on with what it has under way."""
        self.mesh_id = proven_mesh_id
        self.proven_mesh_id = proven_mesh_id
        """Of an edge that has shown the key of its mesh."""
        between_routers = role.is_between_routers
        self.strips_in = not between_routers and strip.strips_in
        self.strips_out = not between_routers and strip.strips_out
        self.annotates = between_routers or not strip.strips_out
        """Whether messages sent here start with the router annotation section."""
        self.control_in: Link | None = None
        self.control_out: Link | None = None
        self.router_links_in = 0
        self.router_links_out = 0
        """Inter-router links attached so far, by direction: their order is their priority."""
        self.data_links: list[Link | None] = [None] * PRIORITIES
        """OUT links for messages to another interior router, by priority."""
        self.hop: Hop | None = None
        """The way to the neighbour that it belongs to, used for it or not."""
        self.idle_streams: deque[Link] = deque()
        """OUT links for streaming deliveries that carry none just now, oldest first."""

    @property
    def proven_user(self) -> str | None:
        """The user that a client has proven to be; None for anonymous clients and for routers."""
        return self.user if self.user and self.client == f"user {self.user}" else None

    @property
    def may_use_flow_records(self) -> bool:
        """Whether a link leads to an address of flow records, or a message on it can."""
        return any(
            purpose(address) is Purpose.FLOW_RECORDS if address else link.incoming
            for link in self.links
            for address in ((link.target if link.incoming else link.source).address,)
        )

    def is_of_same_edge(self, other: Connection) -> bool:
        """Whether this edge connection and another one are certain to be of one edge router.

        Both have the same container and mesh. Messages show the mesh id to others, so an edge that has proven its mesh
        on one connection has to prove it on the other; of other edges the users are the same.
        """
        mesh_id, proofs = self.mesh_id, (self.proven_mesh_id, other.proven_mesh_id)
        if mesh_id is None or mesh_id != other.mesh_id or self.container != other.container:
            return False
        return proofs == (mesh_id, mesh_id) if mesh_id in proofs else self.user == other.user

    @property
    def takes_streams(self) -> bool:
        """Whether a delivery that still arrives should go to this peer on a link of its own."""
        return CAPABILITY_STREAMING_LINKS in self.offered_capabilities

    @property
    def control_links(self) -> tuple[Link | None, Link | None]:
        """Those between interior routers, as far as they are attached."""
        return self.control_in, self.control_out

    @property
    def under_way(self) -> bool:
        """Whether there is a delivery on it that waits, arrives, or has no outcome yet."""
        return any(
            (link.unsettled and not link.is_lost) or link.parked or link.stream is not None
            for link in self.links
        )

    @property
    def has_routed_links(self) -> bool:
        """Whether links are routed over it."""
        return any(link.routed for link in self.links)

    def __repr__(self) -> str:
        return f"<Connection {self.id} {self.role.label} {self.container or self.name}>"


class Link:
    """An attached (or attaching) link.

    For OUT links, `unsettled` maps the driver's outgoing delivery handle to the delivery in flight and `parked`
    holds deliveries waiting for credit; for IN links `unsettled` maps the incoming handle.
    """

    __slots__ = (
        "accepted",
        "activity",
        "address",
        "allowance",
        "answered",
        "attached_at",
        "auto_link",
        "begins_early",
        "boundless",
        "by_peer",
        "capacity",
        "connection",
        "credit_batch",
        "credit_due",
        "credit_recalled",
        "delayed_1_second",
        "delayed_10_seconds",
        "deliveries",
        "direction",
        "drained",
        "dropped_presettled",
        "guard",
        "histograms",
        "id",
        "io",
        "max_message_size",
        "modified",
        "name",
        "on_answered",
        "on_delivery",
        "on_detached",
        "on_refused",
        "parked",
        "parked_bytes",
        "parked_dropped",
        "parked_presettled",
        "partner",
        "paused",
        "peer_detached",
        "place",
        "presettled",
        "priority",
        "proxy",
        "queue",
        "reachable",
        "rejected",
        "released",
        "replenish_on_arrival",
        "resends",
        "returned",
        "route",
        "routed",
        "routes",
        "sends_settled",
        "sends_unsettled",
        "sent_parked",
        "session",
        "settles_second",
        "source",
        "stream",
        "streamed_to",
        "streaming",
        "target",
        "targeted",
        "type",
        "unsettled",
        "whole_bytes",
    )

    def __init__(
        self,
        link_id: int,
        connection: Connection,
        direction: Direction,
        name: str,
        *,
        link_type: LinkType = LinkType.ENDPOINT,
        source: Terminus,
        target: Terminus,
        io: Any = None,
        attached_at: float = 0.0,
    ) -> None:
        self.id = link_id
        self.connection = connection
        self.direction = direction
        self.name = name
        self.type = link_type
        self.source = source
        self.target = target
        self.io = io
        self.attached_at = attached_at
        self.by_peer = False
        """The peer attached it."""
        self.address: Address | None = None
        self.place = 0
        """On an OUT link: where it is in a route that has all consumers of the address."""
        self.capacity = connection.link_capacity
        self.credit_due = 0
        """Credit of an IN link that is used up and settled, to be granted again by the batch."""
        self.credit_batch = _batch(self.capacity)
        self.max_message_size = 0
        """Most bytes of a message: on an IN link what is taken, on an OUT link what the receiver takes; 0: any."""
        self.whole_bytes = WHOLE_MESSAGE_BYTES
        """As many bytes of an incoming message are more than a message in one piece has here."""
        self.priority = DEFAULT_PRIORITY
        self.auto_link = False
        """True for links this router opened to a container, as an auto-link says."""
        self.proxy = False
        """True for links the edge module opened on behalf of local clients."""
        self.streaming = False
        """True for links that carry one streaming delivery at a time."""
        self.streamed_to: str | None = None
        """Of an OUT link for these: the key of the address of the last one."""
        self.begins_early = False
        """On an IN link: a delivery may have to be passed on before much of it is here."""
        self.replenish_on_arrival = connection.role.is_between_routers
        self.boundless = False
        """On an OUT link: the receiver has given more credit than the engine's numbers hold."""
        self.returned = (0, 0)
        """On an OUT link: credit that drains have given back to the receiver, and until when, by the router's clock in
        microseconds, the receiver may not have seen that."""
        self.sends_unsettled = False
        """On an OUT link: the receiver asked for unsettled deliveries, however they come in."""
        self.sends_settled = False
        """On an OUT link: the receiver asked for settled deliveries (snd-settle-mode settled)."""
        self.resends = False
        """On an IN link: what a receiver releases is sent to another one."""
        self.settles_second = False
        """On an IN link: this end settles only after the sender has, who has seen the outcome by then
        (rcv-settle-mode second)."""
        self.on_delivery: Callable[[Link, bytes], None] | None = None
        """On an IN link: whole messages go to this in-process consumer instead of being routed."""
        self.on_answered: Callable[[Link], None] | None = None
        """On a link this router opened: the peer answered the attach."""
        self.on_refused: Callable[[Link, Condition], None] | None = None
        """On a link this router opened: the peer closed it with an error."""
        self.on_detached: Callable[[Link, Condition | None, bool], None] | None = None
        """On a routed link: the peer detached it, with a condition or without, and closed it or not; the core says
        what is to be answered, and when."""
        self.routed = False
        """All that comes on it passes as it is to its partner, or nowhere if that is gone."""
        self.answered = False
        """On a routed link: it is attached from end to end."""
        self.allowance: Any = None
        """On a routed link: the unsettled deliveries of its client, and how many there may be."""
        self.partner: Link | None = None
        """The other half of a routed link in this router, of the other direction."""
        self.peer_detached = False
        """On a routed link: its peer has detached it, and the router has not answered."""
        self.credit_recalled = 0
        """On a routed IN link: credit that the receiver took back, and that the sender may have used before it knew."""
        self.targeted = False
        """On an IN link from a client: its target address alone decides where deliveries go, by `route`."""
        self.route: Route | None = None
        """On an IN link with a target: where its deliveries go."""
        self.reachable: bool | None = False
        """On such a link: whether they find anybody, by the last review of the address; None: the next one has to say
        it, whatever it finds."""
        self.guard: MessageGuard | None = None
        """On an IN link from a client: what is looked at in its messages."""
        self.routes: dict[bytes, Route] = {}
        """On other IN links: where deliveries go, by annotation section or `to`."""
        self.unsettled: dict[Any, Any] = {}
        """By the key of the delivery: what the kernel knows of it."""
        self.parked: deque[Any] = deque()
        self.parked_presettled: deque[Any] = deque()
        """Those of the parked deliveries that are pre-settled."""
        self.queue: Any = None
        """What the kernel records of all parked deliveries together; None before the first one."""
        self.parked_dropped = 0
        """Places in `parked` whose delivery was dropped to make room."""
        self.parked_bytes = 0
        """Of an IN link: its messages parked anywhere; of an OUT link: those parked on it that no
        sender answers for (pre-settled, or the sender is gone)."""
        self.sent_parked: dict[Any, None] = {}
        """Messages of this IN link that are parked on OUT links, the oldest first."""
        self.drained = False
        """On an OUT link: the receiver asked for its credit back, or had none when a flow came last, and takes no more
        for now. On a routed IN link: its sender has been asked, and has not given all back."""
        self.paused = False
        """An IN link that is not read for now: too much of it is parked; of a routed one, there is no credit or room
        beyond for what has come."""
        self.stream: Any = None
        """The delivery that is being passed on while it still arrives."""
        self.session: Any = None
        """The driver's handle of the session."""
        self.deliveries = 0
        self.presettled = 0
        self.dropped_presettled = 0
        self.accepted = 0
        self.rejected = 0
        self.released = 0
        self.modified = 0
        self.activity: Any = None
        """What the driver has seen it do lately; None before it has looked."""
        self.histograms: Any = None
        """Sizes and latencies of its deliveries of late; None when there were none."""
        self.delayed_1_second = 0
        self.delayed_10_seconds = 0
        """Deliveries that took longer than that to settle; each counts once."""

    @property
    def is_lost(self) -> bool:
        """Whether the other half of a routed link is gone: what is unsettled concerns nobody any more."""
        return self.routed and self.partner is None

    @property
    def stands(self) -> bool:
        """Whether other routers find this one, and are found, by the link: one for control, for a priority of messages
        between interior routers, or on an uplink all that are not for one address."""
        if self.type is not LinkType.ENDPOINT:
            return not self.streaming
        if not self.proxy:
            return False
        address = (self.source if self.incoming else self.target).address
        return address is None or address.startswith(RESERVED_PREFIX)

    def note_standing(self) -> None:
        """`type`, `proxy` or `streaming` of the link has been set."""
        if self.stands:
            self.connection.standing[self] = None
        else:
            self.connection.standing.pop(self, None)

    def set_capacity(self, capacity: int) -> None:
        """Change the most credit an IN link grants; to be called before it grants any."""
        self.capacity = capacity
        self.credit_batch = _batch(capacity)

    def limit_size(self, most: int) -> None:
        """Take messages of at most this many bytes (0: any) on an IN link; to be called before it is answered."""
        self.max_message_size = most
        self.whole_bytes = min(most + 1, WHOLE_MESSAGE_BYTES) if most else WHOLE_MESSAGE_BYTES

    def stop_credit(self) -> None:
        """An IN link grants no more from now on."""
        self.capacity = 0
        self.credit_batch = _NEVER

    @property
    def incoming(self) -> bool:
        """Whether deliveries arrive here."""
        return self.direction is Direction.IN

    @property
    def waiting(self) -> int:
        """Deliveries that wait to be sent on this OUT link."""
        return len(self.parked) - self.parked_dropped

    def load(self) -> int:
        """Deliveries under way on this OUT link: sent and unsettled, or still waiting to be sent."""
        return len(self.unsettled) + self.waiting

    def burden(self) -> int:
        """What counts when the least loaded of several consumers is chosen: those that let deliveries wait come after
        those that take them, those at their capacity after both."""
        load = self.load()
        if load >= self.capacity:
            return load + 2 * RELUCTANT
        return load + RELUCTANT if self.parked or self.drained else load

    def __repr__(self) -> str:
        return f"<Link {self.id} {self.direction} {self.type} {self.name} on {self.connection.id}>"


def _batch(capacity: int) -> int:
    """How many credits of a link are renewed at once; where there are few, each as soon as it is used up."""
    return capacity // 8 if capacity >= LEAST_CAPACITY_FOR_BATCHES else 1
