"""Collector processes of flow logs, and what they have written."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.integration.support.forks import end_with_the_tests
from tests.integration.support.ports import free_port
from tests.integration.support.routers import STOP_SECONDS, eventually

Rows = list[dict[str, Any]]


FREED = {"MALLOC_PERTURB_": "165"}
"""Has glibc overwrite memory that is freed, so that a process that still uses it fails each time and not by chance."""


class FlowCollector:
    """A collector with a log in a folder of its own, unless the settings name another."""

    def __init__(self, folder: Path, *ports: int, **settings: Any) -> None:
        self.folder = folder
        self.log_folder = folder / "log"
        self.http_port = free_port()
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._contents: dict[Path, Rows] = {}
        self.settings: dict[str, Any] = {
            "hosts": [f"localhost:{port}" for port in ports],
            "log": str(self.log_folder),
            "httpHost": "127.0.0.1",
            "httpPort": self.http_port,
            "rotate": {"seconds": 0.5},
            **settings,
        }
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def log(self) -> str:
        """What it has logged."""
        path = self.folder / "collector.log"
        return path.read_text() if path.exists() else ""

    def launch(self) -> FlowCollector:
        """Start the process without waiting for it."""
        path = self.folder / "settings.json"
        path.write_text(json.dumps(self.settings))
        with (self.folder / "collector.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "isthmus_flowlog.collector", "-c", str(path)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **FREED, **self.environment},
                start_new_session=True,
                preexec_fn=end_with_the_tests,  # noqa: PLW1509  # a system call
            )
        return self

    def start(self) -> FlowCollector:
        """Start the process and wait until it collects."""
        self.launch()
        eventually(lambda: self.get("/readyz")[0] == 200, f"the collector is ready: {self.log[-2000:]}")
        return self

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of an answer; 0 without one."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; `name` without the prefix."""
        lines = [
            line
            for line in self.get("/metrics")[1].splitlines()
            if line.startswith(f"isthmus_collector_{name}")
        ]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    @property
    def memory(self) -> int:
        """Bytes of the process that are in memory."""
        assert self.process is not None
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def limit_files(self, size: int) -> None:
        """Let no file of the process grow beyond a size, in bytes; as a disk that is full."""
        assert self.process is not None
        _, hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, hard))

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_SECONDS)
        self.process = None

    def stop(self) -> None:
        """End the process as Kubernetes would; everything is in the log then."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_SECONDS)
        finally:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
            self.process = None
        assert status == 0, self.log[-4000:]
        assert "Traceback" not in self.log, self.log[-4000:]
        other = [line for line in self.log.splitlines() if not line.startswith("{")]
        assert not other, f"lines that are no JSON: {other[:10]}"

    def files(self, table: str) -> list[Path]:
        """As a reader lists them."""
        return sorted((self.log_folder / table).glob("date=*/hour=*/[!._]*.parquet"))

    def all_rows(self, table: str) -> Rows:
        """As they are in the files."""
        return [row for path in self.files(table) for row in self._read(path)]

    def _read(self, path: Path) -> Rows:
        """Once, as a file does not change."""
        if path not in self._contents:
            content = pq.read_table(path, partitioning=None, page_checksum_verification=True)
            self._contents[path] = content.to_pylist()
        return self._contents[path]

    def rows(self, table: str, **wanted: Any) -> Rows:
        """Each row once, those with these values. Of `records` the latest of each."""
        found = {
            row["identity"]: row for row in sorted(self.all_rows(table), key=lambda row: row["heard_at"])
        }
        return [row for row in found.values() if all(row[name] == value for name, value in wanted.items())]

    def total(self, column: str, **wanted: Any) -> int:
        """Of the rows of `deliveries`."""
        return sum(row[column] for row in self.rows("deliveries", **wanted))
