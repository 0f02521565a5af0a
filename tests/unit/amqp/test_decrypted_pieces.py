"""What the engine decrypts passes a gate in pieces, whole frames at a time, also when no more bytes arrive."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cproton_ffi import ffi, lib
from proton import SSL, Connection, SSLDomain, Transport
from tests.integration.support.raw import AMQP_HEADER, ATTACH, BEGIN, OPEN, SASL_HEADER, SASL_INIT, frame
from tests.unit.amqp.rig import End, Rig

from isthmus_router.amqp.sockets.layers import AMQP, NO_BYTES, PLACE, Gate, place_for_gate
from isthmus_router.core.roles import Role
from isthmus_router.message.types import Described, Symbol, UInt, ULong, UShort

SESSIONS = 50
PIECE = 64


class Encrypted:
    """A client and the engine of a router, in memory."""

    def __init__(self, folder: Path, *, tls: bool) -> None:
        self.connection, self.client = Connection(), Transport()
        self.router = lib.pn_transport()
        self.pn = lib.pn_connection()
        lib.pn_transport_set_server(self.router)
        lib.pn_transport_bind(self.router, self.pn)
        lib.pn_connection_open(self.pn)
        if tls:
            certificate = trustme.CA().issue_cert("localhost")
            chain, key = folder / "chain.pem", folder / "key.pem"
            certificate.private_key_pem.write_to_path(str(key))
            certificate.cert_chain_pems[0].write_to_path(str(chain))
            self._domain = lib.pn_ssl_domain(lib.PN_SSL_MODE_SERVER)
            names = str(chain).encode(), str(key).encode()
            assert lib.pn_ssl_domain_set_credentials(self._domain, *names, ffi.NULL) == 0
            assert lib.pn_ssl_init(lib.pn_ssl(self.router), self._domain, ffi.NULL) == 0
            trusted = SSLDomain(SSLDomain.MODE_CLIENT)
            trusted.set_peer_authentication(SSLDomain.ANONYMOUS_PEER)
            SSL(self.client, trusted)
        self.client.bind(self.connection)
        self.connection.open()

    @property
    def frames(self) -> int:
        """How many the router's engine has worked off."""
        return int(lib.pn_transport_get_frames_input(self.router))

    def send(self) -> bool:
        """Give the router's engine what the client has; whether there was anything."""
        pending = self.client.pending()
        if pending <= 0:
            return False
        data = bytes(self.client.peek(pending))
        self.client.pop(pending)
        while data:
            taken = lib.pn_transport_push(self.router, data, len(data))
            assert taken > 0
            data = data[taken:]
        return True

    def answer(self) -> bool:
        """Give the client what the router's engine has; whether there was anything."""
        pending = lib.pn_transport_pending(self.router)
        if pending <= 0:
            return False
        data: Any = ffi.new("char[]", pending)
        lib.pn_transport_peek(self.router, data, pending)
        lib.pn_transport_pop(self.router, pending)
        self.client.push(bytes(ffi.buffer(data, pending)))
        return True

    def close(self) -> None:
        """Give the engine's objects back."""
        lib.pn_transport_unbind(self.router)
        lib.pn_connection_release(self.pn)
        lib.pn_decref(self.pn)
        lib.pn_decref(self.router)


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Encrypted]:
    """Both ends have opened."""
    ends = Encrypted(tmp_path, tls=True)
    assert place_for_gate(ends.router) is None
    while ends.send() | ends.answer():
        pass
    assert ends.frames == 1
    yield ends
    ends.close()


def test_frames_of_a_record_pass_in_pieces(encrypted: Encrypted) -> None:
    place = place_for_gate(encrypted.router)
    assert place is not None
    assert place > 0
    gate = Gate(encrypted.router, place)
    for _ in range(SESSIONS):
        encrypted.connection.session().open()
    gate.allowed = PIECE
    encrypted.send()
    rounds = 0
    while gate.held:
        before = encrypted.frames
        gate.allowed = PIECE
        assert 0 < gate.resume() < 2 * PIECE
        assert 1 <= encrypted.frames - before <= PIECE // 8
        rounds += 1
    assert encrypted.frames == 1 + SESSIONS
    assert rounds >= SESSIONS * 20 // PIECE
    gate.remove()
    encrypted.connection.session().open()
    encrypted.send()
    assert encrypted.frames == 2 + SESSIONS


def test_end_comes_after_all_frames(encrypted: Encrypted) -> None:
    place = place_for_gate(encrypted.router)
    assert place is not None
    gate = Gate(encrypted.router, place)
    for _ in range(SESSIONS):
        encrypted.connection.session().open()
    encrypted.send()
    assert gate.held
    encrypted.connection.close()
    encrypted.send()
    assert encrypted.frames == 1
    for _ in range(2 * SESSIONS):
        gate.allowed = PIECE
        gate.resume()
    assert encrypted.frames == 2 + SESSIONS
    lib.pn_connection_close(encrypted.pn)
    while encrypted.answer() | encrypted.send():
        pass
    assert lib.pn_transport_capacity(encrypted.router) < 0
    assert lib.pn_transport_pending(encrypted.router) < 0
    assert not lib.pn_condition_is_set(lib.pn_transport_condition(encrypted.router))
    gate.remove()


def test_all_frames_pass_where_nothing_decrypts(tmp_path: Path) -> None:
    ends = Encrypted(tmp_path, tls=False)
    assert place_for_gate(ends.router) is None
    while ends.send() | ends.answer():
        pass
    place = place_for_gate(ends.router)
    assert place is not None
    gate = Gate(ends.router, place)
    assert not gate.decrypts
    gate.allowed = NO_BYTES
    for _ in range(SESSIONS):
        ends.connection.session().open()
    ends.send()
    assert not gate.held
    assert ends.frames == 1 + SESSIONS
    gate.remove()
    assert ffi.cast("uintptr_t *", ends.router)[PLACE + place] == AMQP
    ends.close()


class Client(End):
    """A peer that sends only the bytes that the test gives to it, and never reads."""

    def _say(self) -> bool:
        return False

    def says(self, data: bytes) -> None:
        """Send some bytes, and have the router read."""
        self.socket.send(data)
        self.rig.driver.turn()


def attach(handle: int) -> bytes:
    source, target = Described(ULong(0x28), [None]), Described(ULong(0x29), ["closest"])
    fields = [f"s{handle}", UInt(handle), False, None, None, source, target, None, None, UInt(0)]
    return frame(ATTACH, fields)


def test_client_that_does_not_read_the_protocol_header_is_dropped(rig: Rig) -> None:
    """Until it is written, there is no place for a gate."""
    client = Client(rig, "client", Role.NORMAL)
    router_side = client.router_side
    with contextlib.suppress(BlockingIOError):
        while True:
            router_side.socket.send(bytes(1 << 20))
    client.says(SASL_HEADER)
    assert router_side.write_blocked
    opening = frame(OPEN, ["client", None, UInt(65536), UShort(10)])
    begin = frame(BEGIN, [None, UInt(0), UInt(1000), UInt(1000)])
    client.says(frame(SASL_INIT, [Symbol("ANONYMOUS")]) + AMQP_HEADER + opening + begin + attach(0))
    assert router_side.opened
    rig.driver.poller.limit(router_side, 1024)
    client.says(attach(1))
    assert router_side.closed
    assert router_side.close_reason == "the peer does not read the answer to its open frame"
