"""Clients this project did not write: rhea on Node.js, and C programs on Debian's proton (a proactor client)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.support.certificates import Authority
from tests.integration.support.foreign import Run
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, listener
from tests.integration.support.topology import Network


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Router, Router]]:
    """Two edges at either end of two interior routers."""
    routers = Routers(tmp_path_factory.mktemp("edges"))
    network = Network(routers)
    network.line("A", "B")
    network.edge("E1", "A")
    network.edge("E2", "B")
    network.start()
    for router_id in ("A", "B"):
        network[router_id].await_status(
            lambda status: sum(row["class"] == "H" for row in status["addresses"]) == 2,
            "both edges are known",
        )
    yield network["E1"], network["E2"]
    routers.stop()


def test_rhea_request_and_reply(router: Router, rhea: Run) -> None:
    server = rhea("echo_server.js", "localhost", router.port, "rhea/service", 100)
    server.await_line("ready")
    answers = rhea("requests.js", "localhost", router.port, "rhea/service", 100).result()
    assert answers == [f"REQUEST {number}" for number in range(100)]
    server.result()


def test_rhea_outcomes(router: Router, rhea: Run) -> None:
    heard = rhea("outcomes.js", "localhost", router.port, "rhea/outcomes").result()
    assert heard["accept"]["outcome"] == "accepted"
    assert heard["reject"]["outcome"] == "rejected"
    assert heard["reject"]["error"] == {
        "condition": "acme:no",
        "description": "not this one",
        "info": {"code": 7},
    }
    assert heard["release"]["outcome"] == "released"
    assert not heard["release"].get("failed")
    assert heard["modify"]["outcome"] == "released", "rhea's word for both"
    assert heard["modify"]["failed"] is True
    assert heard["modify"]["undeliverable"] is True
    assert heard["presettled"]["settled"] is True


@pytest.mark.parametrize(("count", "size"), [(2000, 100), (50, 100_000), (3, 3_000_000)])
def test_rhea_transfer(router: Router, rhea: Run, count: int, size: int) -> None:
    result = rhea("transfer.js", "localhost", router.port, f"rhea/transfer/{size}", count, size).result(60)
    assert result == {"received": count, "accepted": count}


def test_rhea_over_tls_with_a_client_certificate(routers: Routers, rhea: Run, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "good")
    port = free_port()
    tls = listener(
        port,
        name="secured",
        sslProfile="tls",
        requireSsl=True,
        authenticatePeer=True,
        saslMechanisms="EXTERNAL",
    )
    router = routers.start("A", authority.issue("router").profile(), tls)
    alice = authority.issue("alice")
    certificate = (alice.trusted, alice.certificate, alice.key)
    result = rhea("transfer.js", "localhost", port, "rhea/tls", 100, 10_000, *certificate).result()
    assert result == {"received": 100, "accepted": 100}
    assert "CN=alice" in router.await_log('"role":"normal","dir":"in"')


def test_rhea_from_edge_to_edge(edges: tuple[Router, Router], rhea: Run) -> None:
    first, second = edges
    server = rhea("echo_server.js", "localhost", second.port, "rhea/far", 50)
    server.await_line("ready")
    answers = rhea("requests.js", "localhost", first.port, "rhea/far", 50).result()
    assert answers == [f"REQUEST {number}" for number in range(50)]
    server.result()


def test_rhea_settles_in_two_phases_from_edge_to_edge(edges: tuple[Router, Router], rhea: Run) -> None:
    first, second = edges
    assert rhea("second.js", "localhost", first.port, second.port, "rhea/second").result() == [
        "message",
        "sender hears of the outcome, unsettled",
        "receiver hears of the settlement",
    ]


@pytest.mark.parametrize("size", [100, 50_000, 2_000_000])
def test_c_clients_unsettled(router: Router, c_client: Run, size: int) -> None:
    count = 20_000 if size < 1000 else 4_000_000 // size
    receiver = c_client("recv", f"localhost:{router.port}", f"c/{size}", count)
    receiver.await_line("attached")
    sender = c_client("send", f"localhost:{router.port}", f"c/{size}", count, size)
    assert sender.result()["accepted"] == count
    got = receiver.result()
    assert (got["duplicates"], got["reordered"]) == (0, 0)


def test_c_clients_presettled(router: Router, c_client: Run) -> None:
    receiver = c_client("recv", f"localhost:{router.port}", "c/presettled", 200, "--credit", 1000)
    receiver.await_line("attached")
    c_client("send", f"localhost:{router.port}", "c/presettled", 200, 100, "--presettled").result()
    assert receiver.result()["reordered"] == 0


def test_c_clients_from_edge_to_edge(edges: tuple[Router, Router], c_client: Run) -> None:
    first, second = edges
    receiver = c_client("recv", f"localhost:{second.port}", "c/far", 10_000)
    receiver.await_line("attached")
    sender = c_client("send", f"localhost:{first.port}", "c/far", 10_000, 100)
    assert sender.result(60)["accepted"] == 10_000
    got = receiver.result()
    assert (got["duplicates"], got["reordered"]) == (0, 0)
