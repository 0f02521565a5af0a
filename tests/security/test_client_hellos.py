"""Attack: a host sends the first frame of many TLS handshakes at the same time, each of which costs a signature."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
import trustme
from tests.integration.support.certificates import Authority
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, listener
from tests.security.support.canary import Canary, cpu, memory
from tests.security.support.half_open import changed_hello, client_hello, half_open
from tests.security.support.secure_site import secure_site

HANDSHAKES = 250
TIMES = 6
MEBIBYTE = 1 << 20
GROUPS, KEY_SHARES = 10, 51
"""Numbers of extensions."""
FFDHE8192, UNKNOWN = b"\x01\x04", b"\x7f\x7f"
COSTLY_HELLOS = 10
MOST_CPU_SECONDS = 0.01
"""Of one hello on average. A key exchange in the field of 8,192 bits took 0.125 s, the long lists 0.03 s."""


@pytest.mark.parametrize("kernel", ["compiled", "python"])
def test_handshakes_that_arrive_together(routers: Routers, tmp_path: Path, kernel: str) -> None:
    routers.kernel = kernel
    identity = Authority(tmp_path, "bank").issue("localhost", key_type=trustme.KeyType.RSA)
    port = free_port()
    router = routers.start(
        "A", identity.profile(), listener(port, name="secure", sslProfile="tls", requireSsl=True)
    )
    attack(router, port, 60)


@pytest.mark.parametrize("port", ["memberPort", "bridgePort"])
def test_handshakes_with_a_member_that_arrive_together(routers: Routers, tmp_path: Path, port: str) -> None:
    member, ports = secure_site(routers, Authority(tmp_path, "own"), key_type=trustme.KeyType.RSA)
    attack(member, ports[port], 100)


def sized(content: bytes) -> bytes:
    return len(content).to_bytes(2) + content


def costly(kind: str) -> bytes:
    """A ClientHello that takes long: by its only group, or by many key shares of the last of many groups."""
    if kind == "finite field":
        share = FFDHE8192 + sized(b"\x42" + bytes(1023))
        return changed_hello({GROUPS: sized(FFDHE8192), KEY_SHARES: sized(share)})
    many = b"".join((0x8000 + number).to_bytes(2) for number in range(15_900)) + UNKNOWN
    return changed_hello({GROUPS: sized(many), KEY_SHARES: sized((UNKNOWN + sized(b"x")) * 6_300)})


@pytest.mark.parametrize("kind", ["finite field", "long lists"])
@pytest.mark.parametrize("port", ["listener", "memberPort", "bridgePort"])
def test_hellos_that_take_long(routers: Routers, tmp_path: Path, port: str, kind: str) -> None:
    number, hello = free_port(), costly(kind)
    secured = listener(number, name="secure", sslProfile="tls", requireSsl=True)
    one, ports = secure_site(routers, Authority(tmp_path, "own"), secured)
    ports["listener"] = number
    with Canary(one) as canary:
        before = cpu(one.pid)
        for _ in range(COSTLY_HELLOS):
            (sock,) = half_open(ports[port], 1)
            with sock, contextlib.suppress(ConnectionError):
                sock.sendall(hello)
                assert sock.recv(1) in (b"\x15", b""), "an alert, or the end"
        taken = cpu(one.pid) - before
    canary.report.check()
    # What the canary has used in this time is 0.3 ms for each of its messages.
    assert taken / COSTLY_HELLOS < MOST_CPU_SECONDS + 0.0003 * canary.report.sent / COSTLY_HELLOS


def attack(router: Router, port: int, most: int) -> None:
    """Complete the first frames of many handshakes together, again and again. `most`: MiB more of memory."""
    hello = client_hello()
    before = memory(router.pid)
    with Canary(router, rate=200) as canary:
        for _ in range(TIMES):
            sockets = half_open(port, HANDSHAKES)
            for sock in sockets:
                sock.sendall(hello[:-1])
            time.sleep(0.2)
            for sock in sockets:
                sock.sendall(hello[-1:])
            for sock in sockets:
                sock.settimeout(60)
                assert sock.recv(5)[:1] == b"\x16", "a handshake that waited for the others goes on"
                sock.close()
    canary.report.check(at_least=100)
    assert canary.report.cpu_p99 < 0.05, canary.report
    assert memory(router.pid) < before + most * MEBIBYTE
