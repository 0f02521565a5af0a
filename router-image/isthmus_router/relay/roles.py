"""Who of a site does what: its oldest members relay, and a few more hold what is to be relayed."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.streams.user import StreamsSettings
from isthmus_router.groups.views import View


def relays_of(view: View, count: int) -> tuple[MemberId, ...]:
    """The members that relay."""
    return view.ids[:count]


def holders_of(view: View, relays: int, copies: int) -> tuple[MemberId, ...]:
    """Those that keep what every site has not acknowledged: the relays and the next in line, `copies` at least."""
    return view.ids[: StreamsSettings(relays=relays, copies=copies).holders]


def relay_for(origin: MemberId, relays: Sequence[MemberId]) -> MemberId:
    """Of several, the one that relays an origin: the same everywhere, and few change when a relay does."""
    if len(relays) == 1:
        return relays[0]
    return max(relays, key=lambda relay: blake2b(relay + origin, digest_size=8).digest())
