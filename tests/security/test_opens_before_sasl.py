"""An open frame in the place of a SASL frame opens nothing where a listener demands more than that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.support.by_hand import begin_frame, open_frame, receive_from
from tests.integration.support.certificates import Authority
from tests.integration.support.ports import free_port
from tests.integration.support.raw import AMQP_HEADER, SASL_HEADER, RawConnection
from tests.integration.support.routers import Routers, listener
from tests.security.support.canary import Canary

DEMANDS = {
    "authenticatePeer": {"authenticatePeer": True, "saslMechanisms": "PLAIN SCRAM-SHA-256"},
    "requireSsl": {"sslProfile": "tls", "requireSsl": True, "saslMechanisms": "ANONYMOUS"},
    "requireClientCertificate": {
        "sslProfile": "tls",
        "requireClientCertificate": True,
        "authenticatePeer": True,
        "saslMechanisms": "EXTERNAL",
    },
}
ROLES = ("normal", "inter-router", "edge", "route-container")
THIEF = "thief"
OF_CANARY = 2
"""Connections, and links."""


@pytest.mark.parametrize("demand", DEMANDS)
def test_open_instead_of_sasl(either_kernel: Callable[[], Routers], tmp_path: Path, demand: str) -> None:
    profile = Authority(tmp_path, "ca").issue("router").profile()
    ports = {role: free_port() for role in ROLES}
    sections = [listener(port, role, name=role, **DEMANDS[demand]) for role, port in ports.items()]
    router = either_kernel().start("A", profile, *sections, mode="interior")
    with Canary(router) as canary:
        for port in ports.values():
            with RawConnection(port) as thief:
                thief.send(SASL_HEADER, open_frame(THIEF), begin_frame(), receive_from("orders", credit=10))
                thief.receive()
            assert router.status()["connectionsTotal"] == OF_CANARY
    canary.report.check()
    assert router.log.count("before its handshakes were over") == len(ports)


def test_session_before_open(either_kernel: Callable[[], Routers]) -> None:
    router = either_kernel().add("A").start()
    with Canary(router) as canary:
        for header in (SASL_HEADER, AMQP_HEADER):
            with RawConnection(router.port) as thief:
                thief.send(header, begin_frame(), receive_from("orders", credit=10))
                thief.receive()
        assert router.metric("links", 'type="endpoint"') == OF_CANARY
    canary.report.check()
