"""Diallers: keep one outgoing connection up, with back-off and jitter between attempts."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Callable

from isthmus_router.amqp.connection import AmqpConnection
from isthmus_router.amqp.driver import Driver
from isthmus_router.amqp.settings import Settings
from isthmus_router.config.model import AddressFamily, ConnectorConfig
from isthmus_router.core.roles import Role

log = logging.getLogger("SERVER")

FIRST_DELAY_SECONDS = 0.25
LONGEST_DELAY_SECONDS = 10.0
FIRST_DELAY_AFTER_REFUSAL, LONGEST_DELAY_AFTER_REFUSAL = 5.0, 60.0
"""After a login that failed: the next one rarely fares better, and costs both sides more than a connection does."""
CONNECT_TIMEOUT_SECONDS = 10.0
PROVEN_SECONDS = 10.0
"""A connection that lasted this long was a success; one that ends sooner adds to the delay."""

_FAMILIES = {
    None: socket.AF_UNSPEC,
    AddressFamily.IPV4: socket.AF_INET,
    AddressFamily.IPV6: socket.AF_INET6,
}


class Backoff:
    """Delays between attempts: doubled each time up to a limit, each drawn from its upper half."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._random = rng or random.Random()
        self._next = FIRST_DELAY_SECONDS

    def next_delay(self, *, refused: bool = False) -> float:
        """Seconds to wait before the next attempt. `refused`: the login of the last one has failed."""
        least, most = FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS
        if refused:
            least, most = FIRST_DELAY_AFTER_REFUSAL, LONGEST_DELAY_AFTER_REFUSAL
        delay = min(max(self._next, least), most)
        self._next = delay * 2
        return delay * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """An attempt succeeded."""
        self._next = FIRST_DELAY_SECONDS


def _words(error: OSError) -> str:
    """`Connection refused` and the like; the event loop's own text leaves the reason out."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)


class Dialler:
    """One connection of a connector: connects, and connects again, until it is retired or closed."""

    def __init__(
        self,
        driver: Driver,
        config: ConnectorConfig,
        settings: Settings,
        *,
        opened: Callable[[], None] | None = None,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        """`opened` is called when the connection has opened; after a loss, it is dialled again while it is `wanted`."""
        self.driver = driver
        self.config = config
        self.settings = settings
        """For the next attempt."""
        self.state = "connecting"
        self.message = ""
        self.connection: AmqpConnection | None = None
        self._backoff = Backoff()
        self._opened_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._retired = False
        self._on_opened = opened
        self._wanted = wanted

    def start(self, delay: float = 0.0) -> None:
        """Begin to connect, after `delay` seconds."""
        self._schedule(delay)

    def _schedule(self, delay: float) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()  # never two attempts at a time
        self._task = self.driver.loop.create_task(self._attempt(delay))

    async def _attempt(self, delay: float) -> None:
        if delay:
            await asyncio.sleep(delay)
        config = self.config
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                sock = await self._connect()
        except TimeoutError:
            self._failed(f"no answer within {CONNECT_TIMEOUT_SECONDS:.0f} s")
            return
        except UnicodeError:
            self._failed(f"{config.host!r} is not a host name")
            return
        except OSError as error:
            self._failed(_words(error))
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = f"{config.host}:{config.port}"
        try:
            self.connection = self.driver.adopt(sock, self.settings, self, incoming=False, peer=peer)
        except OSError as error:
            sock.close()
            self._failed(str(error))
            return
        if self.state == "connecting":
            self.message = "connected, but the peer has not opened yet: does it speak AMQP?"
        self.driver.flush()

    async def _connect(self) -> socket.socket:
        """A connected socket to the first of the host's addresses that answers."""
        loop = self.driver.loop
        infos = await self.driver.host_names.look_up(
            self.config.host,
            self.config.port,
            self.config.host,
            family=_FAMILIES[self.config.socket_address_family],
        )
        failure: OSError = OSError("the host name has no address")
        for family, kind, protocol, _, address in infos:
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            try:
                await loop.sock_connect(sock, address)
            except OSError as error:
                sock.close()
                failure = error
                continue
            except BaseException:
                sock.close()
                raise
            return sock
        raise failure

    def _failed(self, reason: str, *, refused: bool = False) -> None:
        if self._retired:
            return
        if self._wanted is not None and not self._wanted():
            self.state = "waiting"
            return
        if reason != self.message or self.state != "failed":
            log.warning(
                "connector failed",
                extra={
                    "connector": self.config.name,
                    "host": self.config.host,
                    "port": self.config.port,
                    "reason": reason,
                },
            )
        self.state, self.message = "failed", reason
        self._schedule(self._backoff.next_delay(refused=refused))

    def excess(self, client: str | None) -> str | None:
        """Owner interface: a connector has no bound."""
        return None

    def opened(self, connection: AmqpConnection) -> None:
        """Owner interface: the peer has opened too."""
        self.state, self.message = "open", ""
        self._opened_at = self.driver.loop.time()
        if self._on_opened is not None:
            self._on_opened()

    def closed(self, connection: AmqpConnection, reason: str) -> None:
        """Owner interface: try again, unless this dialler is retired."""
        if self.connection is not connection:
            return
        self.connection = None
        opened_at, self._opened_at = self._opened_at, None
        if opened_at is not None and self.driver.loop.time() >= opened_at + PROVEN_SECONDS:
            self._backoff.reset()
        self._failed(reason, refused=connection.login_has_failed)

    def retire(self) -> None:
        """Connect no more. A connection that is open stays; one that is about to open is given up.

        A data connection is not, once there is a socket: the peer may have opened it and send streams over it. A
        control connection is of use to neither router before this one has attached its links.
        """
        self._retired = True
        if self._task is not None:
            self._task.cancel()
        if self.connection is None or not (
            self.connection.opened or self.settings.role is Role.INTER_ROUTER_DATA
        ):
            self.close()

    def close(self) -> None:
        """Give up the connection and make no other."""
        self._retired = True
        self.state = "closed"
        if self._task is not None:
            self._task.cancel()
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.close()
