"""The process that keeps a local network's routers running: `python -m isthmus_cli.local.supervisor NAME`.

It obeys `network.json`: SIGHUP reads it again and starts, stops or restarts what differs; SIGTERM ends
every router and then itself. A router that ends by itself is started again after a pause that doubles
from half a second to half a minute; a minute of running makes the next pause short again. Everything it
starts is in `processes.json` before anything else is done, so that nothing is lost if it is killed: the
next supervisor goes on with the routers that still run. It starts nothing before whoever started it has
found it in that file and says so; if that one is gone, nobody might ever end what it starts.

It also goes on with rotations, as the operator does on Kubernetes: `deploy.advance`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from isthmus_cli.errors import CliError

from .deploy import Step, advance
from .process import ProcessId
from .state import Network, NetworkState, Processes, RouterProcess, WantedRouter, WantedService
from .wanted import config_path

GO = "go\n"
"""What a supervisor waits for on its standard input."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
STEADY_SECONDS = 60.0
STOP_GRACE_SECONDS = 10.0
ADOPTED_POLL_SECONDS = 0.2
_AGAIN_SECONDS = 1.0
"""Pause before rotations are looked at again when that failed."""
_LOG_LIMIT_BYTES = 10_000_000


class _Adopted:
    """A router that an earlier supervisor started: not a child, so it is watched by its start time."""

    def __init__(self, process: ProcessId) -> None:
        self._process = process
        self.pid = process.pid

    async def wait(self) -> None:
        """Returns when it has ended; how it ended only its parent could know."""
        while self._process.alive:  # noqa: ASYNC110 (no event tells of a process that is not a child)
            await asyncio.sleep(ADOPTED_POLL_SECONDS)

    def terminate(self) -> None:
        self._process.signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.signal(signal.SIGKILL)


class _Keeper:
    """Keeps one router running until it is stopped."""

    def __init__(
        self, supervisor: Supervisor, router_id: str, restart_hash: str, found: RouterProcess | None = None
    ) -> None:
        """`found` is the router's process when it runs already."""
        self.id = router_id
        self.restart_hash = restart_hash
        self._found = found
        self._supervisor = supervisor
        self._folder = supervisor.state.router_folder(router_id)
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"router {router_id}")

    async def stop(self) -> None:
        """Ends the router: TERM, and KILL if it has not ended after the grace period."""
        self._stopping.set()
        await self._task

    async def _run(self) -> None:
        pause, restarts = FIRST_PAUSE_SECONDS, self._found.restarts if self._found else 0
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                ended = await self._run_once(restarts)
            except OSError as error:
                ended = f"cannot be started: {error}"
            if self._stopping.is_set():
                break
            if time.monotonic() - begun > STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            trouble = f"{ended}, started again after {pause:g} s; see {self._folder / 'router.log'}"
            _log(f"router {self.id} {trouble}")
            self._record(None, restarts, trouble)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            restarts += 1
        self._supervisor.record(self.id, None)

    async def _run_once(self, restarts: int) -> str:
        """Runs the router until it ends or is to be stopped; says how it ended."""
        process: asyncio.subprocess.Process | _Adopted
        if self._found is not None and self._found.process is not None:
            process, self._found = _Adopted(self._found.process), None
        else:
            process = await self._start()
            with contextlib.suppress(ProcessLookupError):  # it may have ended already
                self._record(ProcessId.of(process.pid), restarts)
        ended = asyncio.create_task(process.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            process.terminate()
            await asyncio.wait({ended}, timeout=STOP_GRACE_SECONDS)
        if not ended.done():
            _log(f"router {self.id} did not end within {STOP_GRACE_SECONDS:g} s and is killed")
            process.kill()
        code = await ended
        if code is None:
            return "ended"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"

    def _record(self, process: ProcessId | None, restarts: int, trouble: str | None = None) -> None:
        entry = RouterProcess(process, restarts, trouble, self.restart_hash)
        self._supervisor.record(self.id, entry)

    async def _start(self) -> asyncio.subprocess.Process:
        log_path = self._folder / "router.log"
        if log_path.exists() and log_path.stat().st_size > _LOG_LIMIT_BYTES:
            log_path.replace(log_path.with_suffix(".log.1"))
        with log_path.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *self._supervisor.command(self.id)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


class Supervisor:
    """All routers of one network."""

    def __init__(self, name: str) -> None:
        self.state = NetworkState(name)
        self._keepers: dict[str, _Keeper] = {}
        self._processes = Processes(ProcessId.of(os.getpid()), 0)
        self._trouble = ""
        """Why rotations could not go on, as last logged."""

    def record(self, router_id: str, entry: RouterProcess | None) -> None:
        """Writes down what became of a router; None forgets it."""
        routers = {name: item for name, item in self._processes.routers.items() if name != router_id}
        if entry is not None:
            routers[router_id] = entry
        self._processes = replace(self._processes, routers=routers)
        self.state.write_processes(self._processes)

    def command(self, process_id: str) -> list[str]:
        """Module and arguments of a router, gossip router or collector."""
        network = self.state.network()
        for item in network.services if network is not None else ():
            if item.id == process_id:
                return [item.module, *item.arguments]
        return ["isthmus_router", "-c", str(config_path(self.state, process_id))]

    async def run(self) -> None:
        """Obeys until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        self._adopt()
        if await loop.run_in_executor(None, sys.stdin.readline) != GO:
            _log("whoever started this supervisor is gone")
            if self.state.network() is None:
                self.state.remove()
            return
        changed, stop = asyncio.Event(), asyncio.Event()
        changed.set()
        loop.add_signal_handler(signal.SIGHUP, changed.set)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        stopping = asyncio.create_task(stop.wait())
        pause: float | None = None
        while not stop.is_set():
            changing = asyncio.create_task(changed.wait())
            await asyncio.wait({stopping, changing}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            changing.cancel()
            if stop.is_set():
                break
            if changed.is_set():
                changed.clear()
                await self._follow()
            step = await loop.run_in_executor(None, self.advance)
            pause = step.pause
            if step.changed:
                changed.set()
        await asyncio.gather(*(keeper.stop() for keeper in self._keepers.values()))

    def advance(self) -> Step:
        """Goes on with rotations; what keeps it from that is tried again."""
        try:
            with self.state.changing(seconds=0):
                return advance(self.state)
        except CliError:  # somebody else is changing the network
            return Step(changed=False, pause=_AGAIN_SECONDS)
        except Exception as error:  # the routers must be kept running whatever happens here
            trouble = f"rotations cannot go on: {type(error).__name__}: {error}"
            if trouble != self._trouble:
                _log(trouble)
            self._trouble = trouble
            return Step(changed=False, pause=_AGAIN_SECONDS)

    def _adopt(self) -> None:
        """Takes over the routers that a predecessor which was killed has left running."""
        before = self.state.processes()
        found = before.running() if before else {}
        self._processes = replace(self._processes, routers=found)
        self.state.write_processes(self._processes)
        for router_id, entry in found.items():
            _log(f"router {router_id} runs already")
            self._keepers[router_id] = _Keeper(self, router_id, entry.restart_hash, entry)

    async def _follow(self) -> None:
        network = self.state.network()
        if network is None:
            return
        _log(f"generation {network.generation}: {len(network.wanted)} processes wanted")
        wanted = network.wanted
        gone = [name for name, keeper in self._keepers.items() if self._must_stop(keeper, wanted)]
        await asyncio.gather(*(self._keepers.pop(name).stop() for name in gone))
        for name, router in wanted.items():
            if name not in self._keepers:
                self._keepers[name] = _Keeper(self, name, router.restart_hash)
        self._finish(network)

    @staticmethod
    def _must_stop(keeper: _Keeper, wanted: Mapping[str, WantedRouter | WantedService]) -> bool:
        router = wanted.get(keeper.id)
        return router is None or router.restart_hash != keeper.restart_hash

    def _finish(self, network: Network) -> None:
        self._processes = replace(self._processes, generation=network.generation)
        self.state.write_processes(self._processes)


def _log(message: str) -> None:
    print(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {message}", flush=True)


def main() -> None:
    """Entry point of the supervisor process; the network's name is its argument."""
    asyncio.run(Supervisor(sys.argv[1]).run())


if __name__ == "__main__":
    main()
