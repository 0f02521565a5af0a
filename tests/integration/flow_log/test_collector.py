"""A collector process beside real routers: the log has what the clients counted."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.integration.flow_log.conftest import Collectors
from tests.integration.flow_log.traffic import PATIENCE, Flow, a_network, a_router, await_counts, counted
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Clients
from tests.integration.support.flow_collector import FlowCollector
from tests.integration.support.passwords import PASSWORD
from tests.integration.support.policies import ALICE, ENABLED, Governed, group, vhost
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, eventually, listener

from isthmus_flowlog.collector.journal import blocks
from isthmus_router import pem

PAGE = Path(__file__).parents[3] / "docs" / "flow-log.md"


def test_the_log_is_what_the_clients_counted(
    clients: Clients, routers: Routers, collectors: Collectors
) -> None:
    network = a_network(routers)
    collector = collectors(network["A"].port).start()
    flow = Flow(clients, network["E"].port, network["B"].port)
    flow.send(700)
    await_counts(collector, flow, clients, **{"in": "E", "out": "B"})
    for direction, router, container in (("in", "E", "writer of orders"), ("out", "B", "reader of orders")):
        rows = collector.rows("deliveries", router=router, direction=direction, address="orders")
        assert sum(row["deliveries"] for row in rows) == flow.messages
        assert sum(row["octets"] for row in rows) == flow.octets
        assert sum(count for row in rows for _, count in row["sizes"]) == flow.messages
        assert sum(count for row in rows for _, count in row["latencies"]) == flow.messages
        assert sorted(row["sequence"] for row in rows) == list(range(1, len(rows) + 1))
        for name, value in (
            ("container", container),
            ("role", "normal"),
            ("endpoint", "clients"),
            ("host", "127.0.0.1"),
        ):
            assert {row[name] for row in rows} == {value}
        (link,) = collector.rows("records", type="AMQP_LINK", router=router, address="orders")
        assert {row["link"] for row in rows} == {link["identity"]}
        (connection,) = collector.rows("records", identity=link["parent"])
        assert (connection["type"], connection["container"]) == ("CONNECTION", container)
    assert {row["name"] for row in collector.rows("records", type="ROUTER")} == {"A", "B", "E"}
    assert {row["router_mode"] for row in collector.rows("deliveries", router="E")} == {"edge"}
    between = collector.rows("deliveries", router="B", role="edge", direction="in")
    assert sum(row["deliveries"] for row in between) >= flow.messages
    assert {row["endpoint"] for row in between} == {"edges"}
    events = {(row["event"], row["subject"]) for row in collector.rows("events", router="A")}
    assert {("neighbour-up", "B"), ("router-added", "B")} <= events
    assert collector.metric("missed_messages_total") == 0
    assert collector.metric("malformed_total") == 0
    assert collector.metric("rows_unaccompanied_total") == 0
    flow.sender.client.drop()
    clients.until(
        lambda: all(row["end_time"] for row in collector.rows("records", container="writer of orders")),
        "the end of the connection",
        PATIENCE,
    )
    identities = [row["identity"] for row in collector.all_rows("deliveries")]
    assert len(identities) == len(set(identities)), "nothing was written twice"


def in_journal(collector: FlowCollector) -> list[Path]:
    """Files of rows that are in no file of the log yet."""
    return list((collector.log_folder / ".staging" / "journal").iterdir())


def test_a_collector_that_is_killed_in_traffic_loses_no_row(
    clients: Clients, routers: Routers, collectors: Collectors
) -> None:
    router = a_router(routers)
    collector = collectors(router.port, rotate={"seconds": 2}).start()
    flow = Flow(clients, router.port, router.port)
    cut = 0
    for round_ in range(4):
        flow.send(150)
        if round_:  # the first time it is killed in the middle of what it receives
            clients.until(lambda: in_journal(collector), "rows in the journal")
        until = time.monotonic() + 0.4 * max(0, round_ - 1)
        clients.until(lambda until=until: time.monotonic() > until, "the time to be killed")  # type: ignore[misc]
        collector.kill()
        cut += len(in_journal(collector))
        flow.send(50)
        collector.start()
    await_counts(collector, flow, clients, **{"in": "A", "out": "A"})
    assert cut > 0, "at least once there was something in the journal"
    for direction in ("in", "out"):
        rows = collector.rows("deliveries", address="orders", direction=direction)
        assert sum(row["octets"] for row in rows) == flow.octets
        assert sorted(row["sequence"] for row in rows) == list(range(1, len(rows) + 1))


def test_sigterm_writes_everything_within_ten_seconds(
    clients: Clients, routers: Routers, collectors: Collectors
) -> None:
    router = a_router(routers)
    collector = collectors(router.port, rotate={"seconds": 1000}).start()
    flow = Flow(clients, router.port, router.port)
    flow.send(300)
    journal = collector.log_folder / ".staging" / "journal"

    def journaled() -> int:
        rows = [
            row
            for path in journal.iterdir()
            for table, content in blocks(path)
            if table == "deliveries"
            for row in content.to_pylist()
        ]
        return sum(row["accepted"] for row in rows if row["address"] == flow.address)

    clients.until(lambda: journaled() == 2 * flow.messages, "all summaries in the journal", PATIENCE)
    assert collector.all_rows("deliveries") == []
    began = time.monotonic()
    collector.stop()
    assert time.monotonic() - began < 10
    assert counted(collector, flow, **{"in": "A", "out": "A"})
    assert list(journal.iterdir()) == []


def test_one_collector_for_a_log(routers: Routers, collectors: Collectors) -> None:
    router = a_router(routers)
    first = collectors(router.port).start()
    second = collectors(router.port, log=str(first.log_folder), staging=str(first.folder / "other")).launch()
    assert second.process is not None
    assert second.process.wait(20) == 1
    second.process = None
    assert f"another collector writes to {first.log_folder}" in second.log
    assert first.get("/readyz")[0] == 200


def test_tls_with_a_certificate_that_is_rotated(
    clients: Clients, routers: Routers, collectors: Collectors, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder, "network")
    router = routers.add(
        "A",
        authority.issue("A").profile("tls", uidFormat="n"),
        listener(plain := free_port(), name="plain"),
        sslProfile="tls",
        authenticatePeer=True,
        requireSsl=True,
        saslMechanisms="EXTERNAL",
    )
    router.sections[0][1]["flowIntervalSeconds"] = 1
    router.start()
    files = {"ca": folder / "ca.crt", "cert": folder / "tls.crt", "key": folder / "tls.key"}

    def install(name: str, issuer: Authority = authority) -> None:
        identity = issuer.issue(name)
        for key, path in zip(
            ("cert", "key", "ca"), (identity.certificate, identity.key, authority.file), strict=True
        ):
            files[key].write_bytes(path.read_bytes())

    def users() -> set[str | None]:
        return {row["user"] for row in collector.rows("records", type="CONNECTION")}

    def digest() -> str:
        return pem.digest(files["ca"].read_bytes(), files["cert"].read_bytes(), None)

    def reported() -> tuple[str, bool]:
        status = json.loads(collector.get("/status")[1])
        return status["certificates"], status["certificatesProblem"] != ""

    install("stranger", Authority(folder, "other"))
    collector = collectors(router.port, tls={key: str(path) for key, path in files.items()}).launch()
    eventually(lambda: "no connection to a router" in collector.get("/readyz")[1], "a refusal")
    install("first")
    eventually(lambda: users() == {"first"}, "a connection", PATIENCE)
    flow = Flow(clients, plain, plain)
    flow.send(100)
    clients.until(lambda: counted(collector, flow, **{"in": "A", "out": "A"}), "all before", PATIENCE)
    flow.send(100)
    first = digest()
    assert reported() == (first, False)
    files["key"].write_text("half of a rotation")
    clients.until(
        lambda: "no connection with changed certificates" in collector.log,
        "the new files cannot be used",
        PATIENCE,
    )
    assert collector.metric("connected") == 1
    assert reported() == (first, True)
    install("second")
    while "second" not in users():
        flow.send(20)
    assert reported() == (digest(), False)
    flow.send(100)
    await_counts(collector, flow, clients, **{"in": "A", "out": "A"})
    for direction in ("in", "out"):
        rows = collector.rows("deliveries", address="orders", direction=direction)
        assert sorted(row["sequence"] for row in rows) == list(range(1, len(rows) + 1))
    clients.until(
        lambda: all(row["end_time"] for row in collector.rows("records", user="first")),
        "the end of the connection with the earlier certificate",
        PATIENCE,
    )
    (first,), (second,) = (collector.rows("records", user=user) for user in ("first", "second"))
    assert second["start_time"] < first["end_time"], "both connections were there for a while"
    assert "Traceback" not in collector.log


def test_the_listener_of_the_page_accepts_its_collector_alone(
    clients: Clients, routers: Routers, collectors: Collectors, tmp_path_factory: pytest.TempPathFactory
) -> None:
    authority = Authority(tmp_path_factory.mktemp("certificates"), "network")
    server, own, app = (authority.issue(name) for name in ("A", "collector.example", "app"))
    blocks_of_page = [item.partition("```")[0] for item in PAGE.read_text().split("```json")[1:]]
    (text,) = (item for item in blocks_of_page if "peerNames" in item)
    text = text.replace("35672", str(port := free_port()))
    for name, path in (("ca.crt", server.trusted), ("tls.crt", server.certificate), ("tls.key", server.key)):
        text = text.replace(f"/tls/{name}", str(path))
    sections = [(kind, attributes) for kind, attributes in json.loads(text)]
    sections[1][1]["host"] = "localhost"
    router = routers.start("A", *sections, allowFlowRecords=False)
    files = {"ca": str(authority.file), "cert": str(own.certificate), "key": str(own.key)}
    collectors(port, tls=files).start()
    refused = clients.connect(port, wait=False, tls=app.client_domain(), mechanisms="EXTERNAL")
    condition = refused.await_end()
    assert condition is not None
    assert condition.name == "amqp:unauthorized-access"
    client = clients.connect(router.port)
    assert client.refusal(client.receiver("mc/sfe.all", wait=False).link).name == "amqp:unauthorized-access"


@pytest.mark.parametrize(("issuer", "host"), [("network", "other.example"), ("other", "localhost")])
def test_a_router_with_a_certificate_of_another_host_or_authority(
    routers: Routers, collectors: Collectors, tmp_path_factory: pytest.TempPathFactory, issuer: str, host: str
) -> None:
    folder = tmp_path_factory.mktemp("certificates")
    trusted = Authority(folder, "network")
    used = trusted if issuer == trusted.name else Authority(folder, issuer)
    router = routers.start("A", used.issue("A", host).profile("tls"), sslProfile="tls")
    collector = collectors(router.port, tls={"ca": str(trusted.file)}).launch()
    eventually(
        lambda: "certificate verify failed" in collector.get("/readyz")[1], "the router is refused", PATIENCE
    )
    assert collector.metric("connected") == 0
    collector.stop()
    collector.settings["tls"] = {"ca": str(used.file), "verifyHostname": host == "localhost"}
    collector.start()


def test_a_router_whose_certificate_is_revoked(
    routers: Routers, collectors: Collectors, tmp_path_factory: pytest.TempPathFactory
) -> None:
    authority = Authority(tmp_path_factory.mktemp("certificates"), "network")
    server = authority.issue("A")
    router = routers.start("A", server.profile("tls"), sslProfile="tls")
    tls = {"ca": str(authority.file), "crl": str(authority.revoke())}
    collector = collectors(router.port, tls=tls).start()
    authority.revoke(server)
    eventually(
        lambda: "certificate verify failed" in collector.get("/readyz")[1], "the router is refused", PATIENCE
    )
    assert collector.metric("connected") == 0
    authority.revoke()
    eventually(lambda: collector.get("/readyz")[0] == 200, "the router is accepted again", PATIENCE)


def test_a_router_whose_authority_is_revoked(
    routers: Routers, collectors: Collectors, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = Authority(tmp_path_factory.mktemp("certificates"), "network")
    lost = root.subordinate("lost")
    router = routers.start("A", lost.issue("A").profile("tls"), sslProfile="tls")
    tls = {"ca": str(root.file), "crl": str(root.revoke())}
    collector = collectors(router.port, tls=tls).start()
    root.revoke(lost)
    eventually(
        lambda: "certificate verify failed" in collector.get("/readyz")[1], "the router is refused", PATIENCE
    )
    assert collector.metric("connected") == 0


def test_a_password_that_is_changed_and_a_policy(
    governed: Governed, collectors: Collectors, tmp_path: Path
) -> None:
    allowed = group(ALICE, sources=["mc/sfe.*"], targets=["sfe.*"])
    router = governed(ENABLED, vhost(groups={"collectors": allowed}))
    user, password = tmp_path / "user", tmp_path / "password"
    user.write_text(f"{ALICE}\n")
    password.write_text("wrong\n")
    sasl = {"userFile": str(user), "passwordFile": str(password), "mechanisms": "PLAIN"}
    collector = collectors(router.port, sasl=sasl).launch()
    eventually(lambda: "amqp:unauthorized-access" in collector.get("/readyz")[1], "a refusal")
    password.write_text(f"{PASSWORD}\n")
    eventually(
        lambda: collector.rows("records", type="CONNECTION", user=ALICE), "its own connection", PATIENCE
    )
    assert collector.metric("flushes_total") == 1
    assert "link ended by the router" not in collector.log
