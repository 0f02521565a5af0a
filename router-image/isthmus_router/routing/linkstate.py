"""What a router says about its own links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LinkState:
    """The link state of one router: its neighbours and the cost of the link to each, at least 1.

    ``sequence`` counts the changes since the router started.
    """

    router: str
    sequence: int = 0
    peers: Mapping[str, int] = field(default_factory=dict)

    def with_peers(self, peers: Mapping[str, int]) -> LinkState:
        """The next link state, or this very one if ``peers`` are the same."""
        return self if self.peers == peers else LinkState(self.router, self.sequence + 1, dict(peers))
