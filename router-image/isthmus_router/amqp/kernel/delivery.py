"""What the kernel remembers of deliveries under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isthmus_router.amqp.kernel.handles import handle, key
from isthmus_router.core.address import Address, SettlingConsumer
from isthmus_router.core.model import Link
from isthmus_router.core.nodes import PathLoad
from isthmus_router.core.receivers import Sink
from isthmus_router.message.sections import annotations_length

CHUNK_BYTES = 64 * 1024
"""Most that is passed on of a stream at once."""
STREAM_OUTGOING_HIGH = 128 * 1024
"""Bytes of a session that are not sent yet when a stream to one of its links waits."""


class Delivery:
    """An unsettled delivery: its incoming half and, once it was sent, its outgoing half."""

    __slots__ = ("arrived", "key", "link", "load", "lost_state")

    def __init__(self, link: Link | None, pn: Any, load: PathLoad | None, arrived: int) -> None:
        self.link = link
        """Where it came in; None when that link is gone or the router itself sent it."""
        self.key = key(pn)
        """What its incoming half is known by in `link.unsettled`."""
        self.load = load
        self.arrived = arrived
        """When it came in, by the router's clock (`Settlement.now`)."""
        self.lost_state = 0
        """The outcome of a stream that has no receiver (any more)."""

    @property
    def pn(self) -> Any:
        """The incoming half, the engine's."""
        return handle(self.key)


class Told(Delivery):
    """In the place of a delivery of whose state the sender has been told."""

    __slots__ = ("number", "out")

    def __init__(self, record: Delivery, out: Link | None = None, number: Any = 0) -> None:
        super().__init__(record.link, None, record.load, record.arrived)
        self.key = record.key
        self.out = out
        """Where its outgoing half is unsettled, known there by `number`; None if there is none (any more)."""
        self.number = number


class Followed(Told):
    """A delivery whose sender has been told how it stands with the receiver, and may settle it in view of that."""

    __slots__ = ()


class Announced(Told):
    """A delivery whose sender has been told the outcome, and is to settle next; then the receiver may (2.6.12)."""

    __slots__ = ("state",)

    def __init__(self, record: Delivery, state: int) -> None:
        super().__init__(record)
        self.state = state


class Kept(Delivery):
    """A delivery whose message is kept, to be sent to another receiver when one releases it."""

    __slots__ = ("address", "payload", "skip", "tried")

    def __init__(
        self, link: Link, pn: Any, load: PathLoad | None, arrived: int, payload: bytes, skip: int
    ) -> None:
        super().__init__(link, pn, load, arrived)
        self.payload = payload
        """As it came in; its annotation section has `skip` bytes."""
        self.skip = skip
        self.address: Address | None = None
        self.tried: list[Sink] = []
        """Receivers that have had it; few, and a set of them would take far more memory."""
        link.connection.kept_bytes += len(payload)

    def let_go(self, link: Link) -> None:
        """The message is kept no longer; `link` is the one on which it came."""
        link.connection.kept_bytes -= len(self.payload)
        self.payload = b""


class Passed:
    """A delivery on a routed link that is not settled yet."""

    __slots__ = ("arrived", "incoming", "outgoing", "settled", "size")

    def __init__(self, incoming: Any, outgoing: Any, arrived: int) -> None:
        self.incoming = incoming
        """What it is known by in `unsettled` of the IN link."""
        self.outgoing = outgoing
        """The same of the OUT link."""
        self.arrived = arrived
        self.size = 0
        """Bytes that have passed, counted while it arrives."""
        self.settled = False
        """The receiver has settled it before all of it was there."""


class Fanout(Delivery):
    """A multicast delivery: settled towards the sender when every copy is, with the worst outcome."""

    __slots__ = ("outcome", "parked", "pending", "size")

    def __init__(self, link: Link | None, pn: Any, arrived: int) -> None:
        super().__init__(link, pn, None, arrived)
        self.pending = 0
        self.outcome = 0
        self.parked = 0
        """Copies that are parked: they share their bytes."""
        self.size = 0
        """Bytes that they share."""


class Queue:
    """What waits for one outgoing link; another link gets all of it without a walk over the messages."""

    __slots__ = ("link", "part_of", "relayed", "relayed_bytes", "streams")

    def __init__(self, link: Link) -> None:
        self.link: Link | None = link
        """None: what has waited is given back."""
        self.part_of: Queue | None = None
        """The queue that this one has been joined to."""
        self.relayed = 0
        self.relayed_bytes = 0
        """Messages of consumers inside the router, and their bytes."""
        self.streams: dict[Waiting, Branch] = {}
        """The places of streams, in their order."""


def queue_of(link: Link) -> Queue:
    """Return the queue of an OUT link, which is made for the first message that waits."""
    queue: Queue | None = link.queue
    if queue is None:
        queue = link.queue = Queue(link)
    return queue


class Parked:
    """A whole message that waits for credit on an outgoing link."""

    __slots__ = ("dropped", "origin", "orphaned", "payload", "queue", "record", "relayed")

    def __init__(self, queue: Queue, payload: bytes, record: Delivery | None, origin: Link | None) -> None:
        self.queue = queue
        """The one that it was put into."""
        self.payload = payload
        self.record = record
        """None: pre-settled."""
        self.origin = origin
        self.dropped = False
        """Given up for others, with only its place in the queue left."""
        self.orphaned = False
        """No sender answers for it: the message counts against the bound of the link that it waits on."""
        self.relayed = False
        """A consumer inside the router has sent it: the message counts against other bounds (`inside.py`)."""

    @property
    def link(self) -> Link | None:
        """The link that it waits for; None: it is given back."""
        while (whole := self.queue.part_of) is not None:
            self.queue = whole
        return self.queue.link

    @property
    def body_size(self) -> int:
        """Bytes of the message without router annotations."""
        return len(self.payload) - annotations_length(self.payload, len(self.payload))


class Waiting:
    """The place in a `parked` queue of a stream that waits for the link."""

    __slots__ = ("dropped", "record", "stream")

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.record = stream
        self.dropped = False
        """Given up, with only its place in the queue left."""


class Hold:
    """In front of all messages of a `parked` queue: nothing behind it leaves before it is lifted."""

    __slots__ = ("link",)
    dropped = False
    record = None

    def __init__(self, link: Link) -> None:
        self.link = link
        """Where it is."""


class Branch:
    """One receiver of a stream."""

    __slots__ = ("claimed", "link", "pn", "prefix", "waiting")

    def __init__(self, link: Link, prefix: bytes) -> None:
        self.link = link
        self.prefix = prefix
        self.pn: Any = None
        """The outgoing delivery, once there was credit for it."""
        self.claimed = False
        self.waiting: Waiting | None = None
        """Its place in the queue of the link, until it has claimed that."""

    def claim(self) -> None:
        """The link is its own until it ends."""
        self.claimed = True
        self.waiting = None


class Collected:
    """What has arrived of a message, in parts: it is not moved when it grows, which leaves holes in the memory."""

    __slots__ = ("_parts", "most", "size")

    def __init__(self) -> None:
        self._parts: list[bytearray] = []
        self.size = 0
        self.most = 0
        """The largest message that its consumer takes, in bytes (0: any)."""

    def add(self, data: bytes | memoryview) -> None:
        """The next bytes."""
        if not self._parts or len(self._parts[-1]) >= CHUNK_BYTES:
            self._parts.append(bytearray())
        self._parts[-1] += data
        self.size += len(data)

    def take(self) -> bytes:
        """All of it, which is not kept any longer."""
        whole = b"".join(self._parts)
        self._parts.clear()
        self.size = 0
        return whole


class Stream:
    """A delivery that is passed on while it arrives."""

    __slots__ = (
        "branches",
        "collected",
        "consume",
        "consumer",
        "head",
        "kept",
        "link",
        "multicast",
        "pn",
        "record",
        "size",
        "skip",
        "to",
        "up_to_date",
    )

    def __init__(self, link: Link, pn: Any, head: bytes, record: Delivery | None) -> None:
        self.link = link
        self.pn = pn
        self.head = head
        """The first bytes, already taken from the sender to route by."""
        self.kept = 0
        """Bytes that it keeps until it has begun to be passed on, as counted for the sender's connection."""
        self.size = 0
        """Bytes taken from the sender so far."""
        self.skip = 0
        """Bytes of them that are its annotation section."""
        self.to: bytes | None = None
        """The address that it names itself; None: the target of its link is its address."""
        self.record = record
        """None: pre-settled."""
        self.multicast = False
        self.branches: list[Branch] = []
        self.consume: Callable[[bytes], None] | None = None
        """What gets the message, which is collected after all, as it is for this router itself."""
        self.consumer: SettlingConsumer | None = None
        """If that settles it later."""
        self.collected = Collected()
        self.up_to_date = False
        """All that has arrived is passed on: nothing can be done until more arrives."""

    def has_begun(self, out: Link) -> bool:
        """Whether there is a delivery of it on an OUT link."""
        return any(branch.link is out and branch.pn is not None for branch in self.branches)


class Postponed(Stream):
    """In the place of a link's stream: its beginning, while messages before it wait."""

    __slots__ = ("address",)

    def __init__(self, link: Link, pn: Any, head: bytes, address: Any = None) -> None:
        super().__init__(link, pn, head, None)
        self.address = address
        """While another stream queues for the receivers of this address (`wide.py`)."""
