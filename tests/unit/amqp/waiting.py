"""What waits for credit, as the router counts it and as it is."""

from __future__ import annotations

from collections import Counter

from tests.unit.amqp.rig import Rig

from isthmus_router.amqp.kernel.delivery import Hold, Parked, Waiting
from isthmus_router.core.model import Connection, Link


def check_counts(rig: Rig) -> None:
    """Every count and every reference agrees with the messages in the queues."""
    waiting, relayed = Counter[Connection](), Counter[Connection]()
    for connection in rig.core.connections.values():
        for link in connection.links:
            if not link.incoming:
                size, count = _check(link)
                waiting[connection] += size
                relayed[connection] += count
    for connection in rig.core.connections.values():
        if not connection.leaving:
            assert connection.parked_bytes == waiting[connection]
            assert connection.relayed_waiting == relayed[connection]


def _check(link: Link) -> tuple[int, int]:
    """The link's part in the counts of its connection."""
    items = [item for item in link.parked if not item.dropped]
    assert link.parked_dropped == len(link.parked) - len(items)
    messages = [item for item in items if item.__class__ is Parked]
    assert all(item.link is link for item in messages)
    assert list(link.parked_presettled) == [item for item in messages if item.record is None]
    assert not link.parked_presettled or link in link.connection.parked_on
    holds = [item for item in items if item.__class__ is Hold]
    assert list(link.parked)[: len(holds)] == holds
    assert all(hold.link is link for hold in holds)
    streams = [item for item in items if item.__class__ is Waiting]
    assert streams == list(link.queue.streams if link.queue is not None else ())
    for place in streams:
        branch = link.queue.streams[place]
        assert (branch.link, branch.waiting) == (link, place)
    relayed = [len(item.payload) for item in messages if item.relayed]
    unanswered = sum(
        len(item.payload) for item in messages if not item.relayed and (item.record is None or item.orphaned)
    )
    assert link.parked_bytes == unanswered + sum(relayed)
    if link.queue is not None:
        assert (link.queue.relayed, link.queue.relayed_bytes) == (len(relayed), sum(relayed))
    for item in messages:
        assert item.origin is None or item in item.origin.sent_parked
    return unanswered, len(relayed)
