"""What is true of every run of sites in a world, whatever happened in it."""

from __future__ import annotations

from collections import defaultdict

from tests.unit.sites.sites import Net, Node

from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.views import ViewId


def ordered_once(net: Net) -> None:
    """FIFO per sender, no duplicate: what a member delivers of an origin has ascending numbers."""
    for node in net.nodes:
        last: dict[MemberId, int] = {}
        for origin, number, at in node.deliveries:
            before = last.get(origin, -1)
            assert number > before, f"{node} at {at:.3f}: {number} of {origin.hex()[:8]} after {before}"
            last[origin] = number


def no_silent_loss(net: Net, *, gaps_allowed: bool = False) -> None:
    """Who was a member when a message was accepted and still is has it, or was told of the gap that it fell into.

    Told is enough for who was taken for dead meanwhile. With `gaps_allowed` (several may be lost at once) it is for
    everyone, and what was accepted of a sender that is gone may be gone with all who had it.
    """
    for node in net.alive:
        delivered: dict[MemberId, set[int]] = defaultdict(set)
        for origin, number, _ in node.deliveries:
            delivered[origin].add(number)
        joined = member_since(node)
        for sender in net.nodes:
            if gaps_allowed and not sender.alive:
                continue
            missing = [
                sent.number
                for sent in sender.sent
                if sent.accepted is not None
                and sent.at >= joined[sender.site]
                and sent.number not in delivered[sender.id]
            ]
            if len(missing) > (node.gaps[sender.id] if gaps_allowed or left_out(net, node) else 0):
                raise AssertionError(
                    f"{node} lacks {len(missing)} accepted of {sender}: {missing[:10]}, "
                    f"gap of {node.gaps[sender.id]}, has {len(delivered[sender.id])}"
                )


def left_out(net: Net, node: Node) -> bool:
    """Whether others of its site had a view without it while it was there."""
    since = node.first_view
    return since is not None and any(
        node.id not in view
        for other in net.nodes
        if other.site == node.site
        for view, at in zip(other.views, other.viewed_at, strict=True)
        if at > since
    )


def member_since(node: Node) -> dict[str, float]:
    """From when on a member should have what is sent, by site of the sender."""
    first = node.first_view if node.first_view is not None else float("inf")
    return defaultdict(lambda: max(first, node.connected), {node.site: first})


def no_gaps(net: Net) -> None:
    """Nobody was told of lost messages, but who was taken for dead; who began in a part of its own, of what was
    before its time: it cannot know that it was; and of a sender that crashed, of what was not accepted."""
    for node in net.nodes:
        if left_out(net, node):
            continue
        for sender in net.nodes:
            before = sum(node.first_view is None or sent.at < node.first_view for sent in sender.sent)
            unaccepted = 0 if sender.alive else sum(sent.accepted is None for sent in sender.sent)
            lost = node.gaps[sender.id]
            assert lost <= before + unaccepted, (
                f"{node}: gap of {lost} from {sender}; {before} were before its time, {unaccepted} not accepted"
            )


def accepted_all(net: Net) -> None:
    """Every message of a sender that lives was accepted, or it was told why not."""
    for node in net.alive:
        waiting = [sent.number for sent in node.sent if sent.accepted is None and sent.failed is None]
        assert not waiting, f"{node}: {len(waiting)} messages without an outcome, first {waiting[:5]}"


def views_agree(net: Net) -> None:
    """Equal ids name equal views; ids ascend at each member; the first is the coordinator."""
    known: dict[tuple[str, ViewId], tuple[MemberId, ...]] = {}
    for node in net.nodes:
        last = None
        for view in node.views:
            assert last is None or view.id > last, f"{node}: view {view} after {last}"
            last = view.id
            assert node.id in view
            assert known.setdefault((node.site, view.id), view.ids) == view.ids, (
                f"{node}: two views {view.id}"
            )


def global_views_agree(net: Net) -> None:
    """All members of all sites know the same members, in the same order."""
    found = {tuple((member.site, member.id) for member in node.everyone) for node in net.alive}
    assert len(found) <= 1, net.describe()


def caches_converge(net: Net) -> None:
    """Everybody knows where everybody of the own site is."""
    for node in net.alive:
        view = node.member.membership.view
        assert view is not None
        for member in view.members:
            if member.id != node.id:
                assert node.member.resolver.address(member.id) in member.addresses


def memory_returns(net: Net) -> None:
    """Nothing is kept that all have."""
    for node in net.alive:
        streams = node.member.streams
        for origin in streams.origins():
            log = streams.log(origin)
            assert log is not None
            assert log.low == log.next, f"{node} keeps {log.next - log.low} batches of {origin.hex()[:8]}"
        assert node.member.resolver.queued == (0, 0)


def replies_arrive(net: Net) -> None:
    """A message to one member arrives once, in order, or its sender is told that it failed; never neither."""
    for node in net.nodes:
        for target in net.nodes:
            texts = [text for sender, text in target.replies if sender.id == node.id]
            assert texts == sorted(set(texts)), f"{target} got of {node}: {texts}"
        for target, text, sent in node.asked:
            if sent.accepted is not None:
                assert any(got == text and sender.id == node.id for sender, got in target.replies), (
                    f"{text!r} of {node} is not at {target}"
                )
            elif node.alive:
                assert sent.failed is not None, f"{text!r} of {node} to {target} has no outcome"


def queues_bounded(node: Node) -> None:
    """At the end of a turn: what waits in a member is within what it is set to."""
    member = node.member
    assert member.streams.early <= member.settings.streams.early_batches
    frames, size = member.resolver.queued
    assert frames <= 128 * 64
    assert size <= 16 * 1024 * 1024
    buffer = member.relay._buffer  # a snapshot of each turn would take too long
    assert buffer.messages <= member.settings.relay.buffer_messages
    assert buffer.bytes <= member.settings.relay.buffer_bytes


def everything(net: Net, *, gaps_allowed: bool = False) -> None:
    """All of it, for sites that are quiet again."""
    ordered_once(net)
    views_agree(net)
    global_views_agree(net)
    caches_converge(net)
    accepted_all(net)
    replies_arrive(net)
    no_silent_loss(net, gaps_allowed=gaps_allowed)
    if not gaps_allowed:
        no_gaps(net)
    memory_returns(net)
