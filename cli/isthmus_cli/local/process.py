"""Which process is meant by a recorded pid: a pid is used again, a pid with its start time is not."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class ProcessId:
    """A process, identified for as long as the machine is up."""

    pid: int
    started: str
    """Boot and start time, in the form `start_mark` gives."""

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """The process that has `pid` now. Raises ProcessLookupError when none has."""
        mark = start_mark(pid)
        if mark is None:
            raise ProcessLookupError(pid)
        return cls(pid, mark)

    @property
    def alive(self) -> bool:
        """Whether this very process still runs; one that has ended but was not reaped does not."""
        return start_mark(self.pid) == self.started

    def signal(self, number: signal.Signals) -> bool:
        """Sends a signal if this very process still runs; says whether it did."""
        if not self.alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def start_mark(pid: int) -> str | None:
    """Text that changes whenever `pid` comes to mean another process; None when there is no such process."""
    try:
        # proc(5): the command's name is in parentheses and may itself contain any character.
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _start_mark_by_ps(pid)
    return None if fields[0] in "ZX" else f"{boot}/{fields[19]}"


def _start_mark_by_ps(pid: int) -> str | None:
    """For systems without /proc."""
    words = ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    state, _, started = done.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


def wait_gone(processes: Iterable[ProcessId], timeout: float) -> list[ProcessId]:
    """Waits at most `timeout` seconds for all to end; returns those that still run."""
    deadline = time.monotonic() + timeout
    left = [process for process in processes if process.alive]
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        left = [process for process in left if process.alive]
    return left


def end(processes: Iterable[ProcessId], grace: float) -> None:
    """TERM, then KILL after `grace` seconds, then waits until all are gone."""
    asked = [process for process in processes if process.signal(signal.SIGTERM)]
    stubborn = wait_gone(asked, grace)
    for process in stubborn:
        process.signal(signal.SIGKILL)
    wait_gone(stubborn, grace)
