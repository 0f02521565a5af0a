"""Attack: many connections of one client, each with a costly frame, so that their turns come together."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import pytest
from tests.integration.support.raw import ATTACH, frame
from tests.integration.support.routers import Router, Routers, eventually
from tests.security.support.canary import Canary
from tests.security.support.frames import begin, detach, opening

from isthmus_router.amqp.checked import MOST_ITEMS_OF_CLIENT
from isthmus_router.message.types import Array, Described, Symbol, UInt, ULong

CONNECTIONS = 200
SECONDS, TIMES = 6.0, 5
ANOTHER_HOST = "127.0.0.2"
MOST_CPU_SECONDS = 0.025
"""Of the router between start and arrival of a message, for 99 of 100. Two turns take 0.02 s."""
LONG_NAMES, LENGTH = 64, 14_000
"""Links of each connection, with names that differ in their last characters."""
MOST_BYTES = 150 * 2**20
"""That are left of a hundred connections with links of long names."""


def attach(values: int, name: str = "l", handle: int = 0) -> bytes:
    """A receiver with so many values in each field of its termini."""
    symbols = Array(Symbol, tuple(Symbol("a") for _ in range(values)))
    pairs = {Symbol(str(number)): None for number in range(values // 2)}
    source = Described(ULong(0x28), ["x", *[None] * 4, pairs, None, pairs, None, symbols, symbols])
    target = Described(ULong(0x29), ["x", *[None] * 4, pairs, symbols])
    fields: list[Any] = [name, UInt(handle), True, None, None, source, target, None, None, UInt(0)]
    return frame(ATTACH, fields)


class Crowd(threading.Thread):
    """Connections of another host. All send the same frames again when each has had an answer."""

    def __init__(self, port: int, first: bytes, again: bytes) -> None:
        super().__init__(daemon=True)
        self._again = again
        self._over = threading.Event()
        self._sockets = {}
        self.answers = 0
        """Times that all have had an answer."""
        self.closed = 0
        """Connections that the router has closed."""
        for _ in range(CONNECTIONS):
            sock = socket.create_connection(("localhost", port), source_address=(ANOTHER_HOST, 0))
            sock.sendall(first)
            sock.setblocking(False)
            self._sockets[sock.fileno()] = sock

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        for sock in self._sockets.values():
            sock.close()

    def run(self) -> None:
        poll = select.poll()
        for descriptor in self._sockets:
            poll.register(descriptor, select.POLLIN)
        waiting = set(self._sockets)
        while not self._over.is_set():
            for descriptor, _ in poll.poll(50):
                with contextlib.suppress(OSError):
                    if self._sockets[descriptor].recv(1 << 16):
                        waiting.discard(descriptor)
                        continue
                self.closed += 1
                waiting.discard(descriptor)
                poll.unregister(descriptor)
            if not waiting and self.closed < CONNECTIONS:
                self.answers += 1
                waiting = {descriptor for descriptor in self._sockets if self._send(descriptor)}

    def _send(self, descriptor: int) -> bool:
        try:
            self._sockets[descriptor].sendall(self._again)
        except OSError:
            return False
        return True


@pytest.fixture
def attacked(compiled_kernel: Callable[[], Routers]) -> Router:
    return compiled_kernel().start("A")


def check(canary: Canary) -> None:
    """All messages of others arrive, and in time."""
    canary.report.check(at_least=200)
    assert canary.report.cpu_p99 < MOST_CPU_SECONDS, canary.report


def test_attaches_with_as_many_values_as_are_allowed(attacked: Router) -> None:
    first = opening() + begin() + attach(MOST_ITEMS_OF_CLIENT - 5) + detach(0)
    with (
        Canary(attacked) as canary,
        Crowd(attacked.port, first, attach(MOST_ITEMS_OF_CLIENT - 5) + detach(0)) as crowd,
    ):
        time.sleep(SECONDS)
        eventually(lambda: crowd.answers > TIMES, "they have had their turns", 60)
    check(canary)
    assert not crowd.closed


def test_attaches_that_are_compared_with_long_names(attacked: Router) -> None:
    """The engine compares the name of each with those of its session that are as long."""
    names = [f"{number:0{LENGTH}}" for number in range(LONG_NAMES)]
    many = [attach(0, name, handle) for handle, name in enumerate(names)]
    another = attach(0, "x" * LENGTH, LONG_NAMES) + detach(LONG_NAMES)
    before = attacked.memory()
    with Crowd(attacked.port, b"".join((opening(), begin(), *many)), another) as crowd:
        eventually(lambda: crowd.answers > TIMES, "the links are attached", 120)
        with Canary(attacked) as canary:
            time.sleep(SECONDS)
        assert not crowd.closed
    check(canary)
    eventually(lambda: attacked.memory() - before < MOST_BYTES, "the memory is given back", 60)
