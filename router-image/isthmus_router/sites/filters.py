"""Which addresses of a group go to which sites."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from isthmus_router.core.patterns import PatternTree
from isthmus_router.groups.batch import BATCH_BYTES, MOST_MESSAGES, GroupMessage

MOST_TARGETS = 254
LONGEST_REMEMBERED = 256
"""Characters of an address whose sites are remembered."""


class Filter(NamedTuple):
    """Of several that match an address, the most specific one counts."""

    pattern: str
    """As of other addresses of the router: `*` is a token, `#` any number."""
    sites: tuple[str, ...] | None
    """It goes to these; none: it stays in the site; None: to all."""


class Filters:
    """Of one site."""

    def __init__(self, filters: Iterable[Filter] = ()) -> None:
        """Raises ValueError: a filter names more sites than a batch can."""
        tree: PatternTree[Filter] = PatternTree()
        for each in filters:
            if each.sites is not None and len(each.sites) > MOST_TARGETS:
                raise ValueError(f"filter for {each.pattern!r} names more than {MOST_TARGETS} sites")
            tree.add_pattern(each.pattern, each)
        self._tree = tree
        self._targets = lru_cache(maxsize=4_096)(self._find)

    def targets(self, address: str) -> tuple[str, ...] | None:
        """The sites that a message to the address goes to; None: all. What a batch is made for."""
        return self._targets(address) if len(address) <= LONGEST_REMEMBERED else self._find(address)

    def batches(
        self, messages: Sequence[GroupMessage]
    ) -> Iterator[tuple[tuple[str, ...] | None, Sequence[GroupMessage]]]:
        """Messages for the same sites together, in their order, with these sites; not too many at once."""
        start = size = 0
        last: tuple[str, ...] | None = None
        for at, message in enumerate(messages):
            targets = self.targets(message.address)
            if at > start and (targets != last or size >= BATCH_BYTES or at - start >= MOST_MESSAGES):
                yield last, messages[start:at]
                start, size = at, 0
            last = targets
            size += len(message.payload) + len(message.address)
        if start < len(messages):
            yield last, messages[start:]

    def _find(self, address: str) -> tuple[str, ...] | None:
        found = self._tree.find(address)
        return None if found is None else found.sites
