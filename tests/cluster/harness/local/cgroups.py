"""The cgroups below which a cluster's pods live (cgroup v1)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ..host import HarnessError

NEEDED = {"cpu", "cpuacct", "cpuset", "memory", "pids"}


def hierarchies() -> list[Path]:
    """Mount points of all cgroup hierarchies."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    found: dict[str, None] = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        if after.split()[0] in {"cgroup", "cgroup2"} and before.split()[3] == "/":
            found[before.split()[4]] = None
    return [Path(point) for point in found]


def missing_controllers() -> set[str]:
    """Controllers that kubelet needs and that no version 1 hierarchy here has."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    options = (line.split()[-1] for line in lines if line.partition(" - ")[2].startswith("cgroup "))
    return NEEDED - {option for names in options for option in names.split(",")}


def create(path: str) -> None:
    """Creates `path` (such as `cluster/node`) in every version 1 hierarchy."""
    for root in hierarchies():
        if not (root / "notify_on_release").exists():
            continue
        folder = root
        for name in path.split("/"):
            parent, folder = folder, folder / name
            folder.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                # A cpuset starts empty, and no process may enter an empty one.
                if (folder / setting).exists() and not (folder / setting).read_text().strip():
                    (folder / setting).write_text((parent / setting).read_text())


def remove(path: str, timeout: float) -> None:
    """Removes `path` and all below it everywhere; HarnessError if still in use after `timeout` s."""
    deadline = time.monotonic() + timeout
    while left := [root / path for root in hierarchies() if (root / path).exists()]:
        for top in left:
            for folder, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    continue  # its last process has not gone yet: the next round
        if time.monotonic() > deadline:
            raise HarnessError(f"cgroups are still in use: {' '.join(map(str, left))}")
        time.sleep(0.02)
