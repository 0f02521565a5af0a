"""Credit of receivers: whether it has a bound, and how a drain gives it back."""

from __future__ import annotations

from cproton_ffi.lib import pn_link_credit, pn_link_drained, pn_link_queued

from isthmus_router.core.model import Link

UNSEEN_MICROSECONDS = 10_000_000
"""After this time the receiver has seen that a drain has given its credit back."""


def is_boundless(out: Link, now: int) -> bool:
    """Whether the receiver has given more than the engine's numbers hold: 2^31 and more look like a debt.

    But a debt is no more than what the receiver may not have seen when it said so: messages, and credit that it has
    got back.
    """
    credit: int = pn_link_credit(out.io)
    if credit >= 0:
        return False
    unseen = out.deliveries - out.accepted - out.rejected - out.released - out.modified
    returned, seen_at = out.returned
    if now < seen_at:
        unseen += returned
    return out.boundless or credit + unseen < 0


def give_back(out: Link, now: int) -> bool:
    """Answer the drain of an OUT link on which nothing waits in the router: the receiver gets its credit back.

    False if that has to wait for the next write. Behind a message that waits for the window, the engine forgets to send
    the answer. If it has not written the answer when the receiver ends the drain, the credit is lost.
    """
    connection = out.connection.io
    if connection.write_blocked or pn_link_queued(out.io) > 0:
        connection.stalled.add(out)
        return False
    if returned := pn_link_drained(out.io):
        before, seen_at = out.returned
        out.returned = returned + (before if now < seen_at else 0), now + UNSEEN_MICROSECONDS
    return True
