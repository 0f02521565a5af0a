"""What metrics say of a member: of all layers at one moment."""

from __future__ import annotations

from typing import NamedTuple

from isthmus_router.groups.resolver import ResolverCounters
from isthmus_router.groups.streams.user import StreamsSnapshot
from isthmus_router.relay.settings import RelaySettings
from isthmus_router.relay.snapshot import RelaySnapshot


class MemberSnapshot(NamedTuple):
    """Counts since the member's start."""

    group: str
    members: int
    """In the view of the site; 0: there is none yet."""
    view_changes: int
    relay: RelaySnapshot
    bounds: RelaySettings
    """Those of the buffer are told beside what is in it."""
    streams: StreamsSnapshot
    resolver: ResolverCounters
    unicasts_waiting: int
    """Messages to one member that it has not acknowledged."""
    unicasts_repeated: int
    unicasts_dropped: int
    """Pre-settled: no room, or the member had gone."""
    misdirected_frames: int
    """For who was at this physical address before."""
    refused_frames: int
    """Of members that may not send them."""
