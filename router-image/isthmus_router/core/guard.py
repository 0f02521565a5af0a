"""What is looked at in each message of a link, before it is routed.

A link with such a guard leaves the compiled kernel when every message has to be looked into. The policy decides when
the link attaches; the kernel only asks.
"""

from __future__ import annotations

from collections.abc import Callable

from isthmus_router.core.access import UNAUTHORIZED
from isthmus_router.message.sections import (
    Buffer,
    IncompleteError,
    SectionError,
    find_user_id,
)
from isthmus_router.message.structure import Structure


class MessageGuard:
    """Restrictions on the messages that one client sends on a link."""

    __slots__ = ("_allows", "_denied", "structure", "user_id")

    def __init__(
        self,
        allows: Callable[[str], bool] | None,
        user_id: bytes | None,
        denied: Callable[[], None],
    ) -> None:
        """`allows`: whether the client may send to an address (None: to any). `denied` counts."""
        self._allows = allows
        self._denied = denied
        self.user_id = user_id
        """The only `user-id` that messages may have; None: any."""
        self.structure: Structure | None = None
        """That of the message that is arriving in pieces, if more is to be looked at than its beginning."""

    @property
    def every_message(self) -> bool:
        """Each message has to be looked into, not only those that tell where they go."""
        return self.user_id is not None

    def check_sender(self, data: Buffer, offset: int, available: int, *, complete: bool) -> None:
        """Whether the message that starts at `offset` has no `user-id` but the allowed one.

        Raises SectionError if not, and IncompleteError while it is not `complete` and more is needed to tell. The rest
        of a message that is not complete is to be checked by `check_rest` and, if it is not aborted, `check_end`.
        """
        self.structure = None
        if self.user_id is None:
            return
        structure = Structure()
        structure.check(data[offset:available], available - offset)
        try:
            found = find_user_id(data, offset, available, complete=complete)
        except IncompleteError:
            if not complete:
                raise
            raise SectionError("invalid message format: truncated") from None
        if found and found != self.user_id:
            self._denied()
            raise SectionError("user-id is not the user of this connection", UNAUTHORIZED)
        if complete:
            structure.check_end()
        else:
            self.structure = structure

    def check_rest(self, data: Buffer, size: int) -> None:
        """Whether the next `size` bytes of a message, at the start of `data`, can have no other `user-id`.

        Raises SectionError if they can.
        """
        if self.structure is not None:
            self.structure.check(data, size)

    def check_end(self) -> None:
        """All of a message has been checked. Raises SectionError if it may not end here."""
        structure, self.structure = self.structure, None
        if structure is not None:
            structure.check_end()

    def check_address(self, address: str) -> None:
        """Whether the client may send to `address`; SectionError if not."""
        if self._allows is not None and not self._allows(address):
            self._denied()
            raise SectionError(f"this user may not send to {address[:100]!r}", UNAUTHORIZED)
