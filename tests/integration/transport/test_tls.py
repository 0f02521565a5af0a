"""Mutual TLS between members: who is let in, and what happens when files change."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from pathlib import Path

import pytest
from tests.integration.support.certificates import Authority, Identity
from tests.integration.transport.recorder import GROUP, Member, Members, profile, until

from isthmus_router.credentials import CredentialsError
from isthmus_router.groups.frames import Kind
from isthmus_router.groups.identity import MemberInfo, PhysicalAddress, member_id
from isthmus_router.places import LEAST
from isthmus_router.transport.framing import PREFIX
from isthmus_router.transport.hello import Hello, encode_hello


async def test_members_of_one_authority(members: Members, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "site")
    one, two = (members.add(profile=profile(authority.issue(name))) for name in ("one", "two"))
    bodies = [bytes((number % 256,)) * (10 * number) for number in range(1000)]
    for body in bodies:
        one.send(two, body)
    await until(lambda: len(two.frames) == 1000)
    assert two.bodies == bodies
    two.send(one, b"back")
    await until(lambda: one.bodies == [b"back"])


async def test_certificate_of_another_authority(members: Members, tmp_path: Path) -> None:
    own, foreign = Authority(tmp_path, "own"), Authority(tmp_path, "foreign")
    one = members.add(profile=profile(own.issue("one")))
    stranger = members.add(profile=profile(foreign.issue("stranger", trusted=own.file)))
    stranger.send(one, b"hello")
    await until(lambda: stranger.lost == [(one.address, False)])
    one.send(stranger, b"hello")
    await until(lambda: one.lost == [(stranger.address, False)])
    assert one.frames == stranger.frames == []


async def greet(one: Member, identity: Identity, member: MemberInfo) -> asyncio.StreamWriter:
    """Connect as that member, and wait until the HELLO is answered or refused."""
    context = ssl.create_default_context(cafile=str(identity.trusted))
    context.check_hostname = False
    context.load_cert_chain(identity.certificate, identity.key)
    reader, writer = await asyncio.open_connection("127.0.0.1", one.address.port, ssl=context)
    frame = encode_hello(Hello(GROUP, member))
    writer.write(PREFIX.pack(len(frame)) + frame)
    with contextlib.suppress(ConnectionError):
        await reader.read(1)
    return writer


async def test_certificate_of_another_name(members: Members, tmp_path: Path) -> None:
    """The member that wants names neither accepts nor dials one without them; who wants none is told why."""
    authority = Authority(tmp_path, "site")
    strict, named, other = (
        members.add(
            profile=profile(authority.issue(name, f"{name}.site.example")),
            peer_names=("*.site.example",) * wants,
        )
        for name, wants in (("strict", True), ("named", False), ("other.example", False))
    )
    named.send(strict, b"hello")
    await until(lambda: strict.bodies == [b"hello"])
    other.send(strict, b"hello")
    await until(lambda: other.lost == [(strict.address, False)])
    strict.send(other, b"hello")
    await until(lambda: strict.lost == [(other.address, False)])
    assert strict.bodies == [b"hello"]
    assert other.frames == []
    assert strict.driver.statistics()["refused"] == 2


async def test_a_certificate_is_bound_to_the_name_of_its_member(members: Members, tmp_path: Path) -> None:
    """Of a member that says that it is another one nothing arrives, whoever dials."""
    authority = Authority(tmp_path, "site")
    one, two = (
        members.add(profile=profile(authority.issue(name)), bind_names=True)
        for name in ("member-1", "member")
    )
    two.send(one, b"hello")
    await until(lambda: one.bodies == [b"hello"])
    impostor = members.add(profile=profile(authority.issue("payments-app")))
    impostor.send(one, b"forged")
    await until(lambda: impostor.lost == [(one.address, False)])
    one.send(impostor, b"secret")
    await until(lambda: (impostor.address, False) in one.lost)
    assert one.bodies == [b"hello"]
    assert impostor.frames == []
    problem = one.driver.problems.recent()[0]
    assert "certificate is for localhost, payments-app, not for member member-3" in problem


async def test_nobody_takes_over_the_id_of_another_member(members: Members, tmp_path: Path) -> None:
    """Not even with a certificate of its own, and not when the other one is not connected."""
    authority = Authority(tmp_path, "site")
    one, victim = (
        members.add(profile=profile(authority.issue(name)), bind_names=True)
        for name in ("member-1", "member-2")
    )
    victim.send(one, b"hello")
    await until(lambda: one.bodies == [b"hello"])
    thief = members.add(profile=profile(authority.issue("member-3")))
    thief.driver._members.hello = Hello(GROUP, thief.info._replace(id=victim.id))
    thief.id = victim.id
    for _ in range(2):
        thief.lost.clear()
        thief.send(one, b"bye", Kind.LEAVE)
        await until(lambda: thief.lost == [(one.address, False)])
        await victim.driver.close()
    assert one.bodies == [b"hello"]
    assert any("its id is that of member member-2" in problem for problem in one.driver.problems.recent())


async def test_nobody_has_the_ids_of_others_forgotten(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By HELLO with many ids, in the names of as many replicas."""
    monkeypatch.setattr("isthmus_router.transport.members.MOST_NAMES", 20)
    authority = Authority(tmp_path, "site")
    one, victim = (
        members.add(profile=profile(authority.issue(name)), bind_names=True)
        for name in ("member-1", "member-2")
    )
    victim.send(one, b"hello")
    await until(lambda: one.bodies == [b"hello"])
    identity = authority.issue("thief")
    thief = members.add(profile=profile(identity))
    for number in range(30):
        member = thief.info._replace(id=member_id(os.urandom(16)), name=f"thief-{number}")
        (await greet(one, identity, member)).close()
    thief.driver._members.hello = Hello(GROUP, thief.info._replace(id=victim.id, name="thief-0"))
    thief.id = victim.id
    thief.send(one, b"bye", Kind.LEAVE)
    await until(lambda: thief.lost == [(one.address, False)])
    one.send(victim, b"secret")
    await until(lambda: victim.bodies == [b"secret"])
    assert one.bodies == [b"hello"]
    assert thief.frames == []


async def test_no_certificate_has_all_connections_of_a_member(members: Members, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "site")
    one, other = (
        members.add(profile=profile(authority.issue(name)), most_connections=2 * LEAST + 20)
        for name in ("member-1", "member-2")
    )
    identity = authority.issue("greedy")
    writers = []
    for number in range(2 * LEAST + 20):
        address = PhysicalAddress("127.0.0.1", 10_000 + number)
        member = MemberInfo(member_id(os.urandom(16)), f"greedy-{number}", (address,))
        writers.append(await greet(one, identity, member))
    assert one.connections == LEAST + 10
    assert one.driver.statistics()["refused"] == LEAST + 10
    other.send(one, b"hello")
    await until(lambda: one.bodies == [b"hello"])
    for writer in writers:
        writer.close()
    await until(lambda: one.connections == 1)
    (await greet(one, identity, member)).close()
    assert one.driver.statistics()["refused"] == LEAST + 10


async def test_expired_certificate(members: Members, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "site")
    one = members.add(profile=profile(authority.issue("one")))
    late = members.add(profile=profile(authority.issue("late", expired=True)))
    late.send(one, b"hello")
    await until(lambda: late.lost == [(one.address, False)])
    assert one.frames == []


async def test_without_a_certificate_and_without_tls(members: Members, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "site")
    one = members.add(profile=profile(authority.issue("one")))
    clear = members.add()
    clear.send(one, b"hello")
    await until(lambda: clear.lost == [(one.address, False)])
    context = ssl.create_default_context(cafile=str(authority.file))
    context.check_hostname = False
    read = b""
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        reader, _ = await asyncio.open_connection("127.0.0.1", one.address.port, ssl=context)
        read = await asyncio.wait_for(reader.read(), 5)
    assert read == b""
    assert one.frames == []


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_peer_that_pauses(members: Members, tmp_path: Path, encrypted: bool) -> None:
    """What it does not read is bounded, and what was not dropped arrives when it reads on."""
    files = profile(Authority(tmp_path, "site").issue("any")) if encrypted else None
    one, two = (members.add(profile=files, queue_bytes=2 << 20, user_timeout=30.0) for _ in range(2))
    one.send(two, b"0", Kind.BATCH)
    await until(lambda: len(two.frames) == 1)
    two.read(True)
    sent = 1
    while one.driver.statistics()["dropped"] < 100:
        for _ in range(20):
            one.send(two, b"%d " % sent + bytes(10_000), Kind.BATCH)
            sent += 1
        await asyncio.sleep(0)
    assert sent < 3000
    one.send(two, b"%d control" % sent)
    two.read(False)
    await until(lambda: two.bodies[-1].endswith(b"control"))
    numbers = [int(body.split()[0]) for body in two.bodies]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == sent + 1 - one.driver.statistics()["dropped"]
    assert one.lost == two.lost == []


async def test_half_a_handshake_ends(members: Members, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "site")
    one = members.add(profile=profile(authority.issue("one")), handshake_timeout=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", one.address.port)
    writer.write(b"\x16\x03\x01")
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()


async def test_reload_loses_nothing(members: Members, tmp_path: Path) -> None:
    """Both change to another authority under traffic, one after the other, trusting both between."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    both = tmp_path / "both.pem"
    both.write_bytes(old.file.read_bytes() + new.file.read_bytes())
    names = ("one", "two")
    one, two = (members.add(profile=profile(old.issue(name, trusted=both))) for name in names)
    sent = 0

    async def more() -> None:
        nonlocal sent
        for _ in range(200):
            for sender, receiver in ((one, two), (two, one)):
                sender.send(receiver, b"%d" % sent, Kind.BATCH)
            sent += 1
            await asyncio.sleep(0)

    await more()
    for member, name in ((one, "one"), (two, "two")):
        member.driver.reload(profile=profile(new.issue(name, trusted=both)))
        await more()
        await until(lambda: len(one.frames) == len(two.frames) == sent)
    await until(lambda: one.connections == two.connections == 1)
    for member in (one, two):
        assert sorted(member.bodies, key=int) == [b"%d" % number for number in range(sent)]
        assert member.lost == []
        assert member.driver.statistics()["lost"] == 0
    assert {peer_authority(one), peer_authority(two)} == {"new"}


@pytest.mark.parametrize("dials", [True, False])
async def test_connections_with_a_revoked_member_end(members: Members, tmp_path: Path, dials: bool) -> None:
    authority = Authority(tmp_path, "site")
    identities = [authority.issue(name) for name in ("one", "two", "honest")]
    lists = {"crl_file": str(authority.revoke())}
    one, two, honest = (members.add(profile=profile(identity, **lists)) for identity in identities)
    for near, far in ((one, two) if dials else (two, one), (one, honest)):
        near.send(far, b"a")
        await until(lambda far=far: far.bodies == [b"a"])  # type: ignore[misc]
    authority.revoke(identities[1])
    one.driver.reload(profile=profile(identities[0], files_digest="after", **lists))
    await until(lambda: one.connections == 1 and two.connections == 0)
    one.send(honest, b"b")
    await until(lambda: honest.bodies == [b"a", b"b"])
    two.send(one, b"c")
    await until(lambda: two.lost != [])
    assert b"c" not in one.bodies


@pytest.mark.parametrize("dials", [True, False])
async def test_connections_with_a_member_of_a_revoked_authority_end(
    members: Members, tmp_path: Path, dials: bool
) -> None:
    """The intermediate authority is revoked, while others of its issuer are not; new connections are refused."""
    root = Authority(tmp_path, "site")
    lost = root.subordinate("lost")
    identities = [root.issue("one"), lost.issue("two"), root.subordinate("good").issue("honest")]
    lists = {"crl_file": str(root.revoke())}
    one, two, honest = (members.add(profile=profile(identity, **lists)) for identity in identities)
    for near, far in ((one, two) if dials else (two, one), (one, honest)):
        near.send(far, b"a")
        await until(lambda far=far: far.bodies == [b"a"])  # type: ignore[misc]
    root.revoke(lost)
    one.driver.reload(profile=profile(identities[0], files_digest="after", **lists))
    await until(lambda: one.connections == 1 and two.connections == 0)
    one.send(honest, b"b")
    await until(lambda: honest.bodies == [b"a", b"b"])
    two.send(one, b"c")
    await until(lambda: two.lost != [])
    assert b"c" not in one.bodies


def peer_authority(member: object) -> str:
    """Who has signed the certificate of the member at the other end."""
    (connection,) = member.driver._members._all  # type: ignore[attr-defined]
    issuer = dict(pair for part in connection.certificate["issuer"] for pair in part)
    return str(issuer["organizationName"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ca_cert_file": None}, "certFile and caCertFile are needed"),
        ({"cert_file": "/nowhere.pem"}, "certFile '/nowhere.pem'"),
        ({"ca_cert_file": "/nowhere.pem"}, "caCertFile '/nowhere.pem'"),
        ({"ciphers": "nonsense"}, "ciphers 'nonsense'"),
    ],
)
async def test_unusable_files_change_nothing(
    members: Members, tmp_path: Path, change: dict[str, str | None], told: str
) -> None:
    authority = Authority(tmp_path, "site")
    files = profile(authority.issue("one"))
    one, two = members.add(profile=files), members.add(profile=files)
    with pytest.raises(CredentialsError, match=told):
        one.driver.reload(profile=profile(authority.issue("one"), **change))
    one.send(two, b"a")
    await until(lambda: two.bodies == [b"a"])


async def test_protocols_are_bounds(members: Members, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "site")
    identity = authority.issue("one")
    older = members.add(profile=profile(identity, protocols=("TLSv1.2",)))
    newer = members.add(profile=profile(identity, protocols=("TLSv1.3",)))
    older.send(newer, b"a")
    await until(lambda: older.lost == [(newer.address, False)])


@pytest.mark.parametrize("port", ["memberPort", "bridgePort"])
async def test_who_begins_no_handshake_leaves_its_place_and_its_socket(
    members: Members, tmp_path: Path, port: str
) -> None:
    """At once: connections that are not counted any more must not stay open either."""
    identity = profile(Authority(tmp_path, "site").issue("one"))
    settings = {
        "most_connections": 4,
        "handshake_timeout": 60.0,
        "bridge_host": "127.0.0.1",
        "bridge_port": 0,
    }
    one = members.add(profile=identity, bridge_profile=identity, **settings)
    number = one.address.port if port == "memberPort" else one.endpoint.port
    # All before the event loop sees the first of them.
    sockets = [socket.create_connection(("127.0.0.1", number)) for _ in range(20)]
    silent = [await asyncio.open_connection(sock=sock) for sock in sockets]
    for reader, _ in silent[:16]:
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(10):
                assert await reader.read(1) == b""
    assert not any(reader.at_eof() for reader, _ in silent[16:])
    for _, writer in silent:
        writer.close()
