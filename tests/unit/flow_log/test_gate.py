"""The gate between the engine of a collector and its router: each frame passes it, encrypted or not."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest
import trustme
from proton import SSL, Connection, Endpoint, SSLDomain, Transport
from tests.integration.support.raw import (
    AMQP_HEADER,
    BEGIN,
    FLOW,
    HEARTBEAT,
    OPEN,
    SASL_CHALLENGE,
    SASL_HEADER,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    frame,
)

from isthmus_flowlog.collector.gate import Gate
from isthmus_router.message.types import Array, Symbol, UByte, UInt, UShort

OPENED = AMQP_HEADER + frame(OPEN, ["router"])
WINDOW = UInt(1000)


class Router:
    """Bytes from a router, and the engine of a collector that gets them."""

    def __init__(
        self, folder: Path, *, tls: bool = False, login: bool = True, mechanism: str = "ANONYMOUS"
    ) -> None:
        """`mechanism`: with another one, the login is not over."""
        self.connection, self.transport, self.gate = Connection(), Transport(), Gate()
        if mechanism != "ANONYMOUS":
            self.connection.user, self.connection.password = "user", "password"
        if login:
            self.transport.sasl().allowed_mechs(mechanism)
        self.transport.bind(self.connection)
        self._tls = self._session(folder) if tls else None
        self.connection.open()
        self.gate.close_in(self.transport)
        if tls:
            self.send(b"")
            self.send(b"")
        if login:
            mechanisms = frame(SASL_MECHANISMS, [Array(Symbol, (Symbol(mechanism),))])
            self.send(SASL_HEADER + mechanisms)
            if mechanism == "ANONYMOUS":
                self.send(frame(SASL_OUTCOME, [UByte(0)]))

    def _session(self, folder: Path) -> ssl.SSLObject:
        trusted = SSLDomain(SSLDomain.MODE_CLIENT)
        trusted.set_peer_authentication(SSLDomain.ANONYMOUS_PEER)
        SSL(self.transport, trusted)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert("localhost").configure_cert(context)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        return context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def send(self, data: bytes, *, piece: int = 10_000) -> None:
        """Have it arrive in pieces, and the engine write what it has."""
        if self._tls is not None:
            while (pending := self.transport.pending()) > 0:
                self._incoming.write(bytes(self.transport.peek(pending)))
                self.transport.pop(pending)
            if data:
                self._tls.write(data)
            else:
                with contextlib.suppress(ssl.SSLWantReadError):
                    self._tls.do_handshake()
            data = self._outgoing.read()
        for at in range(0, len(data), piece):
            self.transport.push(data[at : at + piece])
        if self._tls is None and (pending := self.transport.pending()) > 0:
            self.transport.pop(pending)

    @property
    def opened(self) -> bool:
        """Whether the engine has the router's open."""
        return bool(self.connection.state & Endpoint.REMOTE_ACTIVE)

    @property
    def frames(self) -> int:
        """How many the engine has had."""
        return int(self.transport.frames_input)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("piece", [1, 10_000])
def test_what_a_router_sends_gets_to_the_engine(tmp_path: Path, tls: bool, piece: int) -> None:
    router = Router(tmp_path, tls=tls)
    router.send(OPENED, piece=piece)
    assert router.opened
    before = router.frames
    router.connection.session().open()
    router.send(HEARTBEAT * 100, piece=piece)
    router.send(frame(BEGIN, [UShort(0), UInt(0), WINDOW, WINDOW]), piece=piece)
    router.send(frame(FLOW, [UInt(0), WINDOW, UInt(0), WINDOW]) * 10, piece=piece)
    assert router.gate.refused is None
    assert router.frames == before + 111


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("login", [False, True])
def test_frames_right_behind_the_header_are_examined(tmp_path: Path, tls: bool, login: bool) -> None:
    router = Router(tmp_path, tls=tls, login=login)
    before = router.frames
    router.send(OPENED + frame(OPEN, ["again"]) + HEARTBEAT)
    assert router.gate.refused == "a second open"
    assert router.frames <= before + 1
    assert not router.opened or router.connection.remote_container == "router"


@pytest.mark.parametrize("tls", [False, True])
def test_nothing_gets_to_the_engine_behind_a_frame_that_is_refused(tmp_path: Path, tls: bool) -> None:
    router = Router(tmp_path, tls=tls)
    router.send(OPENED)
    before = router.frames
    router.send(frame(FLOW, [UInt(0), WINDOW, UInt(0), WINDOW]) + HEARTBEAT * 100)
    assert router.gate.refused == "a frame of no session"
    assert router.frames == before


def test_frames_that_have_yet_to_arrive_have_a_bounded_size(tmp_path: Path) -> None:
    for size in (0, 7, router_most(tmp_path) + 1, 2**32 - 1):
        router = Router(tmp_path)
        router.send(OPENED)
        router.send(size.to_bytes(4))
        assert router.gate.refused == f"a frame of {size} bytes"


def router_most(folder: Path) -> int:
    return int(Router(folder).transport.max_frame_size)


def test_a_frame_that_cannot_be_examined_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = Router(tmp_path)
    monkeypatch.setattr(router.gate.frames, "_open", None)
    router.send(OPENED)
    assert router.gate.refused is not None
    assert not router.opened


@pytest.mark.parametrize("tls", [False, True])
def test_a_login_is_examined(tmp_path: Path, tls: bool) -> None:
    router = Router(tmp_path, tls=tls, mechanism="SCRAM-SHA-256")
    router.send(frame(SASL_CHALLENGE, [b"r=abc,s=QUFB,i=2000000000"]))
    assert router.gate.refused is not None
    assert "2000000000 iterations of SCRAM" in router.gate.refused


def test_how_long_the_router_has_taken_nothing(tmp_path: Path) -> None:
    router = Router(tmp_path)
    router.send(OPENED)
    router.gate.look(5.0)
    router.gate.look(6.0)
    assert router.gate.unread_seconds == 0
    router.connection.session().open()
    router.gate.look(7.0)
    assert router.gate.unread_seconds == 0
    router.gate.look(9.0)
    assert router.gate.unread_seconds == 2
    router.transport.pop(1)
    router.gate.look(10.0)
    assert router.gate.unread_seconds == 0
    router.transport.pop(router.transport.pending())
    router.gate.look(20.0)
    router.gate.look(30.0)
    assert router.gate.unread_seconds == 0


def test_the_engine_has_its_own_layers_again_when_the_connection_has_ended(tmp_path: Path) -> None:
    router = Router(tmp_path)
    router.send(OPENED)
    router.gate.open_up()
    router.gate.open_up()
    before = router.frames
    router.send(HEARTBEAT)
    assert router.frames == before + 1


def test_the_input_may_end(tmp_path: Path) -> None:
    router = Router(tmp_path)
    router.send(OPENED)
    router.transport.close_tail()
    assert router.gate.refused is None
    assert router.transport.condition is not None
