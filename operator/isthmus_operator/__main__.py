"""`isthmus-operator`: leads or stands by, watches, reconciles, until SIGTERM or the loss of the lease."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Collection, Coroutine
from importlib.metadata import version
from typing import Any, cast

import kopf

from isthmus_router.descriptors import raise_limit

from . import handlers, kopf_toggles, logs
from .cluster import ApiError, ServerClock, connect
from .handlers.children import KINDS, index_name
from .leader import RETRY_SECONDS, Election
from .metrics import API_REQUESTS, INFO
from .namespaces import Namespaces
from .server import HealthServer
from .settings import Settings, SettingsError, kopf_settings
from .store import Store
from .watch_failures import WatchFailures
from .watch_session import Sessions
from .watchdog import Watchdog
from .workers import Reconciler

logger = logging.getLogger("isthmus_operator")

END_SECONDS = 5.0
"""After the work is done and the lease released, tasks of kopf have this time to end."""


async def serve(settings: Settings) -> int:
    """Runs until told to stop. Returns the exit status: 1 when the lease was lost or the watches ended."""
    own_version = version("isthmus")
    INFO.labels(own_version).set(1)
    stop = asyncio.Event()
    _on_signals(stop)
    clock = ServerClock()
    cluster = await connect(lambda verb, code: API_REQUESTS.labels(verb, str(code)).inc(), clock)
    reconciler = Reconciler(
        cluster,
        settings.render,
        version=own_version,
        instance=settings.identity,
        poll_interval=settings.poll_seconds,
        poll_max_bytes=settings.poll_max_bytes,
        memory=settings.memory_bytes,
        ahead=lambda: clock.ahead,
    )
    apart = cluster.apart()
    namespaces = Namespaces(apart, settings.watch_namespaces, reconciler.nudge)
    watchdog = Watchdog(
        apart,
        reconciler,
        lambda: namespaces.readable if settings.watch_namespaces else [None],
        namespaces.discard,
        lambda: namespaces.delivered_at,
    )
    server = HealthServer(settings.health_port, lambda: watchdog.trouble, lambda: namespaces.waits)
    election = None
    if settings.lease_name is not None:
        election = Election(cluster.apart(), settings.namespace, settings.lease_name, settings.identity)
    try:
        await server.start()
        if election is not None and not await _unless(stop, election.acquire()):
            return 0
        return await _lead(settings, reconciler, namespaces, watchdog, election, stop)
    finally:
        await reconciler.close()
        if election is not None:
            await election.release()
        await server.stop()
        await cluster.close()


async def _lead(
    settings: Settings,
    reconciler: Reconciler,
    namespaces: Namespaces,
    watchdog: Watchdog,
    election: Election | None,
    stop: asyncio.Event,
) -> int:
    """Watches and reconciles until stopped, until the lease is lost or until the watches end.

    Returns as soon as nothing is reconciled any more; the successor need not wait for kopf's streams.
    """
    ready = asyncio.Event()
    kopf_toggles.install()
    failures = WatchFailures()
    namespaces.install(failures)
    watching = asyncio.create_task(_watch(settings, reconciler, namespaces, ready))
    what: dict[asyncio.Task[Any], str] = {
        watching: "the watches",
        asyncio.create_task(failures.run()): "the attempts to watch",
        asyncio.create_task(namespaces.run()): "the checks of namespaces",
        asyncio.create_task(watchdog.run()): "the checks of the watches",
        asyncio.create_task(stop.wait()): "the signals",
    }
    if election is not None:
        what[asyncio.create_task(election.hold())] = "the renewals of the lease"
    tasks = list(what)
    watches_open = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait([*tasks, watches_open], return_when=asyncio.FIRST_COMPLETED)
        if ready.is_set():
            _on_signals(stop)  # kopf has installed its own, which stop only kopf
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            for task in done:
                logger.error("%s have ended", what[task], exc_info=task.exception())
        return 0 if stop.is_set() else 1
    finally:
        await reconciler.close()
        for task in (*tasks, watches_open):
            task.cancel()
        await asyncio.wait([*tasks, watches_open], timeout=1.0)


async def _watch(
    settings: Settings, reconciler: Reconciler, namespaces: Namespaces, ready: asyncio.Event
) -> None:
    """Watches without an end, once there is something to watch. Raises the error of kopf when one of its tasks ends."""
    await _anything_readable(namespaces)
    # `kopf.operator` returns only when all of its tasks have ended, and watches may wait for a login without an end.
    tasks = await kopf.spawn_tasks(
        registry=_registry(reconciler, namespaces.refused, label_required=settings.secrets_require_label),
        settings=_watch_settings(),
        memo=kopf.Memo(reconciler=reconciler),
        insights=namespaces.insights,
        indexers=namespaces.indexers,
        namespaces=namespaces.readable,
        clusterwide=not settings.watch_namespaces,
        standalone=True,
        # kopf's default asks for the user's name, which the user of a container does not have.
        identity=cast(Any, settings.identity),
        ready_flag=ready,
    )
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
    finally:
        for task in tasks:
            task.cancel()


def _on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


def _registry(
    reconciler: Reconciler, unreadable: Collection[str], *, label_required: bool
) -> kopf.OperatorRegistry:
    registry = handlers.registry()

    async def start(**indices: Any) -> None:
        children = {kind: indices[index_name(kind)] for kind in KINDS}
        names = (
            *("routers", "connectors", "link_routes", "relay_sites", "gossip_routers", "profiles"),
            *("flow_logs", "flow_analyses", "secrets", "pods", "replica_sets"),
        )
        own = {name: indices[name] for name in names}
        reconciler.use(Store(**own, children=children, label_required=label_required, unreadable=unreadable))

    kopf.on.startup(id="start", registry=registry)(start)
    sessions = Sessions()

    async def login(**kwargs: Any) -> kopf.AiohttpSession | None:
        in_cluster = os.environ.get("KUBERNETES_SERVICE_HOST") and not os.environ.get("KUBECONFIG")
        log_in = kopf.login_with_service_account if in_cluster else kopf.login_with_kubeconfig
        info = log_in(**kwargs)
        return await sessions.session(info) if info is not None else None

    kopf.on.login(id="login", registry=registry)(login)
    return registry


def _watch_settings() -> kopf.OperatorSettings:
    out = kopf_settings()
    handlers.selectors(out)
    return out


async def _anything_readable(namespaces: Namespaces) -> None:
    """Waits until there is a namespace to watch, and the CustomResourceDefinitions are there: kopf looks for them once,
    at its start."""
    while True:
        try:
            if await namespaces.find():
                return
        except ApiError as error:
            what = "the CustomResourceDefinitions of isthmus.dev" if error.status == 404 else "the API server"
            logger.warning("waiting for %s: %s", what, error)
        await asyncio.sleep(RETRY_SECONDS)


async def _unless(stop: asyncio.Event, wanted: Coroutine[Any, Any, object]) -> bool:
    """Awaits `wanted`; False when `stop` was set first."""
    tasks = [asyncio.create_task(wanted), asyncio.create_task(stop.wait())]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    if tasks[0] in done:
        await tasks[0]
        return True
    return False


async def _end_in_time(served: Coroutine[Any, Any, int]) -> int:
    """Returns the exit status `served`, and ends the process if tasks that are cancelled then do not end."""
    status = 1
    try:
        status = await served
    finally:
        end = threading.Timer(END_SECONDS, _end, (status,))
        end.daemon = True
        end.start()
    return status


def _end(status: int) -> None:
    logger.warning("tasks did not end within %d seconds", END_SECONDS)
    os._exit(status)


def main() -> None:
    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError as error:
        sys.exit(f"isthmus-operator: {error}")
    logs.configure(settings.log_format, settings.log_level)
    raise_limit()  # each watch of a kind in a namespace has a connection
    try:
        sys.exit(asyncio.run(_end_in_time(serve(settings))))
    except SettingsError as error:
        sys.exit(f"isthmus-operator: {error}")


if __name__ == "__main__":
    main()
