"""An API server that refuses valid credentials for a time does not end the watches of kopf."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import kopf
import pytest
import trustme
from aiohttp import web
from kopf._cogs.clients import api, auth, errors
from kopf._cogs.structs import credentials
from kopf._core.engines import activities
from kopf._core.engines.indexing import OperatorIndexers

from isthmus_operator import watch_session
from isthmus_operator.watch_session import Sessions

logger = logging.getLogger(__name__)


class Refusing:
    """Answers so many requests with status 401, and says how long the sessions have paused."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.pauses: list[float] = []

    async def answer(self, request: web.Request) -> web.Response:
        if self.refusals:
            self.refusals -= 1
            return web.json_response({"kind": "Status", "code": 401}, status=401)
        return web.json_response({"authorization": request.headers["Authorization"]})

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


@contextlib.asynccontextmanager
async def logged_in(server: Refusing, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The client of kopf, with the login of the operator."""
    app = web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    info = kopf.ConnectionInfo(server=f"http://127.0.0.1:{runner.addresses[0][1]}", token="t")
    sessions = Sessions()
    registry = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.AiohttpSession:
        with monkeypatch.context() as patch:
            patch.setattr(watch_session.asyncio, "sleep", server.pause)
            return await sessions.session(info)

    kopf.on.login(id="login", registry=registry)(login)
    vault = credentials.Vault()
    auth.vault_var.set(vault)
    task = asyncio.create_task(
        activities.authenticator(
            registry=registry,
            settings=kopf.OperatorSettings(),
            indices=OperatorIndexers().indices,
            vault=vault,
            memo=kopf.Memo(),
        )
    )
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        await vault.close()
        await runner.cleanup()


@pytest.mark.parametrize(("refusals", "pauses"), [(0, []), (1, [1]), (7, [1, 2, 4, 8, 16, 30, 30])])
async def test_refused_credentials_are_used_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, refusals: int, pauses: list[float]
) -> None:
    server = Refusing(refusals)
    async with logged_in(server, monkeypatch):
        for _ in range(2):
            found = await api.get("/version", settings=kopf.OperatorSettings(), logger=logger)
            assert found == {"authorization": "Bearer t"}
    assert server.pauses == pauses


async def test_an_error_with_a_text_in_place_of_a_status_has_its_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The API server answers so without a CustomResourceDefinition. It counted as an answer that is no JSON."""

    class Missing(Refusing):
        async def answer(self, request: web.Request) -> web.Response:
            return web.Response(text="404 page not found\n", status=404, content_type="text/plain")

    async with logged_in(Missing(0), monkeypatch):
        with pytest.raises(errors.APINotFoundError) as error:
            await api.get("/version", settings=kopf.OperatorSettings(), logger=logger)
    assert (error.value.status, error.value.message) == (404, "HTTP status 404")


async def test_new_credentials_are_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    now = 1000.0

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(watch_session.asyncio, "sleep", pause)
    sessions = Sessions(lambda: now)
    for token, expected in (("a", []), ("a", [1]), ("b", [1]), ("b", [1, 1]), ("b", [1, 1, 2])):
        found = await sessions.session(kopf.ConnectionInfo(server="http://127.0.0.1", token=token))
        await found.aiohttp_session.close()
        assert pauses == expected
    now += watch_session.CALM_SECONDS + 1
    found = await sessions.session(kopf.ConnectionInfo(server="http://127.0.0.1", token="b"))
    await found.aiohttp_session.close()
    assert pauses == [1, 1, 2, 1]


async def test_connections_of_watches_have_small_buffers(tmp_path: Path) -> None:
    """Each kind in each namespace has a connection: 3,000 for 150 namespaces, which took 800 MB."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(serving)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    open_now = asyncio.Event()

    async def watch(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"{}\n")
        await open_now.wait()
        return answer

    app = web.Application()
    app.router.add_get("/", watch)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}/"
    info = kopf.ConnectionInfo(server=url, ca_path=tmp_path / "ca.pem")
    tracemalloc.start()
    try:
        session = (await Sessions().session(info)).aiohttp_session
        before = tracemalloc.get_traced_memory()[0]
        answers = [await session.get(url) for _ in range(20)]
        assert [await answer.content.readline() for answer in answers] == [b"{}\n"] * 20
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        open_now.set()
    await session.close()
    await runner.cleanup()
    assert taken < 20 * 200_000  # of both ends
