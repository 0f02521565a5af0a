"""The operator's own HTTP port, which every pod of the cluster may reach."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from isthmus_operator import server as module
from isthmus_operator.server import HealthServer
from isthmus_operator.settings import SettingsError

ROOT = Path(__file__).parents[3]
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


class Operator:
    trouble: str | None = None
    waits: str | None = None


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.fixture
async def server(operator: Operator) -> AsyncIterator[HealthServer]:
    server = HealthServer(0, lambda: operator.trouble, lambda: operator.waits)
    await server.start()
    yield server
    await server.stop()


def ask(port: int, request: bytes = HEALTHZ) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(request)
        with contextlib.suppress(ConnectionError):
            return b"".join(iter(lambda: client.recv(65536), b""))
    return b""


async def get(server: HealthServer, path: str, host: str = "x") -> tuple[int, str]:
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    head, _, body = (await asyncio.to_thread(ask, server.port, request)).partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes(server: HealthServer, operator: Operator, path: str) -> None:
    assert await get(server, path) == (200, "ok\n")
    operator.trouble = "the watches are dead"
    assert await get(server, path) == (503, "the watches are dead\n")


async def test_an_operator_that_waits_is_healthy_and_not_ready(
    server: HealthServer, operator: Operator
) -> None:
    operator.waits = "the list of routers failed with status 404"
    assert (await get(server, "/healthz"))[0] == 200
    assert await get(server, "/readyz") == (503, "the list of routers failed with status 404\n")


async def test_metrics_only_for_hosts_that_are_answered(server: HealthServer) -> None:
    status, body = await get(server, "/metrics", "127.0.0.1:8080")
    assert status == 200
    assert "\nprocess_max_fds " in body
    assert (await get(server, "/metrics", "evil.example"))[0] == 421
    assert (await get(server, "/healthz", "evil.example"))[0] == 200
    assert (await get(server, "/other"))[0] == 404


async def test_metrics_take_a_bounded_part_of_a_processor(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    def slow() -> bytes:
        nonlocal made
        made += 1
        begun = time.thread_time()
        while time.thread_time() - begun < 0.2:
            pass
        return b"slow 1\n"

    monkeypatch.setattr(module, "generate_latest", slow)
    begun = time.monotonic()
    for _ in range(10):
        assert await get(server, "/metrics") == (200, "slow 1\n")
    assert made <= 1 + (time.monotonic() - begun) / 0.8


async def test_idle_and_unfinished_requests_take_no_place(server: HealthServer) -> None:
    """More of each than the server has places; all but so many are let go, and probes are answered."""
    unfinished = HEALTHZ[:-2] + b"".join(b"X-%d: %b\r\n" % (number, b"a" * 900) for number in range(8))
    clients = []
    try:
        for number in range(400):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            clients.append(client)
            if number % 2:
                client.sendall(unfinished)
            await asyncio.sleep(0)
        assert await get(server, "/healthz") == (200, "ok\n")
        async with asyncio.timeout(60):
            while sum(map(is_open, clients)) > 128:  # noqa: ASYNC110 - nothing signals what the server closes
                await asyncio.sleep(0.05)
        assert await get(server, "/healthz") == (200, "ok\n")
    finally:
        for client in clients:
            client.close()


def is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


async def test_a_head_is_bounded(server: HealthServer) -> None:
    request = HEALTHZ[:-2] + b"".join(b"X-%d: %b\r\n" % (number, b"a" * 900) for number in range(20))
    assert b" 431 " in await asyncio.to_thread(ask, server.port, request)


async def test_a_loop_that_does_not_answer_is_reported(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    asking = asyncio.create_task(asyncio.to_thread(ask, server.port))
    await asyncio.sleep(0)
    time.sleep(2)  # noqa: ASYNC251 - this is the loop that is stuck
    assert b" 503 " in await asking


async def test_a_taken_port_is_an_error(server: HealthServer) -> None:
    with pytest.raises(SettingsError, match="HEALTH_PORT"):
        await HealthServer(server.port, lambda: None).start()


def test_the_image_has_what_the_server_needs(tmp_path: Path) -> None:
    """Of the router, the operator's image has single files."""
    lines = (ROOT / "operator" / "Containerfile").read_text().replace("\\\n", " ")
    for sources in re.findall(
        r"^COPY ((?:router-image|operator/isthmus_operator)\S*(?: .*)?) \S+$", lines, re.M
    ):
        for source in map(Path, sources.split()):
            target = tmp_path / source.relative_to(source.parts[0])
            target.parent.mkdir(exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, target)
            else:
                shutil.copy(ROOT / source, target)
    code = (
        f"import sys; sys.path[:] = [{str(tmp_path)!r}] + sys.path; "
        "import isthmus_operator.__main__, isthmus_router; print(isthmus_router.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "isthmus_router" / "__init__.py")
