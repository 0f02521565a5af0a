"""The chain of a peer's certificate that the handshake has verified, and sessions that are resumed and have none."""

from __future__ import annotations

import asyncio
import ctypes
import ssl
from pathlib import Path
from unittest.mock import Mock

import pytest
from cryptography import x509
from tests.integration.support.certificates import Authority, Identity

from isthmus_router.credentials import TlsFiles, WatchedFiles, peer_chain
from isthmus_router.openssl import Revocations, Session, made_sessions

PROTOCOLS = (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def files(identity: Identity, lists: Path | None = None) -> TlsFiles:
    return TlsFiles(
        str(identity.certificate),
        str(identity.key),
        str(identity.trusted),
        revocations=str(lists) if lists is not None else None,
    )


def shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a new session, the server's first; `session` is what the client wants to resume."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = server.wrap_bio(to_server, to_client, server_side=True)
    far = client.wrap_bio(to_client, to_server, session=session)
    for end in (far, near, far, near):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    near.write(b"x")
    assert far.read() == b"x"
    return near, far


def transport(end: ssl.SSLObject | None) -> asyncio.BaseTransport:
    return Mock(asyncio.BaseTransport, get_extra_info={"ssl_object": end}.get)


def resumable(identity: Identity, version: ssl.TLSVersion) -> ssl.SSLContext:
    """Of a server that lets clients resume their sessions."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(identity.certificate, identity.key)
    found.load_verify_locations(identity.trusted)
    found.verify_mode, found.maximum_version = ssl.CERT_REQUIRED, version
    return found


@pytest.fixture
def root(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "root")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_chain_reaches_from_the_peer_to_the_trusted_authority(
    root: Authority, version: ssl.TLSVersion
) -> None:
    identity = root.subordinate("west").issue("leaf")
    server, client = (files(identity).read().context(protocol) for protocol in PROTOCOLS)
    server.maximum_version = version
    expected = [
        x509.load_pem_x509_certificate(file.read_bytes())
        for file in (identity.certificate, root.folder / "west-ca.pem", root.file)
    ]
    for end in shake_hands(server, client):
        chain = peer_chain(transport(end))
        assert chain is not None
        assert [x509.load_der_x509_certificate(item) for item in chain] == expected


def test_who_shows_no_certificate_has_no_chain(root: Authority) -> None:
    identity = root.issue("leaf")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(identity.certificate, identity.key)
    near, _ = shake_hands(server, files(identity).read().context(ssl.PROTOCOL_TLS_CLIENT))
    watched = WatchedFiles(files(identity, root.revoke()))
    assert watched.load() is not None
    for chain in (peer_chain(None), peer_chain(transport(None)), peer_chain(transport(near))):
        assert chain is None
        assert not watched.is_revoked(chain)


@pytest.mark.parametrize("version", VERSIONS)
def test_servers_resume_no_session(root: Authority, version: ssl.TLSVersion) -> None:
    """The control shows that the client could."""
    identity = root.issue("leaf")
    client = files(identity).read().context(ssl.PROTOCOL_TLS_CLIENT)
    client.maximum_version = version
    control = resumable(identity, version)
    own = files(identity).read().context(ssl.PROTOCOL_TLS_SERVER)
    for server, resumed in ((control, True), (own, False)):
        _, first = shake_hands(server, client)
        _, second = shake_hands(server, client, first.session)
        assert second.session_reused is resumed


@pytest.mark.parametrize("version", VERSIONS)
def test_a_peer_whose_chain_is_not_known_is_not_accepted(root: Authority, version: ssl.TLSVersion) -> None:
    """A session that a server has resumed all the same."""
    identity, lists = root.issue("leaf"), root.revoke()
    watched = WatchedFiles(files(identity, lists))
    assert watched.load() is not None
    client = files(identity).read().context(ssl.PROTOCOL_TLS_CLIENT)
    server = resumable(identity, version)
    near, far = shake_hands(server, client)
    assert not watched.is_revoked(peer_chain(transport(near)))
    with made_sessions() as made:
        near, _ = shake_hands(server, client, far.session)
    assert near.session_reused
    assert watched.is_revoked(peer_chain(transport(near)))
    session = Session(made[0])
    assert Revocations(lists.read_bytes()).include_peer(session)
    session.release()


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"\x30\x0e\x30\x0c\x02\x02\0\5\x30\x00\x30\x04\x00\x02\0\0"]
)
def test_a_certificate_that_cannot_be_read_is_not_accepted(root: Authority, content: bytes) -> None:
    assert Revocations(root.revoke().read_bytes()).include(content)


@pytest.mark.parametrize("revoked", ["", "complete", "delta"])
def test_delta_lists_revoke_beside_complete_lists(root: Authority, tmp_path: Path, revoked: str) -> None:
    """A newer delta list hides nothing of the complete list: OpenSSL only looks at that one, and the look that follows
    each handshake is at both."""
    identity, lists = root.issue("leaf"), tmp_path / "both.crl"
    texts = [
        root.revoke(*([identity] if kind == revoked else []), delta=kind == "delta").read_bytes()
        for kind in ("complete", "delta")
    ]
    lists.write_bytes(b"".join(texts))
    watched = WatchedFiles(files(identity, lists))
    client = files(identity).read().context(ssl.PROTOCOL_TLS_CLIENT)
    server = watched.load()
    assert server is not None
    if revoked == "complete":
        with pytest.raises(ssl.SSLCertVerificationError, match="certificate revoked"):
            shake_hands(server, client)
        return
    near, _ = shake_hands(server, client)
    assert watched.is_revoked(peer_chain(transport(near))) is (revoked == "delta")


def test_a_delta_list_alone_is_not_enough(root: Authority) -> None:
    identity = root.issue("leaf")
    server = WatchedFiles(files(identity, root.revoke(delta=True))).load()
    assert server is not None
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get certificate CRL"):
        shake_hands(server, files(identity).read().context(ssl.PROTOCOL_TLS_CLIENT))


def test_certificates_beside_lists_are_not_trusted(root: Authority, tmp_path: Path) -> None:
    """Lists are signed, so that they may come from anywhere. Who can change them must not become an authority."""
    rogue, both = Authority(tmp_path, "rogue"), tmp_path / "both.crl"
    both.write_bytes(root.revoke().read_bytes() + rogue.file.read_bytes() + rogue.revoke().read_bytes())
    server = WatchedFiles(files(root.issue("router"), both)).load()
    assert server is not None
    client = files(rogue.issue("mallory", trusted=root.file)).read().context(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer certificate"):
        shake_hands(server, client)


def test_lists_beside_authorities_count_for_open_connections(root: Authority, tmp_path: Path) -> None:
    """As they do for handshakes, where there is a file of lists."""
    identity, other = root.issue("leaf"), Authority(tmp_path, "other")
    server, client = (files(identity).read().context(protocol) for protocol in PROTOCOLS)
    near, _ = shake_hands(server, client)
    both = tmp_path / "both.pem"
    both.write_bytes(root.file.read_bytes() + root.revoke(identity).read_bytes())
    watched = WatchedFiles(files(identity, other.revoke())._replace(authority=str(both)))
    assert watched.load() is not None
    assert watched.remark == ""
    assert watched.is_revoked(peer_chain(transport(near)))


def test_long_lists_are_sorted_when_they_are_decoded(root: Authority) -> None:
    """Threads decode them. The first look into one that is not sorted sorts it, and would stop the event loop."""
    lists = Revocations(root.revoke(*(root.issue(f"lost-{number}") for number in range(20))).read_bytes())
    library, (item,) = lists._library, lists._lists
    for function in (library.X509_CRL_get_REVOKED, library.OPENSSL_sk_is_sorted):
        function.restype, function.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    assert library.OPENSSL_sk_is_sorted(library.X509_CRL_get_REVOKED(item)) == 1
