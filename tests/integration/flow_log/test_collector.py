"""A collector process beside real routers: the log has what the clients counted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.integration.flow_log.conftest import Collectors
from tests.integration.flow_log.traffic import PATIENCE, Flow, a_network, a_router, await_counts, counted
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Clients
from tests.integration.support.passwords import PASSWORD
from tests.integration.support.policies import ALICE, ENABLED, Governed, group, vhost
from tests.integration.support.routers import Routers, eventually

from isthmus_flowlog.collector.journal import blocks


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


def test_a_collector_that_is_killed_in_traffic_loses_no_row(
    clients: Clients, routers: Routers, collectors: Collectors
) -> None:
    router = a_router(routers)
    collector = collectors(router.port, rotate={"seconds": 2}).start()
    flow = Flow(clients, router.port, router.port)
    cut = 0
    for round_ in range(4):
        flow.send(150)
        until = time.monotonic() + 0.4 * round_
        clients.until(lambda until=until: time.monotonic() > until, "the time to be killed")  # type: ignore[misc]
        collector.kill()
        cut += len(list((collector.log_folder / ".staging" / "journal").iterdir()))
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

    install("stranger", Authority(folder, "other"))
    collector = collectors(router.port, tls={key: str(path) for key, path in files.items()}).launch()
    eventually(lambda: "no connection to a router" in collector.get("/readyz")[1], "a refusal")
    install("first")
    eventually(lambda: users() == {"first"}, "a connection", PATIENCE)
    install("second")
    router.stop()
    router.start()
    eventually(lambda: users() == {"first", "second"}, "a connection with the new certificate", PATIENCE)


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
