"""`isthmus local` with a state folder of its own, and resources for it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.request import urlopen

import yaml
from click.testing import CliRunner
from tests.integration.support.certificates import Identity
from tests.integration.support.routers import server_of

from isthmus_cli.__main__ import main

TIMEOUT = 150.0
MOST_OUTPUT = 1 << 24
"""Bytes; a command writes less."""

EAST = """
apiVersion: isthmus.dev/v1alpha1
kind: Router
metadata: {name: east}
spec:
  mode: interior
"""
WEST = EAST.replace("east", "west")
LINK = """
apiVersion: isthmus.dev/v1alpha1
kind: Connector
metadata: {name: east-west}
spec:
  role: inter-router
  from: {routerRef: {name: east}}
  to: {routerRef: {name: west}}
"""


def run_isthmus(
    *words: str, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run `isthmus` in a process that is forked from one with all its modules. `timeout` is in seconds."""
    server = server_of("isthmus_cli.__main__", os.environ)
    with open(os.devnull) as nothing, TemporaryFile() as output, TemporaryFile() as errors:
        streams = [file.fileno() for file in (nothing, output, errors)]
        process = server.start(words, streams=streams, environment=environment)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        texts = [os.pread(file.fileno(), MOST_OUTPUT, 0).decode() for file in (output, errors)]
    return subprocess.CompletedProcess(words, status, *texts)


class Isthmus:
    """The command with a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._environment = {**os.environ, "ISTHMUS_STATE_DIR": str(folder / "state")}
        self.file = folder / "net.yaml"
        self.folder = folder / "state" / "networks" / "default"

    def __call__(self, *words: str, timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
        return run_isthmus(*words, environment=self._environment, timeout=timeout)

    def try_up(self, *documents: str) -> subprocess.CompletedProcess[str]:
        self.write(*documents)
        return self("local", "up", str(self.file))

    def write(self, *documents: str) -> None:
        """Makes `documents` the content of `file`."""
        self.file.write_text("---".join(documents))

    def up(self, *documents: str) -> str:
        done = self.try_up(*documents)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """What `isthmus local status -o json` says; without a process of its own, as tests ask again and again."""
        done = CliRunner().invoke(main, ["local", "status", "-o", "json"], env=self._environment)
        assert done.exit_code == 0, done.output
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def router(self, router_id: str) -> dict[str, Any]:
        return next(router for router in self.status()["routers"] if router["id"] == router_id)

    def pid(self, router_id: str) -> int:
        return int(self.router(router_id)["where"].removeprefix("pid "))

    def connections(self, router_id: str) -> set[int]:
        """Ids of a router's open connections."""
        return {item["id"] for item in self.document(router_id)["connections"]}

    def document(self, router_id: str) -> dict[str, Any]:
        """What a router says of itself."""
        network = json.loads((self.folder / "network.json").read_text())
        port = next(router["health_port"] for router in network["routers"] if router["id"] == router_id)
        with urlopen(f"http://127.0.0.1:{port}/status", timeout=TIMEOUT) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def processes(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "processes.json").read_text())
        return document

    def eventually(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.05)


def secret_with(identity: Identity) -> str:
    """A Secret `identity`."""
    files = {"ca.crt": identity.trusted, "tls.crt": identity.certificate, "tls.key": identity.key}
    data = {key: path.read_text() for key, path in files.items()}
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "identity"}, "stringData": data}
    )
