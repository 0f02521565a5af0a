"""Router processes: started from a generated configuration, awaited, and ended by their process id."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.integration.support.forks import Forked, ForkServer
from tests.integration.support.ports import free_port

Section = tuple[str, dict[str, Any]]
START_SECONDS = 60.0
STOP_SECONDS = 15.0
WAIT_SECONDS = 90.0
"""Long enough for a machine that has much else to do; nothing takes that long by itself."""
POLL_SECONDS = 0.02

ALL_RIGHTS = {"management": "write", "allowFlowRecords": True}
"""Of the clients of a test, unless it is about the defaults: they look into the router, and change it."""

LIVE: list[Router] = []
"""Routers that run now; the log of each is shown with a test that fails."""


_servers: dict[tuple[str, str | None, str | None], ForkServer] = {}


def server_of(module: str, environment: Mapping[str, str]) -> ForkServer:
    """Modules read which kernel they use, and the engine what it traces, when they are imported: routers of each have a
    server of their own."""
    key = module, environment.get("ISTHMUS_KERNEL"), environment.get("PN_LOG")
    if key not in _servers:
        _servers[key] = server = ForkServer(module, environment)
        atexit.register(server.close)
    return _servers[key]


def listener(port: int, role: str = "normal", **attributes: Any) -> Section:
    """A `listener` section on the loopback interface."""
    return ("listener", {"host": "localhost", "port": port, "role": role, **attributes})


def connector(port: int, role: str = "inter-router", **attributes: Any) -> Section:
    """A `connector` section to a port of the loopback interface."""
    return ("connector", {"host": "localhost", "port": port, "role": role, **attributes})


def address(prefix: str, distribution: str) -> Section:
    """An `address` section."""
    return ("address", {"prefix": prefix, "distribution": distribution})


def eventually(condition: Callable[[], Any], what: str, timeout: float = WAIT_SECONDS) -> Any:
    """Ask again until `condition` is true and return its value; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(POLL_SECONDS)
    return value


class Router:
    """One router process. `port` is its listener for clients."""

    def __init__(
        self,
        folder: Path,
        router_id: str,
        sections: Iterable[Section] = (),
        *,
        mode: str = "standalone",
        **normal: Any,
    ) -> None:
        self.id = router_id
        self.port = free_port()
        self.http_port = free_port()
        self.log_path = folder / f"{router_id}.log"
        self.config_path = folder / f"{router_id}.json"
        self.mode = mode
        self.descriptor_limit: int | None = None
        self.environment: dict[str, str] = {}
        """Variables beside those of the tests."""
        self.module = "isthmus_router.__main__"
        self.sections: list[Section] = [
            ("router", {"mode": mode, "id": router_id}),
            listener(self.port, **{**ALL_RIGHTS, "name": "clients", **normal}),
            listener(self.http_port, name="health", http=True),
            *sections,
        ]
        self.process: Forked | subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """Process id of the running router."""
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> str:
        """Everything the router has logged."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def status(self) -> dict[str, Any]:
        """What the router says of itself on its health port."""
        with urllib.request.urlopen(
            f"http://localhost:{self.http_port}/status", timeout=WAIT_SECONDS
        ) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def metric(self, name: str, label: str = "") -> float:
        """The sum of a metric's samples with this label; `name` is without the usual prefix."""
        with urllib.request.urlopen(
            f"http://localhost:{self.http_port}/metrics", timeout=WAIT_SECONDS
        ) as answer:
            text = answer.read().decode()
        full = f"isthmus_router_{name}"
        return sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith((f"{full}{{", f"{full} ")) and label in line
        )

    def await_status(
        self, condition: Callable[[dict[str, Any]], Any], what: str, timeout: float = WAIT_SECONDS
    ) -> dict[str, Any]:
        """Wait until the status fulfils `condition`, and return it."""
        found: dict[str, Any] = {}

        def fulfilled() -> Any:
            found.update(self.status())
            return condition(found)

        eventually(fulfilled, f"router {self.id}: {what}", timeout)
        return found

    def connector_state(self, name: str) -> tuple[str, str]:
        """State of a connector, and the reason."""
        row = next(row for row in self.status()["connectors"] if row["name"] == name)
        return row["state"], row["message"]

    def configure(self) -> None:
        """Write the configuration file, in one step as a running router watches it."""
        temporary = self.config_path.with_suffix(".new")
        temporary.write_text(json.dumps(self.sections, indent=1))
        temporary.replace(self.config_path)

    def launch(self) -> Router:
        """Start the process without waiting for it."""
        self.configure()
        self._log_start = len(self.log)
        self.process = self._start_process({**os.environ, **self.environment})
        LIVE.append(self)
        return self

    def _start_process(self, environment: Mapping[str, str]) -> Forked | subprocess.Popen[bytes]:
        return server_of(self.module, environment).start(
            ["-c", str(self.config_path)],
            output=self.log_path,
            environment=environment,
            descriptor_limit=self.descriptor_limit,
        )

    def start(self) -> Router:
        """Start the process and wait until it accepts connections."""
        self.launch()
        self.await_ready()
        return self

    def await_ready(self) -> None:
        """Wait until every listener is open and clients can connect."""
        eventually(self._has_started, f"router {self.id} is up", START_SECONDS)

    def _has_started(self) -> bool:
        assert self.process is not None
        status = self.process.poll()
        assert status is None, f"router {self.id} ended with status {status}:\n{self.log[-4000:]}"
        return "router started" in self.log[self._log_start :]

    def await_log(self, *texts: str, timeout: float = WAIT_SECONDS) -> str:
        """Wait for a log line that contains all of `texts`, and return it."""

        def find() -> str | None:
            lines = self.log.splitlines()
            return next((line for line in lines if all(text in line for text in texts)), None)

        line: str = eventually(find, f"router {self.id} logs {texts}", timeout)
        return line

    def memory(self) -> int:
        """Resident set size in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def cpu(self) -> float:
        """CPU time used so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self) -> int:
        """Number of open file descriptors."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the process as an operator would."""
        if self.process is not None:
            self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        assert self.process is not None
        if self in LIVE:
            LIVE.remove(self)
        crashed = self.process.poll()
        if crashed is None:
            self.process.send_signal(number)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(STOP_SECONDS)
                raise AssertionError(f"router {self.id} did not end by {number.name}") from None
        status = self.process.returncode
        self.process = None
        assert crashed is None, f"router {self.id} ended by itself with status {status}:\n{self.log[-4000:]}"
        check_log(self)
        assert number is signal.SIGKILL or status == 0, f"router {self.id} ended with status {status}"


def check_log(router: Router) -> None:
    """The router has logged no exception, and nothing that is no JSON, unless the engine is asked for traces."""
    log = router.log
    at = log.find("Traceback")
    assert at < 0, f"router {router.id} logged an exception:\n{log[max(0, at - 500) : at + 4000]}"
    other = [line for line in log.splitlines() if not line.startswith("{")]
    assert not other or "PN_LOG" in router.environment, (
        f"router {router.id} wrote lines that are no JSON: {other[:10]}"
    )


class Routers:
    """The routers of one test or module, with this kernel if one is named; all of them are ended with it."""

    def __init__(self, folder: Path, *, kernel: str | None = None) -> None:
        self.folder = folder
        self.kernel = kernel
        self.all: dict[str, Router] = {}

    def add(self, router_id: str, *sections: Section, mode: str = "standalone", **normal: Any) -> Router:
        """A router that is not started yet; `normal` are attributes of its listener for clients."""
        router = Router(self.folder, router_id, sections, mode=mode, **normal)
        if self.kernel is not None:
            router.environment["ISTHMUS_KERNEL"] = self.kernel
        self.all[router_id] = router
        return router

    def start(self, router_id: str, *sections: Section, mode: str = "standalone", **normal: Any) -> Router:
        """A router that accepts connections."""
        return self.add(router_id, *sections, mode=mode, **normal).start()

    def start_all(self) -> None:
        """Start every router that does not run, all at the same time."""
        waiting = [router.launch() for router in self.all.values() if router.process is None]
        for router in waiting:
            router.await_ready()

    def stop(self) -> None:
        """End every router; fails if one had crashed or had logged an exception."""
        running = [router for router in self.all.values() if router.process is not None]
        for router in running:
            assert router.process is not None
            if router.process.poll() is None:
                router.process.send_signal(signal.SIGTERM)
        failures = []
        for router in running:
            try:
                self._await_end(router)
            except AssertionError as error:
                failures.append(str(error))
        assert not failures, "\n".join(failures)

    @staticmethod
    def _await_end(router: Router) -> None:
        assert router.process is not None
        try:
            router.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            router.process.kill()
            router.process.wait(STOP_SECONDS)
            status: int | str = "did not end by SIGTERM"
        else:
            status = router.process.returncode
        router.process = None
        if router in LIVE:
            LIVE.remove(router)
        check_log(router)
        assert status == 0, f"router {router.id} ended with status {status}:\n{router.log[-4000:]}"
