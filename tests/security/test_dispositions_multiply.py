"""A client names all of its unsettled deliveries in each of many dispositions: the engine makes an event for each."""

from __future__ import annotations

import ctypes
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cproton_ffi
import pytest
from tests.integration.support.certificates import Authority, Identity
from tests.integration.support.client import Client, Clients
from tests.integration.support.passwords import PASSWORD, REALM, sasldb, use_database
from tests.integration.support.ports import free_port
from tests.integration.support.raw import DISPOSITION, TRANSFER, frame
from tests.integration.support.routers import Router, Routers, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, flow, opening

from isthmus_router.message.types import Described, Symbol, UInt, ULong

pytestmark = pytest.mark.timeout(600)

LINKS, MANY_LINKS, OF_A_LINK = 20, 84, 240
"""A link has credit for 250."""
FRAMES = 140
FRAMES_TOGETHER = 600
"""More than a TLS record of 16 KiB has."""
LATE = 50_000
WAIT_SECONDS = 240.0
"""For up to a million events, which take seconds of CPU."""
MEBIBYTE = 1 << 20
SHOWN_SECONDS = 3.0
"""The frames are read within a small part of that."""
RECEIVED, ACCEPTED = Described(ULong(0x23), [UInt(0), ULong(0)]), Described(ULong(0x24), [])


def transfer(handle: int, number: int) -> bytes:
    """A small message, unsettled."""
    return frame(
        TRANSFER, [UInt(handle), UInt(number), number.to_bytes(4), UInt(0)], b"\x00\x53\x77\xa1\x01x"
    )


def name_all(state: Any, *, by_receiver: bool, links: int = LINKS) -> bytes:
    """A disposition of every delivery, which stays unsettled."""
    return frame(DISPOSITION, [by_receiver, UInt(0), UInt(links * OF_A_LINK), False, state])


def fill(router: Router, flood: Flood, *, credit: int, links: int = LINKS) -> None:
    """Have thousands of deliveries unsettled: the client receives what it sends, if it gives credit."""
    flood.send(opening(), begin(), attach(0, "rx", "fill", receiver=True), flow(0, credit) if credit else b"")
    flood.send(*(attach(number + 1, f"tx{number}", "fill") for number in range(links)))
    eventually(lambda: router.metric("links", 'type="endpoint"') >= links + 1, "the links")
    before = taken(router)
    for link in range(links):
        first = link * OF_A_LINK
        flood.send(*(transfer(link + 1, number) for number in range(first, first + OF_A_LINK)))
        # The window of the session is 512 frames.
        eventually(lambda due=before + first + OF_A_LINK: taken(router) >= due, "the deliveries")


def taken(router: Router) -> int:
    """Deliveries that have come, those of a canary included."""
    return int(router.metric("deliveries_total", 'direction="in"'))


def most_memory(router: Router, seconds: float) -> int:
    """The most that the router has within a time."""
    most, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        most = max(most, router.memory())
        assert most < 1 << 30, "the attack takes more than a gibibyte"
        time.sleep(0.01)
    return most


def await_leave(router: Router) -> None:
    """Until only the connections of the canary are left."""
    eventually(
        lambda: router.status()["counters"]["connectionCount"] == 2, "the attacker is gone", WAIT_SECONDS
    )


@pytest.fixture
def attacked(compiled_kernel: Callable[[], Routers]) -> Router:
    """A router with a listener for clients; another one for each test, since memory is not given back."""
    return compiled_kernel().add("A").start()


@pytest.mark.parametrize("by_receiver", [True, False], ids=["receiver", "sender"])
def test_each_disposition_names_all_deliveries(attacked: Router, *, by_receiver: bool) -> None:
    with Canary(attacked) as canary:
        with Flood(attacked.port) as flood:
            fill(attacked, flood, credit=2 * LINKS * OF_A_LINK if by_receiver else 0)
            before = attacked.memory()
            flood.send(name_all(RECEIVED, by_receiver=by_receiver) * FRAMES)
            grown = most_memory(attacked, SHOWN_SECONDS) - before
            flood.leave()
        await_leave(attacked)
    canary.report.check()
    assert grown < 64 * MEBIBYTE, f"{grown / MEBIBYTE:.0f} MiB"


def modified(annotations: dict[Any, Any]) -> Described:
    """An outcome with message annotations."""
    return Described(ULong(0x27), [None, None, annotations])


INVALID = modified({Symbol(f"x{number}"): None for number in range(300)})
MANY = modified({Symbol(f"x{number}"): None for number in range(20)})
LARGE = modified({Symbol("x"): "y" * 2000})
DESCRIBED = Described(ULong(0x25), [Described(ULong(0x1D), [Symbol("bad"), "y" * 2000])])
EXTENSION = Described(ULong(0x99), ["y" * 2000])


@pytest.mark.parametrize(
    ("state", "by_receiver"),
    [
        (INVALID, True),
        (INVALID, False),
        (MANY, False),
        (LARGE, False),
        (DESCRIBED, True),
        (EXTENSION, True),
    ],
    ids=["invalid", "invalid of sender", "many values", "large", "long description", "extension"],
)
def test_state_that_the_engine_would_keep_with_all_deliveries(
    attacked: Router, state: Described, by_receiver: bool
) -> None:
    """The connection is closed at the first delivery, and nothing is looked at for the others."""
    with Canary(attacked) as canary:
        with Flood(attacked.port) as flood:
            fill(attacked, flood, credit=2 * LINKS * OF_A_LINK if by_receiver else 0)
            before = attacked.memory()
            flood.send(name_all(state, by_receiver=by_receiver))
            attacked.await_log('"reason":"amqp:decode-error', timeout=WAIT_SECONDS)
            grown = attacked.memory() - before
            flood.leave()
        await_leave(attacked)
    canary.report.check()
    assert grown < 64 * MEBIBYTE, f"{grown / MEBIBYTE:.0f} MiB"
    assert canary.report.most_cpu_seconds < 0.3, canary.report


HUGE = modified({Symbol("x"): "y" * 14_000})


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("by_receiver", [True, False], ids=["receiver", "sender"])
def test_state_that_the_engine_would_copy_to_all_deliveries(
    secure: tuple[Router, int], identity: Identity, *, by_receiver: bool, secured: bool
) -> None:
    """The disposition does not get to the engine, which would take 67 MB for it; one for a few deliveries does."""
    router, port = secure
    tls = ssl.create_default_context(cafile=str(identity.trusted)) if secured else None
    count = LINKS * OF_A_LINK
    with Canary(router) as canary:
        with Flood(port if secured else router.port, tls) as flood:
            fill(router, flood, credit=2 * count if by_receiver else 0)
            before = router.memory()
            few = frame(DISPOSITION, [by_receiver, UInt(0), UInt(9), True, HUGE])
            flood.send(few, attach(LINKS + 1, "later", "fill", receiver=True))
            eventually(lambda: router.metric("links", 'type="endpoint"') >= LINKS + 2 + 2, "the next frame")
            flood.send(name_all(HUGE, by_receiver=by_receiver))
            router.await_log('"reason":"amqp:resource-limit-exceeded', timeout=WAIT_SECONDS)
            grown = router.memory() - before
            flood.leave()
        await_leave(router)
    canary.report.check()
    assert grown < 24 * MEBIBYTE, f"{grown / MEBIBYTE:.0f} MiB"


@pytest.fixture
def identity(tmp_path: Path) -> Identity:
    """The router's certificate."""
    return Authority(tmp_path, "ca").issue("router")


@pytest.fixture
def secure(compiled_kernel: Callable[[], Routers], identity: Identity) -> tuple[Router, int]:
    """A router, and its port for TLS; links of its other port may have thousands of deliveries unsettled."""
    port = free_port()
    section = listener(port, name="tls", sslProfile="tls", requireSsl=True, idleTimeoutSeconds=0)
    return compiled_kernel().add("A", identity.profile(), section, linkCapacity=LATE).start(), port


@pytest.mark.parametrize(
    ("links", "by_receiver"),
    [(LINKS, True), (LINKS, False), (MANY_LINKS, True)],
    ids=["receiver", "sender", "receiver-of-20000"],
)
def test_records_name_all_deliveries_in_each_frame(
    secure: tuple[Router, int], identity: Identity, links: int, *, by_receiver: bool
) -> None:
    """The engine decrypts each record as a whole, and the router gives it no more of the frames than of plain ones."""
    router, port = secure
    tls = ssl.create_default_context(cafile=str(identity.trusted))
    with Canary(router) as canary:
        with Flood(port, tls) as flood:
            fill(router, flood, credit=2 * links * OF_A_LINK if by_receiver else 0, links=links)
            before = router.memory()
            flood.send(name_all(RECEIVED, by_receiver=by_receiver, links=links) * FRAMES_TOGETHER)
            grown = most_memory(router, SHOWN_SECONDS) - before
            assert grown < 64 * MEBIBYTE, f"{grown / MEBIBYTE:.0f} MiB"
            flood.leave()
        router.await_log("connection closed", timeout=WAIT_SECONDS)
    canary.report.check()


def test_every_frame_of_a_record_is_worked_off(secure: tuple[Router, int], identity: Identity) -> None:
    """Also when nothing more arrives; the last frame settles all deliveries."""
    router, port = secure
    links = LINKS // 4
    with Flood(port, ssl.create_default_context(cafile=str(identity.trusted))) as flood:
        fill(router, flood, credit=links * OF_A_LINK, links=links)
        end = frame(DISPOSITION, [True, UInt(0), UInt(links * OF_A_LINK), True, ACCEPTED])
        flood.send(name_all(RECEIVED, by_receiver=True, links=links) * FRAMES_TOGETHER, end)
        eventually(
            lambda: router.metric("delivery_outcomes_total", 'outcome="accepted"') == links * OF_A_LINK,
            "the outcomes",
            WAIT_SECONDS,
        )


def test_client_that_settles_late_over_tls_gets_all(
    secure: tuple[Router, int], identity: Identity, clients: Clients
) -> None:
    """Each delivery is settled by a frame of its own while all others are unsettled."""
    router, port = secure
    client = clients.connect(port, tls=identity.client_domain(present=False))
    receiver = client.receiver("late", credit=LATE)
    sender = clients.connect(router.port).sender("late").await_credit(LATE)
    for number in range(LATE):
        sender.send(number.to_bytes(4))
    clients.until(
        lambda: len(receiver.received) == LATE and receiver.received[-1].complete, "all", WAIT_SECONDS
    )
    found = receiver.received
    assert {bytes(item.data) for item in found} == {number.to_bytes(4) for number in range(LATE)}
    # Frames of neighbors would be made one.
    for item in found[::2] + found[1::2]:
        item.settle()
    clients.until(lambda: all(sent.outcome for sent in sender.sent.values()), "the outcomes", WAIT_SECONDS)
    assert {sent.outcome for sent in sender.sent.values()} == {"accepted"}
    client.close()


class _Bytes(ctypes.Structure):
    """`pn_bytes_t`"""

    _fields_ = [("size", ctypes.c_size_t), ("start", ctypes.c_char_p)]


def send_together(client: Client, framed: bytes, count: int) -> None:
    """Have the engine of a client send a frame `count` times, and encrypt as many of them together as it can."""
    send = ctypes.CDLL(cproton_ffi.__file__).pn_framing_send_amqp
    send.argtypes = [ctypes.c_void_p, ctypes.c_uint16, _Bytes]
    transport = int(cproton_ffi.ffi.cast("uintptr_t", client.transport._impl))
    performative = framed[8:]
    for _ in range(count):
        send(transport, 0, _Bytes(len(performative), performative))


def test_client_with_a_sasl_security_layer_names_all_deliveries_in_each_frame(
    compiled_kernel: Callable[[], Routers], clients: Clients, tmp_path: Path
) -> None:
    """The engine decrypts on a plain socket, and a block of up to 32 KiB as a whole."""
    database = sasldb(tmp_path, "alice")
    (tmp_path / "isthmus-test.conf").write_text(
        f"pwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: {database}\nmech_list: DIGEST-MD5\n"
    )
    router = compiled_kernel().add(
        "A", linkCapacity=LATE, saslMechanisms="DIGEST-MD5", authenticatePeer=True, idleTimeoutSeconds=0
    )
    use_database(router, tmp_path)
    router.start()
    client = clients.connect(router.port, user=f"alice@{REALM}", password=PASSWORD, mechanisms="DIGEST-MD5")
    links = LINKS // 4
    deliveries = links * OF_A_LINK
    receiver, sender = (
        client.receiver("fill", credit=deliveries),
        client.sender("fill").await_credit(deliveries),
    )
    sent = [sender.send(b"\x00\x53\x77\xa1\x01x") for _ in range(deliveries)]
    clients.until(
        lambda: len(receiver.received) == deliveries and receiver.received[-1].complete, "all", WAIT_SECONDS
    )
    before = most = router.memory()
    send_together(client, name_all(RECEIVED, by_receiver=True, links=links), FRAMES_TOGETHER)
    for item in receiver.received:
        item.settle()
    while not client.finished and any(one.outcome is None for one in sent):
        clients.step(0.05)
        most = max(most, router.memory())
    assert {one.outcome for one in sent} == {"accepted"}, client.failure
    assert most - before < 64 * MEBIBYTE, f"{(most - before) / MEBIBYTE:.0f} MiB"
    client.close()
