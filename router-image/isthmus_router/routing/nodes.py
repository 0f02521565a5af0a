"""Other routers of the network, as far as they are known, and their places (mask bits) in the table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .linkstate import LinkState
from .mobile import AddressRoom, RemoteAddresses

MAX_ROUTERS = 128
"""Including this one, which has mask bit 0."""


@dataclass(slots=True)
class Request:
    """Pacing of a request that may get lost: each unanswered one doubles the wait, up to ``longest``."""

    shortest: float
    longest: float
    _sent: float = float("-inf")
    _attempts: int = 0

    @property
    def due(self) -> float:
        """When the request may be sent (again)."""
        return self._sent + min(self.shortest * 2.0 ** max(self._attempts - 1, 0), self.longest)

    def sent(self, now: float) -> None:
        """One more went out."""
        self._sent = now
        self._attempts = min(self._attempts + 1, 16)

    def answered(self) -> None:
        """The answer is here; whatever is asked next need not wait for this request."""
        self._sent, self._attempts = float("-inf"), 0

    def encourage(self) -> None:
        """The other side is known to be alive: wait no longer than ``shortest``."""
        self._attempts = min(self._attempts, 1)


@dataclass(slots=True)
class RouterNode:
    """Another router: what it said last, and what is still to be asked."""

    id: str
    index: int
    link: int
    """The control link on which it was first named: routers share the table by these."""
    link_state_request: Request
    mobile_request: Request
    version: int = 0
    instance: int | None = None
    """Number of its current life; None while it was only mentioned by others."""
    previous_instance: int | None = None
    link_state: LinkState | None = None
    """None until it answered, after a restart, and when it was not heard of for too long."""
    confirmed: bool = False
    """Whether the link state was received or advertised since the router was last unreachable."""
    last_seen: float = 0.0
    """When its link state was confirmed last, by itself."""
    announced_link_state: int | None = None
    """Sequence of its link state, by its last advertisement; None before one came."""
    announced_mobile: int | None = None
    mobile: RemoteAddresses = field(default_factory=RemoteAddresses)
    updating: int = 0
    """Updates of its addresses that wait to be read, or are being read."""
    asks_link_state: bool = False
    """It asked for ours and has not been answered."""
    asks_mobile: int | None = None
    """It asked for our addresses, having this sequence, and has not been answered."""
    regressions: dict[int, int] = field(default_factory=dict)
    """How many advertisements in a row were behind what is known, by the control link on which they came."""
    reachable: bool = False
    flush_at: float | None = None
    """When its addresses are to be forgotten, unless it becomes reachable again."""
    forget_at: float | None = None
    """When it loses its place in the table, unless somebody refers to it again."""
    last_topology_change: float = 0.0

    @property
    def wants_link_state(self) -> bool:
        """Whether a newer link state is to be had."""
        if self.link_state is None:
            return True
        return self.announced_link_state is not None and self.announced_link_state > self.link_state.sequence

    @property
    def wants_mobile(self) -> bool:
        """Whether its addresses are unknown, or not those it advertises.

        Not asked before its link state is here: it may not know us yet, and skupper-router logs that.
        """
        if self.updating:
            return False
        if self.mobile.doubtful:
            return True
        if self.announced_mobile is None:
            return self.link_state is not None
        return self.announced_mobile != self.mobile.sequence

    @property
    def have_mobile(self) -> int:
        """What to claim in a request; if we seem to be ahead, what we have is of no use."""
        announced = self.announced_mobile
        if self.mobile.doubtful:
            return 0
        return self.mobile.sequence if announced is None or announced > self.mobile.sequence else 0

    def deadlines(self) -> Iterator[float]:
        """When its addresses are to be flushed, or the next request is to be sent to it."""
        if self.flush_at is not None:
            yield self.flush_at
        if self.reachable and self.wants_link_state:
            yield self.link_state_request.due
        if self.reachable and self.wants_mobile:
            yield self.mobile_request.due


class RouterTable:
    """Known routers by id. Mask bits are the lowest free ones from 1.

    A router that is heard directly always has a place. When the table is full, the others share what is left by the
    control link on which they were named: a link that has fewer takes a place from the one that has most. Of one link,
    a router that speaks for itself goes before those that others only name.
    """

    def __init__(self, retry: float, longest_retry: float) -> None:
        self._retry = retry
        self._longest_retry = longest_retry
        self.room = AddressRoom()
        self._nodes: dict[str, RouterNode] = {}

    def __iter__(self) -> Iterator[RouterNode]:
        return iter(list(self._nodes.values()))

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, router: object) -> bool:
        return router in self._nodes

    def get(self, router: str) -> RouterNode | None:
        """The node of that id, if known."""
        return self._nodes.get(router)

    def to_displace(
        self, link: int, heard: Collection[str], *, direct: bool, speaks: bool
    ) -> RouterNode | None:
        """Which router gives its place to another one that is named on `link`, in a full table; None: no router.

        `heard` are routers heard directly. `direct`: so is the other one; `speaks`: a message of its own came.
        """
        groups: dict[int, list[RouterNode]] = {}
        for node in self._nodes.values():
            if node.id not in heard:
                groups.setdefault(node.link, []).append(node)
        if not groups:
            return None
        most = max(groups, key=lambda at: len(groups[at]))
        own = groups.get(link, [])
        if direct or len(own) + 1 < len(groups[most]):
            return _least_known(groups[most])
        named = [node for node in own if node.instance is None]
        return named[-1] if speaks and named else None

    def remove(self, node: RouterNode) -> None:
        """The router loses its place."""
        del self._nodes[node.id]

    def add(self, router: str, link: int) -> RouterNode | None:
        """Give a router that is named on `link` a place; None if there is none left."""
        taken = {node.index for node in self._nodes.values()}
        index = next((bit for bit in range(1, MAX_ROUTERS) if bit not in taken), None)
        if index is None:
            return None
        node = RouterNode(
            router,
            index,
            link,
            link_state_request=Request(self._retry, self._longest_retry),
            mobile_request=Request(self._retry, self._longest_retry),
            mobile=RemoteAddresses(self.room),
        )
        self._nodes[router] = node
        return node

    def forget_unreferenced(self, heard: Iterable[str], delay: float, now: float) -> list[RouterNode]:
        """Remove routers without link state and path that nobody named for ``delay`` seconds; returns them.

        ``heard`` are routers heard directly, which are kept.
        """
        referenced = set(heard)
        candidates = []
        for node in self:
            if node.link_state is not None:
                referenced.update(node.link_state.peers)
            if node.link_state is None and not node.reachable:
                candidates.append(node)
            else:
                node.forget_at = None
        forgotten = []
        for node in candidates:
            if node.id in referenced:
                node.forget_at = None
            elif node.forget_at is None:
                node.forget_at = now + delay
            elif now >= node.forget_at:
                del self._nodes[node.id]
                forgotten.append(node)
        return forgotten


def _least_known(nodes: Sequence[RouterNode]) -> RouterNode:
    """The latest of those that others only name, else the latest of all."""
    return next((node for node in reversed(nodes) if node.instance is None), nodes[-1])
