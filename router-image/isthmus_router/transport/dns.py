"""DNS: what IP addresses a name has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from isthmus_router.host_names import HostNames
from isthmus_router.transport.tasks import Tasks

_MOST_AT_ONCE = 64
_SECONDS = 5.0
_MOST_ADDRESSES = 1024


class DnsResolver:
    """Looks names up, each once at a time; `resolved` is told, with no addresses if there are none."""

    def __init__(self, resolved: Callable[[str, tuple[str, ...]], None]) -> None:
        self._resolved = resolved
        self._asked: set[str] = set()
        self._tasks = Tasks()
        self._names = HostNames()

    def resolve(self, host: str) -> None:
        """Begin, unless the name is being looked up."""
        if host not in self._asked and len(self._asked) < _MOST_AT_ONCE:
            self._asked.add(host)
            self._tasks.start(self._resolve(host))

    def close(self) -> None:
        """Tell nothing any more."""
        self._tasks.cancel()

    async def _resolve(self, host: str) -> None:
        addresses: tuple[str, ...] = ()
        try:
            async with asyncio.timeout(_SECONDS):
                found = await self._names.look_up(host, None, host)
            addresses = tuple(dict.fromkeys(str(address[0]) for *_, address in found))[:_MOST_ADDRESSES]
        except (OSError, UnicodeError):
            pass
        finally:
            self._asked.discard(host)
        self._resolved(host, addresses)
