"""What the connection is made with, its clock, and the answers over HTTP."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from isthmus_flowlog.collector import amqp
from isthmus_flowlog.collector.amqp import STEP_BACK_US, Clock
from isthmus_flowlog.collector.assembly import Assembly
from isthmus_flowlog.collector.credentials import is_local, login
from isthmus_flowlog.collector.http import Server
from isthmus_flowlog.collector.lines import MOST
from isthmus_flowlog.collector.metrics import REASONS, Metrics
from isthmus_flowlog.collector.session import Session
from isthmus_flowlog.collector.settings import Sasl, Tls, parse
from isthmus_flowlog.collector.wire import Beacon, Records
from isthmus_router.flows.records import Attr, RecordType
from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.types import ULong


def test_the_clock_is_never_twice_the_same_and_follows_large_steps_only() -> None:
    readings = iter([1000, 1000, 500, 2000, 1000 + STEP_BACK_US, 999, 1000])
    clock = Clock(lambda: next(readings) * 1000)
    assert [clock() for _ in range(7)] == [1000, 1001, 1002, 2000, 1000 + STEP_BACK_US, 999, 1000]


def test_how_to_log_in(tmp_path: Path) -> None:
    user, password = tmp_path / "user", tmp_path / "password"
    user.write_text("flows\n")
    password.write_text("first\n")
    sasl = Sasl(userFile=str(user), passwordFile=str(password))
    assert login(sasl, None) == {"user": "flows", "password": "first"}
    password.write_text("second")
    assert login(sasl, None)["password"] == "second"
    assert login(Sasl(), None) == {"allowed_mechs": "ANONYMOUS"}
    assert login(Sasl(), Tls(ca="x")) == {"allowed_mechs": "ANONYMOUS"}
    assert login(Sasl(), Tls(cert="x", key="y")) == {"allowed_mechs": "EXTERNAL"}
    assert login(Sasl(user="u", mechanisms="PLAIN"), None) == {"user": "u", "allowed_mechs": "PLAIN"}
    password.unlink()
    with pytest.raises(OSError, match="password"):
        login(sasl, None)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("127.0.0.7", True),
        ("::1", True),
        ("hub.net.svc", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
    ],
)
def test_plain_without_tls_is_for_this_machine(host: str, local: bool) -> None:
    assert is_local(host) is local


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(
        "127.0.0.1",
        0,
        not_healthy=lambda: None,
        not_ready=lambda: "no connection",
        status=lambda: {"routers": 3},
        metrics=Metrics().exposition,
    )
    made.start()
    yield made
    made.stop()


def get(server: Server, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_answers(server: Server) -> None:
    assert get(server, "/healthz") == (200, "ok\n")
    assert get(server, "/readyz?verbose") == (503, "no connection\n")
    assert get(server, "/other") == (404, "there are /healthz, /readyz, /status, /metrics\n")
    assert get(server, "/status") == (200, '{"routers": 3}')
    status, text = get(server, "/metrics")
    assert status == 200
    assert "isthmus_collector_connected 0.0" in text
    assert 'isthmus_collector_rows_written_total{table="deliveries"} 0.0' in text
    assert "_created" not in text


def test_connections_without_a_request_hold_nobody_up(server: Server) -> None:
    with contextlib.ExitStack() as idle:
        for _ in range(200):
            idle.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        assert get(server, "/healthz") == (200, "ok\n")


def test_a_name_that_a_web_page_has_pointed_at_it_is_not_answered(server: Server) -> None:
    def answer(path: str, host: str) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=10) as found:
                return int(found.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert answer("/status", "attacker.example") == answer("/metrics", "attacker.example:80") == 421
    assert answer("/healthz", "attacker.example") == answer("/status", "10.0.0.1") == 200


def test_names_of_metrics_have_units_and_bounded_labels() -> None:
    for family in Metrics().registry.collect():
        if family.name.startswith("process_"):
            continue
        assert family.name.startswith("isthmus_collector_")
        assert {label for sample in family.samples for label in sample.labels} <= {"table", "reason"}
        assert len(family.samples) <= max(4, len(REASONS))


def collector_of(
    session: Session,
    assembly: Assembly,
    is_full: Callable[[], bool] = lambda: False,
    hosts: Sequence[str] = ("localhost",),
) -> amqp.Collector:
    """One that is not connected and writes nothing."""
    return amqp.Collector(
        parse({"hosts": list(hosts), "log": "/nowhere"}),
        session,
        assembly,
        Metrics(),
        put=lambda rows, now, octets: None,
        has_room=lambda: True,
        is_full=is_full,
    )


@contextlib.contextmanager
def running(*hosts: str) -> Iterator[amqp.Collector]:
    """A collector that runs until the end of the block, and then ends."""
    collector = collector_of(Session(), Assembly(), hosts=hosts)
    thread = threading.Thread(target=collector.run, daemon=True)
    thread.start()
    yield collector
    collector.stopping = True
    thread.join(20)
    assert not thread.is_alive()


def test_records_for_which_there_was_credit_are_refused_when_the_queue_is_full() -> None:
    session, assembly, full = Session(), Assembly(), [False]
    collector = collector_of(session, assembly, is_full=lambda: full[0])
    session.beacon(Beacon(1, "abcde:0"), 1)
    session.sources["abcde:0"].flush_wanted = False
    record = {int(Attr.TYPE): int(RecordType.ROUTER), int(Attr.IDENTITY): "abcde:0", int(Attr.START_TIME): 1}
    for full[0] in (True, False):
        collector._take("mc/sfe.abcde:0", Records(2, [record]), 2)
        assert (assembly.counts.too_many, assembly.counts.records) == ((1, 0) if full[0] else (1, 1))
        assert session.sources["abcde:0"].flush_wanted
        assert not session.sources["abcde:0"].missed


def test_a_source_beyond_its_share_of_the_processor_is_not_read_and_gets_no_credit() -> None:
    session = Session()
    collector = collector_of(session, Assembly())
    for name in ("abcde:0", "other:0"):
        session.beacon(Beacon(1, name), 1)
        session.sources[name].flush_wanted = False
        collector._receivers[f"mc/sfe.{name}"] = link = Mock(credit=0)
        collector._turns.took(name, 1.0 if name == "abcde:0" else 0.01, 0.0)
    heartbeat = encode_message(Message(properties=Properties(message_id=ULong(2), subject="HEARTBEAT")))
    assert collector._message("mc/sfe.abcde:0", b"anything") == "too-much"
    assert collector._message("mc/sfe.other:0", heartbeat) is None
    assert session.sources["abcde:0"].flush_wanted
    for name in ("abcde:0", "other:0"):
        collector._give_credit(f"mc/sfe.{name}")
    link.flow.assert_called_once()
    collector._receivers["mc/sfe.abcde:0"].flow.assert_not_called()
    assert collector._held_back == {"mc/sfe.abcde:0"}


def test_a_router_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (
        ("OPEN_SECONDS", 0.1),
        ("FIRST_PAUSE", 0.01),
        ("LONGEST_PAUSE", 0.01),
        ("TICK_SECONDS", 0.01),
    ):
        monkeypatch.setattr(amqp, name, seconds)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(20)
        with running(f"127.0.0.1:{silent.getsockname()[1]}") as collector:
            for _ in range(3):
                with silent.accept()[0] as connection:
                    connection.settimeout(5)  # sooner than idle connections end by themselves
                    while connection.recv(1000):
                        pass
            assert collector.trouble == "no answer within 0.1 s"


def test_a_host_that_cannot_be_looked_up_or_has_an_address_without_a_route_is_left_for_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before, either ended the collector."""
    for name, seconds in (("OPEN_SECONDS", 0.2), ("FIRST_PAUSE", 0.01), ("TICK_SECONDS", 0.01)):
        monkeypatch.setattr(amqp, name, seconds)
    found = socket.getaddrinfo
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refused = closed.getsockname()

    def look_up(host: str, *others: object) -> object:
        if host == "unknown.test":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host == "halves.test":
            known = socket.AF_INET, socket.SOCK_STREAM, 6, ""
            return [(*known, refused), (*known, ("255.255.255.255", 1))]
        return found(host, *others)  # type: ignore[call-overload]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(20)
        with running("unknown.test", "halves.test", f"127.0.0.1:{other.getsockname()[1]}"):
            other.accept()[0].close()


def test_an_event_of_what_the_engine_has_freed_ends_all_connections_with_few_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collector = collector_of(Session(), Assembly())
    collector._connection, earlier = Mock(), Mock()
    present = collector._connection
    collector._gates = {present: Mock(), earlier: Mock()}
    for _ in range(1000):
        collector.on_delivery(Mock(connection=None, link=None))
    for connection in (present, earlier):
        connection.transport.close_tail.assert_called()
        connection.transport.close_head.assert_called()
    assert collector._connection is None
    assert len([one for one in caplog.messages if one == "event cannot be handled"]) == MOST


def test_the_pause_grows_a_little_when_connections_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(amqp.time, "monotonic", lambda: now[0])
    collector = collector_of(Session(), Assembly())
    monkeypatch.setattr(collector, "_do", lambda actions: None)

    def pause(seconds: float) -> float:
        collector._connection = connection = Mock(remote_container="router")
        collector.on_connection_remote_open(Mock(connection=connection))
        now[0] += seconds
        collector._gone(connection, "gone")
        return collector._attempt_at - now[0]

    assert [round(pause(seconds), 1) for seconds in (60, 1, 1, 1, 1, 1, 60)] == [
        0.2,
        0.4,
        0.8,
        1.6,
        2,
        2,
        0.2,
    ]


def test_a_router_that_takes_nothing_gets_no_credit_and_is_left_later() -> None:
    collector = collector_of(Session(), Assembly())
    collector._receivers["mc/sfe.all"] = link = Mock(credit=0)
    collector._connection = connection = Mock()
    gate = collector._gate = collector._gates[connection] = Mock(refused=None)
    for seconds, credit, stays in ((0.5, True, True), (1.5, False, True), (31.0, False, False)):
        link.flow.reset_mock()
        gate.unread_seconds = seconds
        collector._give_credit("mc/sfe.all")
        assert link.flow.called is credit
        collector._look_at_gates()
        assert connection.transport.close_head.called is not stays
    assert collector.trouble == "the router reads nothing for 30 s"


def test_a_router_that_does_not_answer_a_close_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that keeps each connection whose place another one has taken."""
    collector = collector_of(Session(), Assembly())
    collector._connection, earlier = Mock(), Mock()
    collector._earlier.append((earlier, 0.0))
    collector.ticked = 100.0
    collector._look_at_credentials()
    earlier.close.assert_called_once()
    for seconds, cut in ((amqp.CLOSE_SECONDS - 0.1, False), (amqp.CLOSE_SECONDS, True)):
        collector.ticked = 100.0 + seconds
        collector._look_at_closing()
        assert earlier.transport.close_head.called is cut
    assert collector._closing == {}


def test_nothing_is_taken_in_of_a_connection_that_is_in_use_no_more() -> None:
    collector = collector_of(Session(), Assembly())
    present, earlier, closed = Mock(), Mock(), Mock()
    collector._connection = present
    collector._earlier.append((earlier, 1000.0))
    taken: list[object] = []
    collector._message = lambda address, payload: taken.append(address)  # type: ignore[method-assign]
    for connection in (present, earlier, closed):
        link = Mock(connection=connection, is_sender=False, state=0, recv=lambda _: b"message")
        link.source.address = connection
        collector.on_delivery(Mock(link=link, delivery=Mock(partial=False, aborted=False)))
    assert taken == [present, earlier]
