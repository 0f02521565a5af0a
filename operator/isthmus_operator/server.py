"""The operator's own HTTP port: `/healthz`, `/readyz`, `/metrics`."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from .settings import SettingsError


class HealthServer:
    """`trouble` returns what is wrong with the process, or None. A standby that does not lead is healthy
    and ready: it is ready to take over."""

    def __init__(self, port: int, trouble: Callable[[], str | None]) -> None:
        self._port = port
        self._trouble = trouble
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._health)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, port=self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise SettingsError(f"HEALTH_PORT: {error.strerror or error}") from None

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        trouble = self._trouble()
        return web.Response(status=503 if trouble else 200, text=f"{trouble or 'ok'}\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})
