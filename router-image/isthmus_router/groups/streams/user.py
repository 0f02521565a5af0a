"""What streams are set to, and whom they tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from isthmus_router.groups.batch import Batch
from isthmus_router.groups.identity import MemberId

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StreamsSettings:
    """Times in seconds."""

    relays: int = 1
    """Relays of the site. The holders are the first `max(2, relays + 1, copies)` members of the view."""
    copies: int = 2
    """Members that must hold a batch, its origin being one, before it is protected, unless another site has it."""
    window_bytes: int = 8 * MEBIBYTE
    """Own batches that not everyone has yet, at most; of remote origins' together before they are acknowledged
    only when everyone has them."""
    windows_together: int = 32
    """Batches of all other members and sites together that not everyone has yet, in windows of `window_bytes`."""
    relayed_bytes: int = 64 * MEBIBYTE
    """Batches that are kept for other sites, at most; no member has more of them to give."""
    early_batches: int = 4_096
    """Kept ahead of a missing one, over all origins."""
    early_bytes: int = 32 * MEBIBYTE
    repair_bytes: int = MEBIBYTE
    """Sent for one request."""
    most_streams: int = 10_000
    tell_every: float = 0.05
    """Positions to the coordinator, and what is stable from it; while nothing changes ever less often."""
    tell_longest: float = 1.0
    repair_after: float = 0.02
    """A batch must be missing for so long before it is asked for."""
    repair_longest: float = 1.0
    """Between two requests for the same."""
    give_up_after: float = 0.5
    """A batch that everyone lacks is given up when it has been missing for so long: it may be on its way."""
    linger: float = 3600.0
    """Until the stream of an origin that is gone is forgotten."""

    @property
    def holders(self) -> int:
        """How many of the oldest members hold what is to be relayed, and tell at once what they have."""
        return max(2, self.relays + 1, self.copies)


class StreamsSnapshot(NamedTuple):
    """For metrics; counts since the member's start."""

    streams: int
    """Origins that something is known of."""
    retained_bytes: int
    """Of batches that are kept for members that lack them and for other sites."""
    unstable_bytes: int
    """Own ones that not everyone in the site has yet, of `window_bytes`."""
    early_batches: int
    """That wait for one before them, of `early_batches` of the settings."""
    early_bytes: int
    repairs_asked: int
    """Requests for what was missing here."""
    repairs_answered: int
    """Batches given to others."""
    without_room: int = 0
    """Batches of others that were not taken, as too many of them or of all were not stable."""


class StreamsUser(Protocol):
    """May call `Streams` but for `publish` and `accept` from within, which must wait for the end of the turn."""

    def delivered(self, now: float, batch: Batch) -> None:
        """The next of its origin, own ones as well; once."""

    def gap(
        self, now: float, origin: MemberId, site: str, from_number: int, to_number: int, messages_lost: int
    ) -> None:
        """These batches of the origin will never be delivered here: nobody has them."""

    def protected(self, now: float, number: int) -> None:
        """Own batches up to this one are held by `copies` members."""

    def held(self, now: float, origin: MemberId, number: int) -> None:
        """Batches up to this one, that came over this member's bridge sessions, would survive its crash."""

    def room_changed(self, now: float) -> None:
        """There is room to publish again."""

    def relayed(self, origin: MemberId) -> float:
        """Up to which number no batch of an origin of this site is needed for other sites; `math.inf` if all."""

    def elsewhere(self, number: int) -> int:
        """The highest number up to which each of the own batches after `number` is held by another site; `number`
        itself if the next one is not."""
