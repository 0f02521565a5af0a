"""Hostile sources of flow records: the collector lives, and what honest sources send is collected."""

from __future__ import annotations

import itertools
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
from proton import Delivery
from tests.integration.flow_log.conftest import Collectors, collectors
from tests.integration.support.certificates import Authority
from tests.integration.support.flow_collector import FlowCollector
from tests.integration.support.hostile_router import NOW_US, HostileRouter, record, router_record, summary
from tests.integration.support.raw import OPEN, frame
from tests.integration.support.routers import eventually
from tests.security.support.canary import cpu
from tests.security.support.lawless_router import OPENINGS, PLAYS, Connection, LawlessRouter
from tests.security.support.malicious_router import COSTLY, UNASKED, UNDECODABLE, MaliciousRouter

from isthmus_flowlog.collector.frames import NOT_ASKED
from isthmus_flowlog.collector.known import MOST_LIVE
from isthmus_flowlog.schema import LARGEST_COUNT
from isthmus_router.flows.records import Attr, RecordType
from isthmus_router.message.types import Encoded, ULong, encode

__all__ = ["collectors"]
PATIENCE = 60.0
MOST_CPU_SECONDS = 1.0
"""For `DETAILS` errors with details that take 0.2 s each to decode."""
DETAILS = 10
MEBIBYTE = 1024 * 1024
MOST_MEMORY = 150 * MEBIBYTE
"""Of a collector at which one source has told nothing; it begins with 90 MiB."""
LONGEST_LOG = 10_000
"""Bytes."""
HOUR_US = 3_600_000_000
HONEST = "hones:0"


@pytest.fixture
def hostile() -> Iterator[HostileRouter]:
    router = HostileRouter().start()
    yield router
    router.stop()


class Canary:
    """An honest source: what it sends is in the log."""

    def __init__(self, router: HostileRouter, collector: FlowCollector) -> None:
        self._router = router
        self._collector = collector
        self._numbers = itertools.count(1)
        router.await_link("mc/sfe.all")
        router.introduce(HONEST, "honest")

    def lives(self) -> None:
        """The collector writes what the source sends now, and has the connection that it began with."""
        number = next(self._numbers)
        self._router.await_link(f"mc/sfe.{HONEST}.flows")
        self._router.records(f"mc/sfe.{HONEST}.flows", summary(HONEST, number, octets=1000 + number))
        eventually(
            lambda: self._collector.rows("deliveries", source=HONEST, sequence=number),
            f"summary {number} of the honest source: {self._collector.log[-2000:]}",
            PATIENCE,
        )
        assert self._collector.process is not None
        assert self._collector.process.poll() is None
        assert self._collector.metric("connection_attempts_total") == 1, self._collector.log[-2000:]


def test_sources_are_released_while_parts_of_their_messages_arrive(
    hostile: HostileRouter, collectors: Collectors
) -> None:
    collector = collectors(hostile.port, exclude=["bad*"]).start()
    canary = Canary(hostile, collector)
    for number in range(30):
        source = f"bad{number:02}:0"
        hostile.beacon(source)
        flows, records = f"mc/sfe.{source}.flows", f"mc/sfe.{source}"
        hostile.await_link(flows)
        hostile.send(flows, b"\x00" * 5000, whole=False)
        hostile.records(records, router_record(source, f"bad{number}"))
        for part in range(5):
            hostile.more(flows, b"x" * 40_000)
            if part == number % 6:
                hostile.abort(flows)
        if number % 3 == 0:
            hostile.abort(flows)
    canary.lives()


def test_links_end_while_parts_of_messages_arrive(hostile: HostileRouter, collectors: Collectors) -> None:
    collector = collectors(hostile.port).start()
    canary = Canary(hostile, collector)
    for number in range(30):
        source = f"ended{number}:0"
        hostile.beacon(source)
        address = f"mc/sfe.{source}"
        hostile.await_link(address)
        hostile.send(address, b"x" * 40_000, whole=False)
        if number % 2:
            hostile.abort(address)
        hostile.detach(address, close=number % 3 > 0)
    canary.lives()


def test_messages_that_never_end_are_given_up(hostile: HostileRouter, collectors: Collectors) -> None:
    collector = collectors(hostile.port).start()
    canary = Canary(hostile, collector)
    before = collector.memory
    for number in range(40):
        hostile.beacon(f"long{number}:0")
        address = f"mc/sfe.long{number}:0"
        hostile.await_link(address)
        for _ in range(9):
            hostile.send_part(address, b"x" * 100_000)
    canary.lives()
    eventually(
        lambda: collector.metric('rejected_total{reason="unfinished"}') >= 24,
        "links with most of what is unfinished are ended",
        PATIENCE,
    )
    assert collector.memory - before < 100 * MEBIBYTE
    canary.lives()


def test_a_forged_beacon_makes_the_collector_a_consumer_of_nothing(
    hostile: HostileRouter, collectors: Collectors
) -> None:
    collector = collectors(hostile.port).start()
    canary = Canary(hostile, collector)
    for address, direct in (
        ("payments/in", "sfe.evil:0"),
        ("mc/sfe.evil:0", "payments/in"),
        ("mc/sfe.hones:0", "sfe.hones:0"),
        ("$management", "$management"),
    ):
        hostile.beacon("evil:0", address, direct)
    for source in ("all", "hones:0.flows", "payments/in", "x" * 200, "a b", "#"):
        hostile.beacon(source)
    canary.lives()
    assert collector.metric('rejected_total{reason="forged"}') == 10
    honest = {f"mc/sfe.{HONEST}", f"mc/sfe.{HONEST}.flows", f"sfe.{HONEST}"}
    assert set(hostile.addresses) == {"mc/sfe.all"} | honest


def test_what_is_no_flow_record_is_rejected(hostile: HostileRouter, collectors: Collectors) -> None:
    collector = collectors(hostile.port).start()
    canary = Canary(hostile, collector)
    address = f"mc/sfe.{HONEST}"
    good = hostile.message("HEARTBEAT", {"id": HONEST})
    for payload in (
        b"payment of 100",
        hostile.message("PAYMENT", body=[]),
        hostile.message("RECORD", body="payment"),
        hostile.message("RECORD", body=[record(RecordType.PROCESS, ULong(7))]),
        hostile.message("RECORD", body=[record(RecordType.PROCESS, "x" * 1000)]),
        hostile.message("BEACON", {"id": "a:0", "address": "mc/sfe.a:0", "direct": "sfe.a:0"}),
    ):
        hostile.send(address, payload, settled=False)
    hostile.send("mc/sfe.all", good, settled=False)
    hostile.send(address, good, settled=False)
    eventually(lambda: len(hostile.outcomes) == 8, "outcomes", PATIENCE)
    assert hostile.outcomes == [Delivery.REJECTED] * 7 + [Delivery.ACCEPTED]
    assert collector.metric("rejected_total") == 7
    canary.lives()


def test_numbers_and_strings_beyond_bounds_stay_within_their_rows(
    hostile: HostileRouter, collectors: Collectors
) -> None:
    collector = collectors(hostile.port).start()
    canary = Canary(hostile, collector)
    hostile.introduce("evil:0", "evil")
    for number in range(1, 5):
        hostile.records(
            "mc/sfe.evil:0.flows",
            *(
                summary("evil:0", 50 * number + index, octets=ULong(2**62), deliveries=ULong(2**64 - 1))
                for index in range(50)
            ),
        )
    eventually(lambda: len(collector.rows("deliveries", source="evil:0")) == 200, "the rows", PATIENCE)
    for row in collector.rows("deliveries", source="evil:0"):
        assert (row["octets"], row["deliveries"]) == (LARGEST_COUNT, LARGEST_COUNT)
    canary.lives()


def test_times_of_all_hours_make_no_file_for_each_row(hostile: HostileRouter, collectors: Collectors) -> None:
    """Without a bound, 20,000 rows took the collector 85 s of writing, in which it wrote no others."""
    collector = collectors(hostile.port).start()
    canary = Canary(hostile, collector)
    hostile.introduce("evil:0", "evil")
    for hours in range(0, 8000, 50):
        hostile.await_link("mc/sfe.evil:0.flows")
        hostile.records(
            "mc/sfe.evil:0.flows",
            *(
                summary("evil:0", hour, end_time=ULong((hour + 1) * HOUR_US))
                for hour in range(hours, hours + 50)
            ),
        )
    eventually(lambda: collector.metric("malformed_total") == 8000, "the rows are counted", PATIENCE)
    canary.lives()
    assert len(collector.files("deliveries")) < 50
    assert not collector.rows("deliveries", source="evil:0")


def test_long_strings_and_many_records_take_bounded_memory(
    hostile: HostileRouter, collectors: Collectors
) -> None:
    collector = collectors(hostile.port, rotate={"seconds": 5}).start()
    canary = Canary(hostile, collector)
    hostile.introduce("evil:0", "evil")
    values = {
        int(attribute): "\U0001f4a5" * 290
        for attribute in (Attr.NAME, Attr.CONTAINER, Attr.USER, Attr.SOURCE_HOST, Attr.HOSTNAME, Attr.REASON)
    }
    before = collector.memory
    numbers = iter(range(1, 10**6))
    for _ in range(300):
        # 80 MB: without a bound on what is known of one source all of it stays.
        hostile.records(
            "mc/sfe.evil:0",
            *(
                record(RecordType.CONNECTION, f"evil:{next(numbers)}", {3: ULong(1), 2: "evil:0", **values})
                for _ in range(40)
            ),
        )
    canary.lives()
    eventually(lambda: collector.metric("records_refused_total") > 0, "a bound", PATIENCE)
    assert collector.memory - before < 400 * MEBIBYTE
    canary.lives()


def test_sketches_of_records_that_make_no_rows_of_them_take_bounded_memory(
    hostile: HostileRouter, collectors: Collectors
) -> None:
    """44 MB of messages, at the allowed rate: without a bound of a source they took 320 MiB."""
    collector = collectors(hostile.port, rotate={"seconds": 5}).start()
    canary = Canary(hostile, collector)
    hostile.introduce("evil:0", "evil")
    sketch = Encoded(encode({ULong(bucket): ULong(2**40 + bucket) for bucket in range(100)}))
    values = {int(Attr.START_TIME): ULong(NOW_US), int(Attr.PARENT): "evil:0"}
    values |= {int(attribute): sketch for attribute in (Attr.SIZES, Attr.LATENCIES)}
    before = collector.memory
    for first in range(0, MOST_LIVE, 200):
        numbers = range(first, first + 200)
        hostile.records(
            "mc/sfe.evil:0", *(record(RecordType.CONNECTION, f"evil:{one}", values) for one in numbers)
        )
        # Without a pause, 16 MiB would wait, and what comes then is refused.
        eventually(lambda sent=numbers.stop: collector.metric("records_total") >= sent, "all", PATIENCE)
    grown = collector.memory - before
    assert grown < 200 * MEBIBYTE
    assert collector.metric("records_refused_total") > MOST_LIVE // 2
    canary.lives()


def test_small_changes_of_records_with_much_text_take_bounded_memory(
    hostile: HostileRouter, collectors: Collectors
) -> None:
    """Each makes a row with all of it: without a bound, 3 MB of messages took 1.5 GB."""
    collector = collectors(hostile.port).start()
    canary = Canary(hostile, collector)
    before = collector.memory
    for source in range(3):
        hostile.introduce(f"evil{source}:0", "evil")
        values = {
            int(attribute): "\U0001f4a5" * 290
            for attribute in (
                Attr.NAME,
                Attr.CONTAINER,
                Attr.USER,
                Attr.SOURCE_HOST,
                Attr.HOSTNAME,
                Attr.REASON,
            )
        }
        hostile.records(
            f"mc/sfe.evil{source}:0",
            record(RecordType.CONNECTION, "evil:1", {3: ULong(NOW_US), 2: f"evil{source}:0", **values}),
        )
    most = 0
    for number in range(60):
        for source in range(3):
            hostile.await_link(f"mc/sfe.evil{source}:0")
            changes = (
                record(RecordType.CONNECTION, "evil:1", {int(Attr.ROLE): f"{number}-{index}"})
                for index in range(500)
            )
            hostile.records(f"mc/sfe.evil{source}:0", *changes)
        most = max(most, collector.memory)
    canary.lives()
    assert collector.metric("records_refused_total") > 0
    assert max(most, collector.memory) - before < 400 * MEBIBYTE


def test_invented_sources_displace_no_source_that_is_heard(
    hostile: HostileRouter, collectors: Collectors
) -> None:
    collector = collectors(hostile.port).start()
    canary = Canary(hostile, collector)
    before = collector.memory
    for number in range(700):
        hostile.beacon(f"fake{number}:0")
    hostile.introduce("later:0", "later")
    canary.lives()
    eventually(lambda: collector.rows("records", type="ROUTER", router="later"), "another router", PATIENCE)
    assert collector.metric("sources_ignored_total") > 0
    assert collector.memory - before < 100 * MEBIBYTE


@pytest.mark.parametrize("what", [*UNDECODABLE, *UNASKED])
def test_a_router_that_sends_undecodable_values_or_what_nobody_asked_for_does_not_end_the_collector(
    what: str, collectors: Collectors
) -> None:
    """The collector ends the connection: the router accepts the next one after that."""
    router = MaliciousRouter(what)
    collector = collectors(router.port)
    collector.launch()
    eventually(lambda: router.sent >= 3, f"3 tries: {collector.log[-2000:]}", PATIENCE)
    assert collector.process is not None
    assert collector.process.poll() is None
    assert collector.get("/healthz")[0] == 200
    assert what not in UNASKED or NOT_ASKED in collector.log
    router.close()


@pytest.mark.parametrize("what", COSTLY)
def test_details_of_errors_are_not_decoded(what: str, collectors: Collectors) -> None:
    router = MaliciousRouter(what)
    collector = collectors(router.port)
    collector.launch()
    eventually(lambda: router.sent >= 1, "the collector is there", PATIENCE)
    assert collector.process is not None
    before = cpu(collector.process.pid)
    eventually(lambda: router.sent > DETAILS, f"more of them: {collector.log[-2000:]}", PATIENCE)
    assert cpu(collector.process.pid) - before < MOST_CPU_SECONDS
    router.close()


@pytest.mark.parametrize("what", [*PLAYS, *OPENINGS])
def test_a_router_that_does_not_keep_to_amqp_is_left_for_another_one(
    what: str, hostile: HostileRouter, collectors: Collectors
) -> None:
    """What it has sent costs no memory and few lines of the log, whatever it is."""
    lawless = LawlessRouter(what)
    collector = collectors(lawless.port, hostile.port)
    collector.launch()
    eventually(lambda: lawless.ended >= 1, f"the connection ends: {collector.log[-2000:]}", PATIENCE)
    hostile.await_link("mc/sfe.all")
    assert collector.process is not None
    assert collector.process.poll() is None
    assert collector.get("/healthz")[0] == 200
    assert collector.memory < MOST_MEMORY
    assert lawless.reason in collector.log
    assert len(collector.log) < LONGEST_LOG
    lawless.close()


def test_a_router_with_a_revoked_certificate_cannot_stay_by_not_answering(
    collectors: Collectors, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Before, the log had its records also after the revocation."""
    authority = Authority(tmp_path_factory.mktemp("certificates"), "network")
    server = authority.issue("server", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    with socket.create_server(("localhost", 0)) as listening:
        tls = {"ca": str(authority.file), "crl": str(authority.revoke())}
        collectors(listening.getsockname()[1], tls=tls).launch()
        with context.wrap_socket(listening.accept()[0], server_side=True) as peer:
            peer.settimeout(PATIENCE)
            router = Connection(peer)
            router.greet(frame(OPEN, ["router"]))
            router.introduce()
            authority.revoke(server)
            with suppress(OSError):
                router.until_closed()  # it answers nothing, and sends heartbeats
