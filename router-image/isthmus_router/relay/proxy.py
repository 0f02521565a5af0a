"""ProxyUUID: a member of another site, as this site's members see it.

Source: the RELAY design. A proxy is the same whoever relays for it: it is equal by the original member alone, so that
an answer kept for later still finds its way after the relay of that moment is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from isthmus_router.groups.identity import MemberId, short


@dataclass(frozen=True, slots=True)
class ProxyUUID:
    """Equal and hashed by `original` only; routed by `original` and `site`."""

    original: MemberId
    site: str = field(compare=False)
    relay: MemberId = field(compare=False)
    """Of the own site, at the time."""

    def __str__(self) -> str:
        return f"{short(self.original)}@{self.site}"
