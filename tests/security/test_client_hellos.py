"""Attack: a host sends the first frame of many TLS handshakes at the same time, each of which costs a signature."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from tests.integration.support.certificates import Authority
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, listener
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
    hello = client_hello()
    before = memory(router.pid)
    with Canary(router, rate=200) as canary:
        for _ in range(TIMES):
            sockets = half_open(port, HANDSHAKES)
            for sock in sockets:
                sock.sendall(hello)
            for sock in sockets:
                sock.settimeout(60)
                assert sock.recv(5)[:1] == b"\x16", "a handshake that waited for the others goes on"
                sock.close()
    canary.report.check(at_least=100)
    assert canary.report.cpu_p99 < 0.05, canary.report
    assert memory(router.pid) < before + 60 * MEBIBYTE
