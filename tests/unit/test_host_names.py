"""Host names are looked up beside each other: those that are not answered hold up no others, and end in a while."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest

from isthmus_router.host_names import MOST_AT_ONCE, MOST_OF_ONE, HostNames, domain

ANSWER = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))]
SILENT = "silent.test"


class NameServer:
    """Answers all names at once, except those that end with `SILENT`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.over = Event()

    def look_up(self, host: str, port: int, *, flags: int = 0, **_: Any) -> list[Any]:
        if flags & socket.AI_NUMERICHOST:
            if host.startswith("127."):
                return ANSWER
            raise socket.gaierror("a name")
        self.asked.append(host)
        if host.endswith(SILENT):
            self.over.wait()
            raise socket.gaierror("no answer")
        return ANSWER


@pytest.fixture
def server() -> Iterator[NameServer]:
    server = NameServer()
    with patch("isthmus_router.host_names.socket.getaddrinfo", server.look_up):
        yield server
        server.over.set()


async def give_up(names: HostNames, host: str, whose: str) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await names.look_up(host, 80, whose)


def test_names_of_one_do_not_hold_up_those_of_others(server: NameServer) -> None:
    async def run() -> None:
        names = HostNames()
        for number in range(3 * MOST_AT_ONCE):
            await give_up(names, f"h{number}.{SILENT}", "hostile")
        assert len(server.asked) == MOST_OF_ONE
        assert await names.look_up("honest.test", 80, "honest") == ANSWER
        await give_up(names, "another.test", "hostile")

    asyncio.run(run())


def test_all_names_are_looked_up_within_a_bound_and_again_later(server: NameServer) -> None:
    async def run() -> None:
        names = HostNames()
        for number in range(3 * MOST_AT_ONCE):
            await give_up(names, f"h{number}.{SILENT}", f"hostile {number}")
        assert len(server.asked) == MOST_AT_ONCE
        assert await names.look_up("127.0.0.1", 80, "honest") == ANSWER, "an address needs no lookup"
        await give_up(names, "honest.test", "honest")
        server.over.set()
        async with asyncio.timeout(60):
            assert await names.look_up("honest.test", 80, "honest") == ANSWER

    asyncio.run(run())


def test_errors_reach_who_asked() -> None:
    async def run() -> None:
        names = HostNames()
        with pytest.raises(ValueError, match="label"):
            await names.look_up("a" * 70 + ".test", 80, "it")
        with pytest.raises(OSError, match=r"."):
            await names.look_up("no-such-host.invalid", 80, "it")

    asyncio.run(run())


def test_a_process_ends_while_names_are_looked_up(server: NameServer) -> None:
    """The loop does not wait for the threads."""

    async def run() -> None:
        await give_up(HostNames(), f"h.{SILENT}", "it")

    asyncio.run(run())
    assert not server.over.is_set()


@pytest.mark.parametrize(
    ("host", "expected"), [("a.b.evil.test.", "evil.test"), ("host", "host"), ("b.test", "b.test")]
)
def test_domain(host: str, expected: str) -> None:
    assert domain(host) == expected
