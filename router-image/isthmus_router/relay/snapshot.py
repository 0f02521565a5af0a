"""What a member's status and metrics say of its relay."""

from __future__ import annotations

from typing import NamedTuple

from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.views import ViewId
from isthmus_router.relay.sites import SiteState


class SiteSnapshot(NamedTuple):
    """Of one other site. What is counted starts with this member."""

    site: str
    state: SiteState
    members: int
    relay: MemberId | None
    """Of the other site, that this one's messages go to."""
    refused: str
    """Why it was refused here, or refused this site; empty: it was not."""
    problem: str
    """Why it could not be dialled last; empty: it could."""
    lag_messages: int
    """Here, and not acknowledged by the site."""
    lag_bytes: int
    lag_seconds: float
    sent_messages: int
    replayed_messages: int
    received_messages: int
    duplicate_messages: int
    """Received, and here before."""
    gap_messages_sent: int
    """Lost to the site, as it was told."""
    gap_messages_received: int
    """Lost to this site, as the other one told."""
    dropped_messages: int
    """From the buffer, before the site had acknowledged them."""
    held_back_seconds: float
    """That senders here waited because the site is behind."""
    round_trip: float | None
    """Seconds."""


class RelaySnapshot(NamedTuple):
    """Of one member."""

    site: str
    is_relay: bool
    is_holder: bool
    holder_ready: bool
    """It has what it would have to replay."""
    epoch: ViewId | None
    buffered_messages: int
    buffered_bytes: int
    forwards_dropped: int
    """Messages to one member of another site that found no way, or no room on it."""
    malformed_frames: int
    sites: tuple[SiteSnapshot, ...]
