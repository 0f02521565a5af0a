"""Attacks on the ports of relay members and of the bridge: joining without a certificate, or with another one's name;
lists that take long to decode; and frames that speak for another member.

The canary is a stream of messages from one member to receivers at the other one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.integration.sites.support.relay_sites import GROUP, RelaySites
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Clients
from tests.integration.support.routers import Router, Routers, eventually
from tests.security.support.canary import Canary, main_thread_cpu, memory
from tests.security.support.small_records import SmallRecords

from isthmus_router.groups.batch import GroupMessage, make_batch
from isthmus_router.groups.frames import Kind, encode_body, encode_frame
from isthmus_router.groups.identity import NOBODY, GroupName, MemberId, MemberInfo, PhysicalAddress, member_id
from isthmus_router.groups.streams import wire
from isthmus_router.groups.views import ViewId
from isthmus_router.transport.framing import PREFIX
from isthmus_router.transport.hello import HELLO, Hello, encode_hello

PROFILE = "tls"
TRIES = 20
LIE = "FORWARD in the name of another member"
SMALL_RECORDS = 150_000
"""More of them would not be encrypted, on a busy machine, before the router ends a connection without HELLO."""
MOST_CPU_SECONDS_FOR_RECORDS = 0.05
"""In a step; all together take 0.2 to 0.4."""
INCOMPLETE, INCOMPLETE_BYTES = 24, 15 << 20
MOST_INCOMPLETE = 150_000_000
"""Of memory for these. One certificate has half of the 128 MiB; all of them would have 370 MB."""
LISTS = 100
"""Frames of 130 KB in one piece."""
MOST_CPU_SECONDS = 0.5
"""That the router spends on anything while a message of the canary is on its way. One such list takes 0.01 to 0.03."""


def attributes(router: Router) -> dict[str, object]:
    """Of its section `relaySite`."""
    return next(values for kind, values in router.sections if kind == "relaySite")


def framed(frame: bytes) -> bytes:
    return PREFIX.pack(len(frame)) + frame


def said(port: int, data: bytes, tls: ssl.SSLContext | None = None) -> list[bytes]:
    """The frames with which a port answers that data, until it ends the connection."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), 20) as plain:
            connection = plain if tls is None else tls.wrap_socket(plain)
            connection.sendall(data)
            while more := connection.recv(1 << 16):
                answer += more
            connection.close()
    except (ssl.SSLError, ConnectionError):
        pass
    frames = []
    while len(answer) >= PREFIX.size:
        (length,) = PREFIX.unpack_from(answer)
        frames.append(answer[PREFIX.size : PREFIX.size + length])
        answer = answer[PREFIX.size + length :]
    return frames


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "own")


@pytest.fixture
def members(routers: Routers, authority: Authority) -> tuple[Router, Router]:
    """One site of two members with certificates of their names."""
    return start_members(routers, authority)


def start_members(routers: Routers, authority: Authority) -> tuple[Router, Router]:
    """One site of two members with certificates of their names."""
    one, two = (
        routers.add(name, authority.issue(name).profile(PROFILE, ordinal=1)) for name in ("nyc-0", "nyc-1")
    )
    sites = RelaySites()
    sites.site("nyc", one, two, plainText=False, sslProfile=PROFILE, bridgeSslProfile=PROFILE)
    routers.start_all()
    sites.formed()
    return one, two


def context(authority: Authority, name: str | None) -> ssl.SSLContext:
    """Of an attacker that trusts everybody; `name` is that in its certificate, None: it has none."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    if name is not None:
        identity = authority.issue(name)
        made.load_cert_chain(identity.certificate, identity.key)
    return made


def conversation(identity: bytes, name: str) -> bytes:
    """HELLO of a copied configuration, and LEAVE in the name of that member."""
    group = GroupName(GROUP, "nyc", f"{GROUP}/nyc")
    sender = MemberInfo(member_id(identity), name, (PhysicalAddress("127.0.0.1", 9),))
    hello = Hello(group, sender._replace(id=identity))  # type: ignore[arg-type]
    leave = encode_frame(Kind.LEAVE, hello.member.id, NOBODY, encode_body())
    return framed(encode_hello(hello)) + framed(leave)


def test_nobody_without_a_fitting_certificate_is_a_member(
    members: tuple[Router, Router], authority: Authority, tmp_path: Path
) -> None:
    one, two = members
    relay = one.status()["relay"]
    victim = bytes.fromhex(next(each["id"] for each in relay["members"] if each["name"] == two.id))
    port, bridge = (int(str(attributes(one)[name])) for name in ("memberPort", "bridgePort"))
    foreign = Authority(tmp_path, "foreign")
    attackers = [
        None,
        context(authority, None),
        context(foreign, "nyc-1"),
        context(authority, "payments-app"),
    ]
    before = memory(one.pid)
    with Canary(one, receive_at=two, address=f"relay/{GROUP}") as canary:
        for tls in attackers:
            for _ in range(TRIES):
                for identity in (victim, os.urandom(16)):
                    frames = said(port, conversation(identity, "nyc-1"), tls)
                    assert not any(frame[0] >= Kind.DISCOVER for frame in frames), (
                        "nothing of the group is told"
                    )
                    assert tls is attackers[-1] or not any(frame[:1] == bytes((HELLO,)) for frame in frames)
        for tls in attackers[:-1]:
            assert said(bridge, framed(b"\1" + encode_body()), tls) == []
    canary.report.check()
    after = one.status()["relay"]
    assert (after["view"], after["members"]) == (relay["view"], relay["members"])
    assert any("not for member nyc-1" in problem for problem in after["problems"])
    assert len(after["problems"]) <= 16
    assert after["plainText"] == []
    assert memory(one.pid) - before < 50_000_000


@pytest.mark.parametrize("kind", [Kind.I_HAVE, Kind.HEARTBEAT, Kind.INSTALL], ids=lambda kind: kind.name)
def test_lists_of_a_member_do_not_stop_the_clients(
    members: tuple[Router, Router], authority: Authority, kind: Kind
) -> None:
    """A frame of 130,000 values is within the limits of the frames that have lists of views."""
    one, _ = members
    group = GroupName(GROUP, "nyc", f"{GROUP}/nyc")
    attacker = MemberInfo(member_id(os.urandom(16)), "nyc-9", (PhysicalAddress("127.0.0.1", 9),))
    values = encode_body(*[None] * 130_000)
    frames = framed(encode_frame(kind, attacker.id, NOBODY, values)) * LISTS
    with socket.create_connection(("127.0.0.1", int(str(attributes(one)["memberPort"]))), 20) as plain:
        connection = context(authority, attacker.name).wrap_socket(plain)
        connection.sendall(framed(encode_hello(Hello(group, attacker))))
        start = main_thread_cpu(one.pid)
        with Canary(one) as canary:
            connection.settimeout(120)
            connection.sendall(frames)
            connection.close()
        spent = main_thread_cpu(one.pid) - start
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, (spent, canary.report)
    assert one.status()["relay"]["view"]


@pytest.mark.parametrize("connections", [1, 6])
def test_small_tls_records_do_not_stop_the_clients(
    members: tuple[Router, Router], authority: Authority, connections: int
) -> None:
    """They are the beginning of a frame at the port for other sites, before HELLO."""
    one, _ = members
    port, tls = int(str(attributes(one)["bridgePort"])), context(authority, "lon")
    with contextlib.ExitStack() as stack:
        attackers = [stack.enter_context(SmallRecords(port, tls)) for _ in range(connections)]
        for attacker in attackers:
            attacker.say(PREFIX.pack(900_000))
            attacker.prepare(SMALL_RECORDS // connections)
        with Canary(one) as canary, ThreadPoolExecutor(connections) as pool:
            time.sleep(1)
            for sent in [pool.submit(attacker.send) for attacker in attackers]:
                sent.result()
            time.sleep(1)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS_FOR_RECORDS


def test_incomplete_frames_have_a_bound_over_all_connections(
    members: tuple[Router, Router], authority: Authority
) -> None:
    """Each connection says HELLO as another member, and sends all but the end of a long frame."""
    one, _ = members
    port, tls = int(str(attributes(one)["memberPort"])), context(authority, STRANGER.name)
    before = memory(one.pid)
    with contextlib.ExitStack() as stack, Canary(one) as canary:
        connections = []
        for _ in range(INCOMPLETE):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            connection = stack.enter_context(tls.wrap_socket(plain))
            member = STRANGER._replace(id=member_id(os.urandom(16)))
            connection.sendall(
                framed(encode_hello(Hello(GroupName(GROUP, "nyc", f"{GROUP}/nyc"), member)))
                + PREFIX.pack(INCOMPLETE_BYTES + 1)
            )
            connection.settimeout(0.3)
            connections.append(connection)
            with contextlib.suppress(TimeoutError, ssl.SSLError, ConnectionError):
                for _ in range(INCOMPLETE_BYTES >> 20):
                    connection.sendall(bytes(1 << 20))
        assert memory(one.pid) - before < MOST_INCOMPLETE
        eventually(lambda: "of a frame arrive" in one.log, "what does not go on is ended")
    canary.report.check()


def identity_of(router: Router, name: str) -> MemberId:
    members = router.status()["relay"]["members"]
    return MemberId(bytes.fromhex(next(each["id"] for each in members if each["name"] == name)))


def refused(router: Router) -> float:
    """Frames of members that may not send them."""
    return router.metric("relay_transport_events_total", 'event="refused_frame"')


@pytest.mark.parametrize("kind", [Kind.GAP, Kind.BATCH, Kind.START], ids=lambda kind: kind.name)
def test_nobody_speaks_for_the_stream_of_another_member(
    members: tuple[Router, Router], authority: Authority, kind: Kind
) -> None:
    """With a certificate of its own name it says HELLO, and is in no view."""
    one, two = members
    origin = identity_of(one, one.id)
    attacker = MemberInfo(member_id(os.urandom(16)), "nyc-2", (PhysicalAddress("127.0.0.1", 9),))
    forged = [GroupMessage(f"relay/{GROUP}", b"\x00\x53\x77\xa1\x06FORGED")]
    bodies = {
        Kind.GAP: [wire.encode_gap(wire.Gap(origin, 1, 1 << 40, 0, "nyc"))],
        Kind.BATCH: [make_batch(origin, n, n - 1, "nyc", None, forged).encoded for n in range(1, 5_000)],
        Kind.START: [wire.encode_start(wire.Start(origin, 1 << 40, 0, "nyc"))],
    }[kind]
    with Canary(one, receive_at=two, address=f"relay/{GROUP}") as canary:
        hello = encode_hello(Hello(GroupName(GROUP, "nyc", f"{GROUP}/nyc"), attacker))
        frames = b"".join(framed(encode_frame(kind, attacker.id, NOBODY, body)) for body in bodies)
        with socket.create_connection(("127.0.0.1", int(str(attributes(two)["memberPort"]))), 20) as plain:
            connection = context(authority, attacker.name).wrap_socket(plain)
            connection.sendall(framed(hello) + frames)
            eventually(lambda: refused(two) >= len(bodies), "all are refused")
            connection.close()
    canary.report.check()
    assert {each["name"] for each in two.status()["relay"]["members"]} == {one.id, two.id}


@pytest.mark.parametrize("kind", ["unicast", "ack"])
def test_a_member_forwards_nothing_in_the_name_of_another_one(
    routers: Routers, authority: Authority, clients: Clients, tmp_path: Path, kind: str
) -> None:
    """It is a real member of the view, whose relay sends forged frames; see `lying_member`."""
    one, two, liar = (
        routers.add(name, authority.issue(name).profile(PROFILE, ordinal=1))
        for name in ("nyc-0", "nyc-1", "nyc-2")
    )
    job = tmp_path / "job"
    liar.module = "tests.security.support.lying_member"
    liar.environment["LIE"] = str(job)
    sites = RelaySites()
    sites.site("nyc", one, two, liar, plainText=False, sslProfile=PROFILE, bridgeSslProfile=PROFILE)
    routers.start_all()
    sites.formed()
    lie = {"kind": kind, "source": identity_of(one, two.id).hex(), "to": identity_of(one, one.id).hex()}
    done = job.with_suffix(".done")
    near, far = (clients.connect(router.port) for router in (one, two))
    receiver = near.receiver(f"relay/{GROUP}/{one.id}", credit=100)
    sender = (
        near.sender(f"relay/{GROUP}/{two.id}") if kind == "ack" else far.sender(f"relay/{GROUP}/{one.id}")
    )
    clients.until(lambda: sender.credit > 0, "there is credit")
    with Canary(one, address=f"relay/{GROUP}") as canary:
        if kind == "ack":
            os.kill(two.pid, signal.SIGSTOP)
        try:
            for number in range(5) if kind == "ack" else ():
                sender.send(f"honest {number}")
            clients.let_time_pass(0.2)
            job.write_text(json.dumps(lie))
            eventually(lambda: done.exists() and LIE in one.log, "the lie is refused")
            for number in range(5) if kind == "unicast" else ():
                sender.send(f"honest {number}")
            clients.until(lambda: all(sent.outcome for sent in sender.sent.values()), "there are outcomes")
        finally:
            os.kill(two.pid, signal.SIGCONT)
    canary.report.check()
    outcomes = {sent.outcome for sent in sender.sent.values()}
    assert outcomes == {"modified" if kind == "ack" else "accepted"}
    bodies = [item.body for item in receiver.arrived()]
    assert bodies == ([] if kind == "ack" else [f"honest {number}" for number in range(5)])


STRANGER = MemberInfo(member_id(os.urandom(16)), "nyc-9", (PhysicalAddress("127.0.0.1", 9),))
"""It has a certificate of its own name, and is in no view."""
TIMES = 5


def merge_of_invented_members(view: ViewId) -> bytes:
    """The answer to a question that nobody has asked."""
    invented = [[member_id(os.urandom(16)), "x", []] for _ in range(10_000)]
    members = [[STRANGER.id, STRANGER.name, []], *invented]
    return encode_body([[[], [[view.number + 1, STRANGER.id], members, []]]])


def install_of_a_long_chain(view: ViewId) -> bytes:
    """As many steps as fit into the frame, each from the view of the one before."""
    steps, at = [], list(view)
    for number in range(view.number + 1, view.number + 7_000):
        new = [number, view.coordinator]
        steps.append([[at], [new, [[view.coordinator, "n", []]], []]])
        at = new
    return encode_body(steps, None)


COSTLY = {Kind.MERGE_AGREE: merge_of_invented_members, Kind.INSTALL: install_of_a_long_chain}


@pytest.mark.parametrize("kind", COSTLY, ids=lambda kind: kind.name)
def test_one_frame_of_a_stranger_costs_little(
    members: tuple[Router, Router], authority: Authority, kind: Kind
) -> None:
    before = members[0].status()["relay"]
    coordinator = next(router for router in members if router.id == before["members"][0]["name"])
    view = ViewId(int(before["view"]), identity_of(coordinator, coordinator.id))
    start = wire.encode_start(wire.Start(view.coordinator, 1, 0, "nyc"))
    last = framed(encode_frame(Kind.START, STRANGER.id, NOBODY, start))  # it is refused, and counted
    attack = framed(encode_frame(kind, STRANGER.id, NOBODY, COSTLY[kind](view))) + last
    port = int(str(attributes(coordinator)["memberPort"]))
    with (
        socket.create_connection(("127.0.0.1", port), 20) as plain,
        context(authority, STRANGER.name).wrap_socket(plain) as connection,
        Canary(coordinator) as canary,
    ):
        hello = encode_hello(Hello(GroupName(GROUP, "nyc", f"{GROUP}/nyc"), STRANGER))
        connection.sendall(framed(hello) + last)
        eventually(lambda: refused(coordinator) >= 1, "HELLO is accepted, and longer frames with it")
        spent, held = main_thread_cpu(coordinator.pid), memory(coordinator.pid)
        for number in range(2, TIMES + 2):
            connection.sendall(attack)
            eventually(lambda number=number: refused(coordinator) >= number, "the frames are worked off")
        spent = main_thread_cpu(coordinator.pid) - spent
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, (spent, canary.report)
    assert memory(coordinator.pid) - held < 30_000_000
    after = [router.status()["relay"] for router in members]
    assert [each["view"] for each in after] == [before["view"]] * 2


def test_a_router_does_not_start_without_tls_between_members(routers: Routers) -> None:
    router = routers.add("nyc-0")
    sites = RelaySites()
    sites.site("nyc", router, plainText=False)
    router.launch()
    router.await_log("attribute sslProfile: is required, as connections with other members need TLS")
    router.await_log("attribute bridgeSslProfile: is required, as connections with other sites need TLS")
    assert router.process is not None
    assert router.process.wait(60) != 0
    router.process = None  # its end is no failure


def test_connections_without_tls_are_logged_and_shown(routers: Routers) -> None:
    router = routers.add("nyc-0")
    sites = RelaySites()
    sites.site("nyc", router)
    routers.start_all()
    sites.formed()
    found = (json.loads(line) for line in router.log.splitlines())
    (warning,) = (line for line in found if line["message"] == "connections without TLS")
    shown = {key: warning[key] for key in ("level", "site", "connections", "allowed_by")}
    assert shown == {
        "level": "warning",
        "site": "nyc",
        "connections": ["members", "bridge"],
        "allowed_by": "plainText",
    }
    assert router.status()["relay"]["plainText"] == ["members", "bridge"]
