"""What the policy looks at in the pieces of a delivery that is passed on while it arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from isthmus_router.core.model import Link
from isthmus_router.message.sections import SectionError

if TYPE_CHECKING:
    from isthmus_router.amqp.kernel.forward import Forwarder


class Pieces:
    """Those of one router process. A delivery with a piece that may not be passed on is the end of its link."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    def may_pass(self, link: Link, pn: Any, size: int) -> bool:
        """Whether the next `size` bytes of a delivery, which are in the buffer, may be passed on; refused if not."""
        guard = link.guard
        return guard is None or self._passes(link, pn, lambda: guard.check_rest(self._forwarder.view, size))

    def may_end(self, link: Link, pn: Any) -> bool:
        """Whether a delivery may end where it does; refused if not."""
        return link.guard is None or self._passes(link, pn, link.guard.check_end)

    def _passes(self, link: Link, pn: Any, check: Callable[[], None]) -> bool:
        try:
            check()
        except SectionError as error:
            self._forwarder.refuse(link, pn, error)
            return False
        return True
