"""TLS records of connections in steps: none is read for long, and each has its turn."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import trustme
import uvloop

from isthmus_router import tls_records
from isthmus_router.tls_records import HANDSHAKES, STEP_RECORDS, STEPS, Handshake, SteppedObject, Steps


class Reader(SteppedObject):
    """A connection whose peer has sent records without end. It decrypts none."""

    def __init__(self, steps: Steps) -> None:
        self.count = 0
        self.waits = False
        self.begin(steps, self._told)

    def _told(self, waits: bool) -> None:
        self.waits = waits

    def read_all(self) -> None:
        """Until it is the turn of others."""
        while not self.waits:
            if not self._may_read():
                break
            self.count += 1


async def test_an_iteration_has_a_bound_over_all_connections() -> None:
    steps = Steps(asyncio.get_running_loop())
    readers = [Reader(steps) for _ in range(3 * STEPS)]
    for reader in readers:
        reader.read_all()
    assert sum(reader.count for reader in readers) == STEPS * STEP_RECORDS
    assert all(reader.waits for reader in readers)


async def test_each_has_its_turn() -> None:
    steps = Steps(asyncio.get_running_loop())
    readers = [Reader(steps) for _ in range(3 * STEPS)]
    for _ in range(31):
        for reader in readers:
            reader.read_all()
        await asyncio.sleep(0)
    counts = [reader.count for reader in readers]
    assert sum(counts) >= 30 * STEPS * STEP_RECORDS
    assert max(counts) - min(counts) <= (STEPS + 2) * STEP_RECORDS


async def test_one_that_had_nothing_to_read_comes_after_those_that_wait() -> None:
    steps = Steps(asyncio.get_running_loop())
    busy = [Reader(steps) for _ in range(STEPS + 1)]
    for reader in busy:
        reader.read_all()
    late = Reader(steps)
    late.read_all()
    assert late.count == 0
    for _ in range(2):
        await asyncio.sleep(0)
        late.read_all()
    assert late.count >= STEP_RECORDS


async def test_what_is_told_last_does_not_wait() -> None:
    steps = Steps(asyncio.get_running_loop())
    readers = [Reader(steps) for _ in range(2)]
    readers[0].read_all()
    with pytest.raises(ssl.SSLWantReadError):
        readers[1].read()
    readers[1].end()
    assert readers[1]._may_read()


def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = SteppedObject
    authority.issue_cert("localhost").configure_cert(context)
    return context


async def open_connections(
    authority: trustme.CA, number: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[bytes], list[int]]:
    """Have ClientHellos of so many connections arrive together. Returns what each peer reads, and the parts of
    handshakes in each iteration of the event loop."""
    loop = asyncio.get_running_loop()
    client = ssl.create_default_context()
    authority.configure_trust(client)
    parts = [0]
    do_handshake = ssl.SSLObject.do_handshake

    def counted(self: ssl.SSLObject) -> None:
        if self.server_side:
            parts[-1] += 1
        do_handshake(self)

    def count() -> None:
        parts.append(0)
        loop.call_soon(count)

    class Peer(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.write(b"hello")  # type: ignore[attr-defined]

    context = server_context(authority)
    pairs = [socket.socketpair() for _ in range(number)]
    accepted = [asyncio.create_task(tls_records.accept(Peer(), there, context, 5)) for _, there in pairs]
    await asyncio.sleep(0.05)
    monkeypatch.setattr(ssl.SSLObject, "do_handshake", counted)
    loop.call_soon(count)
    streams = await asyncio.gather(
        *(asyncio.open_connection(sock=here, ssl=client, server_hostname="localhost") for here, _ in pairs)
    )
    await asyncio.gather(*accepted)
    read = [await reader.readexactly(5) for reader, _ in streams]
    for _, writer in streams:
        writer.close()
    return read, parts


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_handshakes_that_arrive_together_have_their_turns(
    factory: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        read, parts = runner.run(open_connections(trustme.CA(), 60, monkeypatch))
    assert read == [b"hello"] * 60
    assert sum(parts) >= 120
    assert max(parts) <= 2 * HANDSHAKES


class Waiting:
    """The transport below TLS."""

    def __init__(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


async def test_a_handshake_is_not_read_until_its_turn_comes() -> None:
    steps = Steps(asyncio.get_running_loop(), HANDSHAKES)
    made = []
    for _ in range(3 * HANDSHAKES):
        handshake = Handshake(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), steps)
        transport: Any = Waiting()
        handshake.transport, handshake.protocol = transport, Mock()
        assert handshake.may_go_on()  # nothing has arrived
        made.append(handshake)
    assert [handshake.may_go_on() for handshake in made] == [True] * HANDSHAKES + [False] * 2 * HANDSHAKES
    assert not made[-1].may_go_on()
    assert [handshake.transport.paused for handshake in made[HANDSHAKES:]] == [True] * 2 * HANDSHAKES
    await asyncio.sleep(0)
    late = [handshake for handshake in made[HANDSHAKES:] if not handshake.transport.paused]
    assert late == made[HANDSHAKES : 2 * HANDSHAKES]
    await asyncio.sleep(0)
    for handshake in late:
        handshake.protocol.buffer_updated.assert_called_once_with(0)
        assert handshake.may_go_on()
