"""Logical names of members: what people read. They may repeat, and nothing is routed by them."""

from __future__ import annotations

from isthmus_router.groups.identity import MemberId, short

MOST_NAMES = 2_000


class Names:
    """Id to name, and name to ids; beyond the limit the one that was put longest ago is forgotten."""

    def __init__(self, limit: int = MOST_NAMES) -> None:
        self._limit = limit
        self._names: dict[MemberId, str] = {}
        self._ids: dict[str, dict[MemberId, None]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def put(self, member: MemberId, name: str) -> None:
        """The member is called so, now."""
        self.remove(member)
        if len(self._names) >= self._limit:
            self.remove(next(iter(self._names)))
        self._names[member] = name
        self._ids.setdefault(name, {})[member] = None

    def remove(self, member: MemberId) -> None:
        """Forget it, if it is known."""
        name = self._names.pop(member, None)
        if name is not None:
            ids = self._ids[name]
            del ids[member]
            if not ids:
                del self._ids[name]

    def name(self, member: MemberId) -> str:
        """What it is called; the start of its id, if that is not known."""
        return self._names.get(member) or short(member)

    def ids(self, name: str) -> tuple[MemberId, ...]:
        """Everybody of that name."""
        return tuple(self._ids.get(name, ()))

    def describe(self, member: MemberId) -> str:
        """Name and start of its id: tells two of one name apart."""
        return f"{self.name(member)}({short(member)})"
