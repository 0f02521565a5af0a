"""A web page that has pointed a name at a router reads nothing from it, a flood of requests holds up nobody, and the
health port does not say who the clients are."""

from __future__ import annotations

import http.client
import socket
import threading
import time
import urllib.request

from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, connector, listener
from tests.security.support.canary import Canary

FLOOD_SECONDS = 3.0
CLIENTS = 8


def answer(router: Router, path: str, host: str) -> int:
    with socket.create_connection(("localhost", router.http_port), timeout=30) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return int(connection.makefile("rb").readline().split()[1])


def flood(router: Router, answers: list[int], until: float) -> None:
    while time.monotonic() < until:
        connection = http.client.HTTPConnection("localhost", router.http_port, timeout=60)
        try:
            connection.request("GET", "/status")
            response = connection.getresponse()
            response.read()
            answers.append(response.status)
        except (OSError, http.client.HTTPException):
            answers.append(0)  # its place was given to another one
        finally:
            connection.close()


def test_foreign_names_are_refused_and_a_flood_holds_up_no_client(routers: Routers) -> None:
    router = routers.add("A").start()
    for path in ("/status", "/metrics"):
        assert answer(router, path, "attacker.example") == 421
        assert answer(router, path, f"127.0.0.1:{router.http_port}") == 200
    answers: list[int] = []
    with Canary(router) as canary:
        until = time.monotonic() + FLOOD_SECONDS
        clients = [threading.Thread(target=flood, args=(router, answers, until)) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    canary.report.check()
    assert answers.count(200) > CLIENTS
    assert answer(router, "/status", "localhost") == 200


def test_the_health_port_does_not_say_who_the_clients_are(routers: Routers, clients: Clients) -> None:
    edge_port = free_port()
    router = routers.start("A", listener(edge_port, "edge"), mode="interior")
    edge = routers.start("E", connector(edge_port, "edge"), mode="edge")
    clients.connect(router.port, container="payroll").receiver("balanced/salaries", credit=1)
    edge.await_status(lambda status: status["edge"]["active"], "the edge has its uplink")
    rows = router.status()["connections"]
    by_role = {row["role"]: (row["container"], row["host"], row["user"]) for row in rows}
    assert by_role["normal"] == (None, None, None)
    assert by_role["edge"][0] == "E"
    for path in ("/status", "/metrics", "/readyz"):
        with urllib.request.urlopen(f"http://localhost:{router.http_port}{path}", timeout=90) as response:
            assert b"payroll" not in response.read(), path
