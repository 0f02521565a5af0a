"""Attack: thousands of connections of many hosts send usual frames at the same time."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator

import pytest
from tests.integration.support.raw import AMQP_HEADER, OPEN, frame
from tests.integration.support.routers import Router, Routers, eventually
from tests.security.support.canary import Canary
from tests.security.support.frames import attach, begin, detach

from isthmus_router.message.types import UInt, UShort

pytestmark = pytest.mark.timeout(600)

CONNECTIONS, HOSTS = 2_000, 50
LINKS = 5
"""That each connection attaches and detaches in a burst."""
BURSTS = 2
MOST_CPU_SECONDS = 0.5
"""Of the router between start and arrival of a message, for 99 of 100. A message that waits for all bursts takes 3 s;
it is to wait for one or two turns of each host, of 2 ms."""


@pytest.fixture
def crowd(compiled_kernel: Callable[[], Routers]) -> Iterator[tuple[Router, list[socket.socket]]]:
    """A router with open connections that do nothing yet."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    router = compiled_kernel().add("A", idleTimeoutSeconds=600).start()
    with contextlib.ExitStack() as ends:
        made = []
        for number in range(CONNECTIONS):
            source = f"127.0.7.{1 + number % HOSTS}"
            sock = socket.create_connection(("localhost", router.port), 60, source_address=(source, 0))
            made.append(ends.enter_context(sock))
            opened = frame(OPEN, [f"c{number}", "localhost", UInt(65536), UShort(10)])
            sock.sendall(AMQP_HEADER + opened + begin())
            if number % 100 == 99:
                eventually(lambda n=number: router.metric("connections") > n, "they are open")  # type: ignore[misc]
        yield router, made


def test_bursts_of_many_hosts_delay_no_other_client(crowd: tuple[Router, list[socket.socket]]) -> None:
    router, connections = crowd
    burst = b"".join(attach(handle, f"l{handle}", "a") for handle in range(LINKS))
    burst += b"".join(detach(handle) for handle in range(LINKS))
    with Canary(router) as canary:
        for _ in range(BURSTS):
            with stopped(router):
                for sock in connections:
                    sock.sendall(burst)
            for sock in connections:
                sock.recv(1 << 16)
    canary.report.check(at_least=1)
    assert canary.report.cpu_p99 < MOST_CPU_SECONDS, canary.report


@contextlib.contextmanager
def stopped(router: Router) -> Iterator[None]:
    """The router finds all bursts at the same time."""
    assert router.pid is not None
    os.kill(router.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(router.pid, signal.SIGCONT)
