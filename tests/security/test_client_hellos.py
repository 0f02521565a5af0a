"""Attack: a host sends the first frame of many TLS handshakes at the same time, each of which costs a signature."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trustme
from tests.integration.sites.support.relay_sites import RelaySites
from tests.integration.support.certificates import Authority
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, listener
from tests.security.support.canary import Canary, memory
from tests.security.support.half_open import client_hello, half_open

HANDSHAKES = 250
TIMES = 6
MEBIBYTE = 1 << 20


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
    authority = Authority(tmp_path, "own")
    one, two = (
        routers.add(name, authority.issue(name, key_type=trustme.KeyType.RSA).profile("tls", ordinal=1))
        for name in ("nyc-0", "nyc-1")
    )
    sites = RelaySites()
    sites.site("nyc", one, two, plainText=False, sslProfile="tls", bridgeSslProfile="tls")
    routers.start_all()
    sites.formed()
    attributes = next(values for kind, values in one.sections if kind == "relaySite")
    attack(one, int(str(attributes[port])), 100)


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
