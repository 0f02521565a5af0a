"""A changed configuration file is applied while the router runs; the HTTP endpoint tells what is in force."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, address, eventually, listener
from tests.integration.support.topology import Network


class Watched:
    """A router and its HTTP endpoint."""

    def __init__(self, routers: Routers) -> None:
        self.http_port = free_port()
        self.router: Router = routers.start("A", listener(self.http_port, name="http", http=True))
        eventually(lambda: self.ready, "the router is ready")

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://localhost:{self.http_port}{path}", timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    @property
    def ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except urllib.error.URLError:
            return False

    @property
    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.get("/status")[1])
        return document

    def metric(self, name: str) -> float:
        lines = self.get("/metrics")[1].splitlines()
        return next(
            float(line.split()[-1]) for line in lines if line.split(" ")[0] == f"isthmus_router_{name}"
        )

    def write(self, text: str | None = None) -> None:
        """Write the file, and wait until the router has taken it or said why not."""
        if text is not None:
            self.router.config_path.write_text(text)
        else:
            self.router.configure()
        wanted = hashlib.sha256(self.router.config_path.read_bytes()).hexdigest()

        def taken() -> bool:
            return f'"hash":"{wanted}"' in self.router.log or self.status["lastConfigError"] is not None

        eventually(taken, "the configuration is read again")


@pytest.fixture
def watched(routers: Routers) -> Watched:
    return Watched(routers)


def test_a_listener_is_added_and_removed(watched: Watched, clients: Clients) -> None:
    kept = clients.connect(watched.router.port).await_open()
    port = free_port()
    watched.router.sections.append(listener(port, name="extra"))
    watched.write()
    through_it = clients.connect(port).await_open()
    watched.router.sections.pop()
    watched.write()
    through_it.await_end()
    assert "extra" not in {item["name"] for item in watched.status["listeners"]}
    assert kept.sender("x")


def test_a_signal_that_has_others_read_their_files_again(watched: Watched, clients: Clients) -> None:
    client = clients.connect(watched.router.port)
    os.kill(watched.router.pid, signal.SIGHUP)
    watched.router.await_log("SIGHUP changes nothing")
    receiver = client.receiver("hup", credit=1, accept=True)
    assert client.sender("hup").await_credit().deliver("still here") == "accepted"
    assert receiver.bodies() == ["still here"]


def test_a_treatment_changes_under_attached_links(watched: Watched, clients: Clients) -> None:
    client = clients.connect(watched.router.port).await_open()
    receivers = [client.receiver("reloaded", credit=10, accept=True) for _ in range(2)]
    sender = client.sender("reloaded")
    assert sender.deliver("to one") == "accepted"
    watched.router.sections.append(address("reloaded", "multicast"))
    watched.write()
    assert sender.deliver("to all") == "accepted"
    clients.until(lambda: sum(len(r.arrived()) for r in receivers) == 3, "three deliveries")
    assert all("to all" in receiver.bodies() for receiver in receivers)


def test_a_cost_changes_for_both_ends_of_an_open_link(routers: Routers, clients: Clients) -> None:
    network = Network(routers)
    network.line("A", "B", "C")
    network.start()
    receiver = clients.connect(network["C"].port).receiver("costly", credit=500, accept=True)
    sender = clients.connect(network["A"].port).sender("costly")
    clients.until(lambda: sender.credit > 0, "credit for a consumer at C")
    opened = [item["id"] for item in network["B"].status()["connections"]]
    for cost in (7, 3):
        network.set_cost("A", "B", cost)
        for number in range(50):
            assert sender.deliver(f"{cost}-{number}") == "accepted"
        network.await_costs("A", {"B": cost, "C": cost + 1})
        network.await_costs("B", {"A": cost, "C": 1})
        network.await_costs("C", {"B": 1, "A": cost + 1})
        assert sender.deliver(f"{cost}-last") == "accepted"
    assert [item["id"] for item in network["B"].status()["connections"]] == opened
    clients.until(lambda: len(receiver.arrived()) == 102, "every message")


def test_more_data_connections_are_opened_beside_those_there_are(routers: Routers, clients: Clients) -> None:
    network = Network(routers)
    network.line("A", "B")
    network.start()

    def opened(count: int) -> list[int]:
        return [
            item["id"]
            for item in network["A"].await_status(
                lambda status: (
                    sum(item["role"] == "inter-router-data" for item in status["connections"]) == count
                ),
                f"{count} data connections",
            )["connections"]
            if item["role"] != "normal"
        ]

    before = opened(2)
    section = next(section for _, section in network["A"].sections if section.get("name") == "to-B")
    section["dataConnectionCount"] = 4
    network["A"].configure()
    assert set(before) < set(opened(4))


def test_a_broken_file_changes_nothing_and_is_reported(watched: Watched, clients: Clients) -> None:
    good = watched.router.config_path.read_text()
    watched.write("router {\n mode: nowhere\n}\n")
    status = watched.status
    assert "attribute mode: 'nowhere' is not one of" in status["lastConfigError"]
    assert status["router"]["configHash"] == hashlib.sha256(good.encode()).hexdigest()
    assert (watched.metric("config_valid"), watched.metric("config_errors_total")) == (0, 1)
    clients.connect(watched.router.port).await_open()
    watched.router.config_path.write_text(good)
    eventually(lambda: watched.status["lastConfigError"] is None, "the error is taken back")
    assert watched.metric("config_valid") == 1


def test_what_needs_a_restart_is_refused(watched: Watched) -> None:
    watched.router.sections[0] = ("router", {"mode": "standalone", "id": "other"})
    watched.write()
    assert watched.status["lastConfigError"] == "needs a restart: router.id: A -> other"
    assert watched.status["router"]["id"] == "A"


def test_probes_and_metrics(watched: Watched, clients: Clients) -> None:
    clients.connect(watched.router.port).await_open()
    assert watched.get("/healthz") == (200, "ok\n")
    assert watched.metric('connections{direction="in",role="normal"}') == 1
    assert watched.get("/nowhere")[0] == 404


def test_ready_is_said_only_when_everything_listens(routers: Routers) -> None:
    """Even if a probe comes as soon as it is answered at all."""
    router = routers.add("R", *(listener(free_port(), name=f"more-{number}") for number in range(200)))
    router.sections.insert(1, router.sections.pop(2))
    assert router.sections[1][1]["name"] == "health"
    router.launch()
    found: dict[str, Any] = {}

    deadline = time.monotonic() + 30
    while not found or not found["router"]["ready"]:
        assert time.monotonic() < deadline
        with suppress(urllib.error.URLError):
            found = router.status()
    assert [row["state"] for row in found["listeners"]] == ["listening"] * 202


def test_credentials_that_do_not_belong_together_are_reported_and_not_used(
    watched: Watched, clients: Clients, tmp_path: Path
) -> None:
    identity = Authority(tmp_path, "reload").issue("A")
    trusting = identity.client_domain(present=False)
    port = free_port()
    watched.router.sections += [identity.profile(), listener(port, name="tls", sslProfile="tls")]
    watched.write()
    clients.connect(port, tls=trusting)
    good = identity.key.read_text()
    identity.key.write_text(Authority(tmp_path, "other").issue("B").key.read_text())
    eventually(
        lambda: "the key does not belong to the certificate" in (watched.status["lastConfigError"] or ""),
        "the mismatch is reported",
    )
    assert watched.metric("config_valid") == 0
    clients.connect(port, tls=trusting)
    identity.key.write_text(good)
    eventually(lambda: watched.status["lastConfigError"] is None, "the error is taken back")
