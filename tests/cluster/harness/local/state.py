"""The state folder of one cluster: its record, its processes, its files and logs."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..host import HarnessError, locked, state_dir
from .process import Process
from .spec import Spec


class State:
    """Paths below the cluster's folder, and what was recorded there."""

    def __init__(self, name: str) -> None:
        self.folder = state_dir() / name
        self.spec_file = self.folder / "cluster.json"
        # There once everything was up; without it the cluster was never finished.
        self.finished = self.folder / "finished"
        self.pki = self.folder / "pki"
        self.logs = self.folder / "logs"
        self.audit = self.folder / "audit"
        self.kubeconfig = self.folder / "kubeconfig"
        self.etcd_data = self.folder / "etcd"
        self.manifests = self.folder / "manifests"
        self._processes = self.folder / "processes"
        self._lock = self.folder.with_name(f".{name}.lock")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Only one may change the cluster at a time; it waits for the other."""
        with locked(self._lock):
            yield

    def forget_lock(self) -> None:
        """Removes the file of the lock, which we hold; the last thing to do with it."""
        self._lock.unlink(missing_ok=True)

    def create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)

    def spec(self) -> Spec | None:
        return Spec.read(self.spec_file)

    def node_folder(self, node: str) -> Path:
        return self.folder / "nodes" / node

    def process_file(self, name: str) -> Path:
        return self._processes / f"{name}.json"

    def process(self, name: str) -> Process:
        """The recorded process; raises HarnessError if there is none."""
        process = Process.read(self.process_file(name))
        if process is None:
            raise HarnessError(f"cluster {self.folder.name}: {name} was never started")
        return process

    def processes(self) -> dict[str, Process]:
        """All recorded processes by name, running or not."""
        found = {path.stem: Process.read(path) for path in sorted(self._processes.glob("*.json"))}
        return {name: process for name, process in found.items() if process is not None}

    def remove(self) -> None:
        """Deletes the folder. Refuses while anything is mounted below it."""
        mounted = mounts_below(self.folder)
        if mounted:
            raise HarnessError(f"still mounted: {' '.join(map(str, mounted))}")
        if self.folder.exists():
            shutil.rmtree(self.folder)


def mounts_below(folder: Path) -> list[Path]:
    """Mount points at or below `folder` in our mount namespace, the deepest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(os.fsdecode(line.split()[4].encode().decode("unicode_escape"))) for line in lines]
    return sorted((point for point in points if point.is_relative_to(folder)), reverse=True)
