"""Attack: a peer offers only ciphers without authentication or encryption, or an old version of TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from pathlib import Path

import pytest
from tests.integration.gossip.support import GossipRouter
from tests.integration.support.certificates import Authority, Identity
from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, connector, listener
from tests.security.support.canary import Canary
from tests.security.test_relay_members import GROUP, attributes, start_members

WEAK = ("aNULL", "eNULL", "ADH", "AECDH", "RC4", "3DES", "EXPORT")
ROLES = ("normal", "inter-router", "edge", "route-container")
OLD = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)

pytestmark = pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of routers and clients."""
    return Authority(tmp_path_factory.mktemp("pki"), "good")


def offer(
    port: int,
    *,
    ciphers: str = "ALL:@SECLEVEL=0",
    version: ssl.TLSVersion | None = None,
    identity: Identity | None = None,
) -> str | None:
    """Shake hands on TLS 1.2 or an older version without checking the peer; the cipher, None if refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = version or ssl.TLSVersion.TLSv1
    context.maximum_version = version or ssl.TLSVersion.TLSv1_2
    if identity is not None:
        context.load_cert_chain(identity.certificate, identity.key)
    try:
        context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    except ssl.SSLError:
        return None  # this OpenSSL has no such cipher at all
    with socket.create_connection(("localhost", port), 30) as sock:
        try:
            with context.wrap_socket(sock) as secure:
                return str(secure.cipher())
        except OSError:
            return None


def assert_strong(port: int, identity: Identity | None = None) -> None:
    """The port accepts no weak cipher and no old version, and does accept others."""
    for ciphers in WEAK:
        assert offer(port, ciphers=ciphers, identity=identity) is None, ciphers
    for version in OLD:
        assert offer(port, version=version, identity=identity) is None, version
    assert offer(port, version=ssl.TLSVersion.TLSv1_2, identity=identity) is not None


@pytest.mark.parametrize("stated", [{}, {"ciphers": "ALL:aNULL:eNULL"}], ids=["default", "stated"])
def test_listeners_refuse_weak_ciphers_and_old_versions(
    clients: Clients, routers: Routers, authority: Authority, stated: dict[str, str]
) -> None:
    ports = {role: free_port() for role in ROLES}
    router = routers.start(
        "A",
        authority.issue("router").profile(**stated),
        *(listener(port, role, name=role, sslProfile="tls", requireSsl=True) for role, port in ports.items()),
        mode="interior",
    )
    for port in ports.values():
        assert_strong(port)
    assert_alive(clients, router)


def test_ports_for_members_and_other_sites_refuse_weak_ciphers_and_old_versions(
    routers: Routers, authority: Authority
) -> None:
    one, two = start_members(routers, authority)
    with Canary(one, receive_at=two, address=f"relay/{GROUP}") as canary:
        for name in ("memberPort", "bridgePort"):
            assert_strong(int(str(attributes(one)[name])), authority.issue("nyc-2"))
    canary.report.check()


async def test_gossip_routers_refuse_weak_ciphers_and_old_versions(
    tmp_path: Path, authority: Authority
) -> None:
    router = GossipRouter(tmp_path, identity=authority.issue("gossip"))
    try:
        await router.start()
        await asyncio.to_thread(assert_strong, router.port, authority.issue("member"))
    finally:
        router.kill()


def assert_alive(clients: Clients, router: Router) -> None:
    """Another client still sends and receives."""
    receiver = clients.connect(router.port).receiver("canary", credit=5, accept=True)
    assert clients.connect(router.port).sender("canary").deliver("alive") == "accepted"
    assert receiver.bodies() == ["alive"]


def test_an_old_version_is_used_where_the_profile_names_it(routers: Routers, authority: Authority) -> None:
    port = free_port()
    routers.start(
        "A",
        authority.issue("router").profile(protocols="TLSv1.1 TLSv1.2"),
        listener(port, name="secured", sslProfile="tls", requireSsl=True),
    )
    assert offer(port, version=ssl.TLSVersion.TLSv1_1) is not None
    assert offer(port, version=ssl.TLSVersion.TLSv1) is None
    assert offer(port, ciphers="aNULL") is None


@pytest.mark.parametrize("trusting", [True, False], ids=["with-authority", "without-authority"])
def test_connectors_offer_no_weak_ciphers_and_no_old_versions(
    routers: Routers, authority: Authority, trusting: bool
) -> None:
    """A server that has only such ciphers, or only such versions, gets no connection."""
    server = authority.issue("server")
    contexts = []
    for ciphers, version in (("aNULL:@SECLEVEL=0", None), *(("ALL:@SECLEVEL=0", item) for item in OLD)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(str(server.certificate), str(server.key))
        context.minimum_version = version or ssl.TLSVersion.TLSv1_2
        context.maximum_version = version or ssl.TLSVersion.TLSv1_2
        context.set_ciphers(ciphers)
        contexts.append(context)
    found: list[str] = []
    with socket.create_server(("localhost", 0)) as server_socket:
        attempts = threading.Thread(target=_serve, args=(server_socket, contexts, found), daemon=True)
        attempts.start()
        name, profile = authority.issue("router").profile()
        if not trusting:
            del profile["caCertFile"]
        routers.start(
            "A",
            (name, profile),
            connector(server_socket.getsockname()[1], "normal", name="out", sslProfile="tls"),
        )
        attempts.join(60)
    assert len(found) == len(contexts)
    assert not [entry for entry in found if entry != "refused"]


def _serve(server: socket.socket, contexts: list[ssl.SSLContext], found: list[str]) -> None:
    for context in contexts:
        sock, _ = server.accept()
        sock.settimeout(30)
        try:
            with context.wrap_socket(sock, server_side=True) as secure:
                found.append(str(secure.cipher()))
        except OSError:
            found.append("refused")
            sock.close()
