"""`workerThreads`: reading and writing on several threads changes nothing but the time it takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Clients
from tests.integration.support.data import MEGA, head
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, listener

FLOWS = 4
MESSAGES = 6
WORKERS = 4


def io_threads(router: Router) -> dict[str, int]:
    """CPU time in nanoseconds, by thread, of those that help to read and write."""
    assert router.process is not None
    tasks = Path(f"/proc/{router.process.pid}/task").iterdir()
    return {
        task.name: int((task / "schedstat").read_text().split()[0])
        for task in tasks
        if (task / "comm").read_text().strip() == "connections"
    }


@pytest.mark.parametrize("encrypted", [False, True])
def test_large_messages_of_several_connections_at_once(
    clients: Clients, routers: Routers, tmp_path: Path, encrypted: bool
) -> None:
    authority = Authority(tmp_path, "authority")
    port = free_port()
    router = routers.add(
        "A",
        authority.issue("router").profile(),
        listener(port, name="more", **({"sslProfile": "tls", "requireSsl": True} if encrypted else {})),
    )
    router.sections[0][1].update(workerThreads=WORKERS)
    router.start()
    options = {"tls": authority.issue("client").client_domain(present=False)} if encrypted else {}
    receivers = [
        clients.connect(port, **options).receiver(f"flow/{flow}", credit=MESSAGES, accept=True)
        for flow in range(FLOWS)
    ]
    senders = [
        clients.connect(port, **options).sender(f"flow/{flow}").await_credit() for flow in range(FLOWS)
    ]
    before = io_threads(router)
    cores = len(os.sched_getaffinity(0))
    assert len(before) == min(WORKERS, cores) - 1
    payloads = [[head(MEGA) + os.urandom(MEGA) for _ in range(MESSAGES)] for _ in range(FLOWS)]
    sent = [
        (sender, [sender.send(payload) for payload in wanted])
        for sender, wanted in zip(senders, payloads, strict=True)
    ]
    for receiver, wanted in zip(receivers, payloads, strict=True):
        assert [bytes(item.data) for item in receiver.expect(MESSAGES, 60)] == wanted
    for sender, deliveries in sent:
        assert {sender.outcome(delivery) for delivery in deliveries} == {"accepted"}
    after = io_threads(router)
    assert cores == 1 or any(after[name] > before[name] + 1_000_000 for name in before)


def test_connections_come_and_go_while_threads_are_busy(clients: Clients, routers: Routers) -> None:
    router = routers.add("A")
    router.sections[0][1].update(workerThreads=WORKERS)
    router.start()
    payload = head(MEGA) + os.urandom(MEGA)
    for _ in range(5):
        connected = [clients.connect(router.port) for _ in range(2 * FLOWS)]
        receivers = [
            client.receiver(f"churn/{number}", credit=2) for number, client in enumerate(connected[:FLOWS])
        ]
        senders = [
            client.sender(f"churn/{number}").await_credit() for number, client in enumerate(connected[FLOWS:])
        ]
        for sender in senders:
            sender.send(payload)
            sender.send(payload)
        assert bytes(receivers[0].next(60).data) == payload
        for client in connected:
            client.drop()
    client = clients.connect(router.port)
    receiver = client.receiver("churn/after", credit=1, accept=True)
    client.sender("churn/after").send(payload)
    assert bytes(receiver.next(60).data) == payload
