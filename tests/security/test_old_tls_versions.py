"""Attack: a peer of a collector, member, gossip router, operator, command line or analysis has only an old TLS version.

`test_weak_ciphers` has the same of listeners and connectors.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import kopf
import pytest
from kubernetes.aio import client as kubernetes_client
from proton import SSL, Connection, SSLDomain, Transport, TransportException
from pyarrow import fs
from tests.integration.flow_analysis.conftest import spark
from tests.integration.support.certificates import Authority, Identity
from tests.integration.transport.recorder import profile

from isthmus_flowlog.collector.credentials import ssl_domain
from isthmus_flowlog.collector.settings import Tls
from isthmus_router.credentials import Credentials, TlsFiles, WatchedFiles

__all__ = ["spark"]
VERSIONS = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
OLD, NEW = VERSIONS[:2], VERSIONS[2:]
SECONDS = 20.0
Store = Callable[[ssl.TLSVersion], tuple[int, list[str | None]]]

pytestmark = pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"), "good")


def hostile(
    identity: Identity, version: ssl.TLSVersion, protocol: ssl._SSLMethod = ssl.PROTOCOL_TLS_SERVER
) -> ssl.SSLContext:
    """A peer with a valid certificate that has this version only, with all its ciphers."""
    context = ssl.SSLContext(protocol)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(identity.certificate, identity.key)
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def member_client(identity: Identity) -> ssl.SSLContext:
    """Of members and bridges that dial."""
    return Credentials(profile(identity)).client


def member_server(identity: Identity) -> ssl.SSLContext:
    """Of members and bridges that are dialed."""
    return Credentials(profile(identity)).server


def gossip_server(identity: Identity) -> ssl.SSLContext:
    context = WatchedFiles(TlsFiles.of(profile(identity))).load()
    assert context is not None
    return context


def watches(identity: Identity) -> ssl.SSLContext:
    """Of the operator's watches."""
    return kopf.ConnectionInfo(server="https://localhost", ca_path=str(identity.trusted)).as_ssl_context()


def requests(identity: Identity) -> ssl.SSLContext:
    """Of the other requests of the operator and of the command line."""
    configuration = kubernetes_client.Configuration()
    configuration.ssl_ca_cert = str(identity.trusted)
    context = kubernetes_client.rest.RESTClientObject(configuration).ssl_context
    assert isinstance(context, ssl.SSLContext)
    return context


def agreed(client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """The version that both agree on; None: one refuses the other."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = list(ends)
    while waiting:
        for end in tuple(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return None
            waiting.remove(end)
    return ends[0].version()


@pytest.mark.parametrize("ours", [member_client, watches, requests])
async def test_a_client_refuses_a_server_with_an_old_version(
    authority: Authority, ours: Callable[[Identity], ssl.SSLContext]
) -> None:
    server, context = authority.issue("server"), ours(authority.issue("ours"))
    assert [agreed(context, hostile(server, version)) for version in VERSIONS] == [
        None, None, "TLSv1.2", "TLSv1.3",
    ]  # fmt: skip


@pytest.mark.parametrize("ours", [member_server, gossip_server])
def test_a_server_refuses_a_client_with_an_old_version(
    authority: Authority, ours: Callable[[Identity], ssl.SSLContext]
) -> None:
    peer, context = authority.issue("peer"), ours(authority.issue("ours"))
    found = [agreed(hostile(peer, version, ssl.PROTOCOL_TLS_CLIENT), context) for version in VERSIONS]
    assert found == [None, None, "TLSv1.2", "TLSv1.3"]


def accepted(domain: SSLDomain, server: ssl.SSLContext) -> str | None:
    """The version that proton's client and the server agree on; None: one refuses the other."""
    from_client, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = server.wrap_bio(from_client, to_client, server_side=True)
    transport = Transport()
    SSL(transport, domain).peer_hostname = "localhost"
    connection = Connection()
    transport.bind(connection)
    connection.open()
    for _ in range(20):
        if (count := transport.pending()) > 0:
            from_client.write(transport.peek(count))
            transport.pop(count)
        try:
            end.do_handshake()
            end.read(8)  # what AMQP begins with
            return end.version()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            return None
        if answer := to_client.read():
            try:
                transport.push(answer)
            except TransportException:
                return None
    return None


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("with_lists", [True, False])
def test_a_collector_refuses_a_router_with_an_old_version(
    authority: Authority, verify: bool, with_lists: bool
) -> None:
    router = authority.issue("router")
    lists = str(authority.revoke()) if with_lists else None
    domain = ssl_domain(Tls(ca=str(authority.file), crl=lists, verifyHostname=verify))
    found = [accepted(domain, hostile(router, version)) for version in VERSIONS]
    assert found == [None, None, "TLSv1.2", "TLSv1.3"]


@pytest.mark.parametrize("weak", ["aNULL", "eNULL"])
def test_a_collector_refuses_a_router_without_authentication_or_encryption(
    authority: Authority, weak: str
) -> None:
    context = hostile(authority.issue("router"), ssl.TLSVersion.TLSv1_2)
    context.set_ciphers(f"{weak}:@SECLEVEL=0")
    assert accepted(ssl_domain(Tls(ca=str(authority.file))), context) is None


@pytest.fixture
def store(authority: Authority) -> Iterator[Store]:
    """Starts servers that note the versions that their clients agree to; None: a handshake failed."""
    sockets: list[socket.socket] = []
    identity = authority.issue("store")

    def start(version: ssl.TLSVersion) -> tuple[int, list[str | None]]:
        context, found = hostile(identity, version), list[str | None]()
        server = socket.create_server(("localhost", 0))
        sockets.append(server)

        def serve() -> None:
            while True:
                try:
                    sock, _ = server.accept()
                except OSError:
                    return
                sock.settimeout(SECONDS)
                try:
                    with context.wrap_socket(sock, server_side=True) as secure:
                        found.append(secure.version())
                except OSError:
                    found.append(None)
                    sock.close()

        threading.Thread(target=serve, daemon=True).start()
        return server.getsockname()[1], found

    yield start
    for sock in sockets:
        sock.shutdown(socket.SHUT_RDWR)
        sock.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_collector_refuses_an_object_store_with_an_old_version(
    authority: Authority,
    store: Store,
    version: ssl.TLSVersion,
) -> None:
    """The library has its own OpenSSL, and no setting for versions."""
    port, found = store(version)
    system = fs.S3FileSystem(
        access_key="a",
        secret_key="b",
        region="r",
        endpoint_override=f"localhost:{port}",
        tls_ca_file_path=str(authority.file),
        connect_timeout=SECONDS,
        request_timeout=SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )
    with pytest.raises(OSError, match="NETWORK_CONNECTION"):
        system.get_file_info("bucket/key")
    assert found
    assert set(found) == {None if version in OLD else version.name.replace("_", ".")}


def test_an_analysis_uses_no_old_version(spark: object) -> None:
    """Spark and its clients of object stores use the defaults of Java."""
    context = spark._jvm.javax.net.ssl.SSLContext.getDefault()  # type: ignore[attr-defined]
    for parameters in (context.getDefaultSSLParameters(), context.createSSLEngine().getSSLParameters()):
        assert set(parameters.getProtocols()) == {"TLSv1.2", "TLSv1.3"}
    disabled = spark._jvm.java.security.Security.getProperty("jdk.tls.disabledAlgorithms")  # type: ignore[attr-defined]
    assert {"TLSv1", "TLSv1.1"} <= {item.strip() for item in disabled.split(",")}
