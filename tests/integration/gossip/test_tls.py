"""The gossip router behind TLS: who may come in, and new certificates for new connections."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
from pathlib import Path

import pytest
from tests.integration.gossip.conftest import StartRouter
from tests.integration.gossip.support import GROUP, GossipRouter, Peer, eventually, info
from tests.integration.support.certificates import Authority, Identity

from isthmus_router import pem
from isthmus_router.gossip.messages import VERSION, GetMembers, Heartbeat, Hello, Members, Register


def context(identity: Identity, *, present: bool = True) -> ssl.SSLContext:
    """Of a client."""
    found = ssl.create_default_context(cafile=str(identity.trusted))
    if present:
        found.load_cert_chain(identity.certificate, identity.key)
    return found


def copied(identity: Identity, folder: Path) -> Identity:
    """Files that a test may replace."""
    folder.mkdir(exist_ok=True)
    paths = [
        Path(shutil.copy(path, folder / name))
        for path, name in zip(identity_paths(identity), "cka", strict=True)
    ]
    return Identity(*paths)


def identity_paths(identity: Identity) -> tuple[Path, Path, Path]:
    return identity.certificate, identity.key, identity.trusted


async def turned_away(router: GossipRouter, tls: ssl.SSLContext | None) -> bool:
    """Whether a connection made so ends without a word."""
    try:
        peer = await Peer.connect(router, tls)
        peer.say(Hello(VERSION))
        return await peer.hear() is None
    except (ssl.SSLError, ConnectionError):
        return True


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "one")


async def test_mutual_tls(authority: Authority, tmp_path: Path, start_router: StartRouter) -> None:
    router = await start_router(identity=authority.issue("router"))
    member, stranger = authority.issue("member"), Authority(tmp_path, "two").issue("stranger")
    a = info("a")
    peer = await Peer.greeted(router, context(member))
    peer.say(Register(GROUP, a))
    peer.say(GetMembers(GROUP))
    assert await peer.hear() == Members(GROUP, (a,), True)

    trusting = context(stranger)
    trusting.load_verify_locations(authority.file)
    for unwelcome in (context(member, present=False), trusting, None):
        assert await turned_away(router, unwelcome)
    assert router.metric("connections") == 1


@pytest.mark.parametrize(("oldest", "welcome"), [("TLSv1.2", True), ("TLSv1.3", False)])
async def test_the_oldest_version(
    authority: Authority, start_router: StartRouter, oldest: str, welcome: bool
) -> None:
    router = await start_router("--tls-minimum-version", oldest, identity=authority.issue("router"))
    old = context(authority.issue("member"))
    new = context(authority.issue("other"))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    await Peer.greeted(router, new)
    if welcome:
        await Peer.greeted(router, old)
    else:
        assert await turned_away(router, old)


async def test_large_messages_through_tls(authority: Authority, start_router: StartRouter) -> None:
    router = await start_router(identity=authority.issue("router"))
    a, b = info("a"), info("b")
    sender, receiver = [await Peer.greeted(router, context(authority.issue("member"))) for _ in "ab"]
    sender.say(Register(GROUP, a))
    receiver.say(Register(GROUP, b))
    await eventually(lambda: router.metric("members") == 2, "registered")
    payload = bytes(range(256)) * 20_000
    for _ in range(3):
        sender.pass_on(a, b.id, payload)
        assert await receiver.hear() == payload


async def test_a_revoked_member_is_disconnected_and_refused(
    authority: Authority, start_router: StartRouter
) -> None:
    honest, mallory = authority.issue("honest"), authority.issue("mallory")
    lists = authority.revoke()
    router = await start_router("--tls-crl", str(lists), identity=authority.issue("router"))
    open_before = [await Peer.greeted(router, context(identity)) for identity in (mallory, honest)]
    authority.revoke(mallory)
    await eventually(lambda: router.metric("tls_loads_total") == 1, "the list is loaded")
    assert await open_before[0].hear() is None
    open_before[1].say(Heartbeat())
    assert await open_before[1].hear() == Heartbeat()
    assert await turned_away(router, context(mallory))
    await Peer.greeted(router, context(honest))


async def test_a_member_of_a_revoked_authority_is_disconnected_and_refused(
    authority: Authority, start_router: StartRouter
) -> None:
    lost, good = authority.subordinate("lost"), authority.subordinate("good")
    mallory, honest = lost.issue("mallory"), good.issue("honest")
    lists = authority.revoke()
    router = await start_router("--tls-crl", str(lists), identity=authority.issue("router"))
    open_before = [await Peer.greeted(router, context(identity)) for identity in (mallory, honest)]
    authority.revoke(lost)
    await eventually(lambda: router.metric("tls_loads_total") == 1, "the list is loaded")
    assert await open_before[0].hear() is None
    open_before[1].say(Heartbeat())
    assert await open_before[1].hear() == Heartbeat()
    assert await turned_away(router, context(mallory))
    await Peer.greeted(router, context(honest))


async def test_a_list_that_is_missing_is_told(
    authority: Authority, tmp_path: Path, start_router: StartRouter
) -> None:
    other = Authority(tmp_path, "other")
    lists = str(other.revoke().rename(tmp_path / "lists.crl"))
    router = await start_router("--tls-crl", lists, identity=authority.issue("router"))
    assert "no list of these authorities in caCertFile" in router.log
    assert await turned_away(router, context(authority.issue("member")))
    authority.revoke().rename(lists)
    await eventually(lambda: router.metric("tls_loads_total") == 1, "the list is loaded")
    await Peer.greeted(router, context(authority.issue("member")))
    assert router.log.count("revocation lists incomplete") == 1


async def test_changed_files_serve_new_connections(
    authority: Authority, tmp_path: Path, start_router: StartRouter
) -> None:
    files = copied(authority.issue("router"), tmp_path / "mounted")
    router = await start_router(identity=files)
    old = await Peer.greeted(router, context(authority.issue("member")))

    def reported() -> tuple[str, str]:
        status = json.loads(router.page("/status"))
        return status["certificates"], status["certificatesProblem"]

    def digest() -> str:
        return pem.digest(files.trusted.read_bytes(), files.certificate.read_bytes(), None)

    first = digest()
    assert reported() == (first, "")
    files.key.write_text("no key")
    await eventually(lambda: router.metric("tls_failures_total") == 1, "bad files told")
    certificates, problem = reported()
    assert certificates == first
    assert problem.startswith("certFile")
    assert "not a PEM file" in problem
    await Peer.greeted(router, context(authority.issue("member")))

    other = Authority(tmp_path, "two")
    copied(other.issue("router"), tmp_path / "mounted")
    await eventually(lambda: router.metric("tls_loads_total") == 1, "new files loaded")
    assert reported() == (digest(), "")
    assert digest() != first
    await asyncio.gather(*(Peer.greeted(router, context(other.issue("member"))) for _ in range(5)))
    with pytest.raises(ssl.SSLError):
        await Peer.connect(router, context(authority.issue("member")))
    old.say(Heartbeat())
    assert await old.hear() == Heartbeat()
