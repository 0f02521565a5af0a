"""Lookups of host names, in threads of their own: a name server that does not answer holds up nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from threading import Thread
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

AddressInfo: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
"""As `socket.getaddrinfo` returns it."""

MOST_AT_ONCE, MOST_OF_ONE = 16, 4


class HostNames:
    """Lookups for one purpose: `MOST_AT_ONCE` at a time, and `MOST_OF_ONE` of those whose names they are.

    A thread goes on until the name server has answered or the system gives up, also when nobody waits any more.
    """

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(MOST_AT_ONCE)
        self._of_one: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def look_up(
        self,
        host: str | None,
        port: int | str | None,
        whose: str,
        *,
        family: int = socket.AF_UNSPEC,
        flags: int = 0,
    ) -> list[AddressInfo]:
        """The addresses of a host for TCP; an IP address needs no lookup.

        `whose`: by whom the name is stated. Raises OSError, and ValueError for what cannot be a host name.
        """
        with contextlib.suppress(socket.gaierror):
            return _addresses(host, port, family, flags | socket.AI_NUMERICHOST)
        own = self._of_one.setdefault(whose, asyncio.Semaphore(MOST_OF_ONE))
        await own.acquire()
        try:
            await self._all.acquire()
        except BaseException:
            own.release()
            raise
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[AddressInfo]] = loop.create_future()

        def end(found: list[AddressInfo] | Exception) -> None:
            own.release()
            self._all.release()
            if answer.done():
                return
            if isinstance(found, Exception):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        def run() -> None:
            try:
                found: list[AddressInfo] | Exception = _addresses(host, port, family, flags)
            except Exception as error:
                found = error
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(end, found)

        Thread(target=run, name="host name", daemon=True).start()
        return await answer


def domain(host: str) -> str:
    """The last two labels of a host name."""
    return ".".join(host.rstrip(".").rsplit(".", 2)[-2:])


def _addresses(host: str | None, port: int | str | None, family: int, flags: int) -> list[AddressInfo]:
    return list(socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=flags))
