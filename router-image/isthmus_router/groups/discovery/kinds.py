"""What a kind of discovery is: it names physical addresses to ask, at once or when something was looked up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isthmus_router.groups.identity import MemberInfo, PhysicalAddress


class DiscoveryKind:
    """One way to find members. Addresses may repeat, and be the own."""

    def ask(self, frame: bytes) -> Iterable[PhysicalAddress]:
        """A frame is to go to whoever may be there: who can be asked now. Others follow from what is looked up."""
        raise NotImplementedError

    def on_resolved(self, host: str, addresses: Sequence[str]) -> Iterable[PhysicalAddress]:
        """A DNS name was looked up: who is to be asked."""
        return ()

    def on_gossip_members(self, infos: Sequence[MemberInfo]) -> Iterable[PhysicalAddress]:
        """A gossip router has answered: who is to be asked."""
        return ()

    def learned(self, address: PhysicalAddress) -> None:
        """Somebody of the group is there."""
