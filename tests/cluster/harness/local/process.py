"""Long-running processes that outlive us, recorded so that exactly they can be ended later.

A process is known by its pid, its start time and the machine's boot: a recycled pid is never
taken for it. The record is written between fork and exec, while the forked child still holds the
cluster's lock, so whoever gets the lock next sees every process there is, even if the one who
started them was killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ..host import HarnessError

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MACHINE = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Process:
    """A recorded process: `start` is field 22 of /proc/PID/stat, in clock ticks since boot."""

    pid: int
    start: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Process:
        return cls(pid, int(_stat(pid)[19]), boot_id())

    @classmethod
    def read(cls, path: Path) -> Process | None:
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None

    def write(self, path: Path) -> None:
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(self)))
        temporary.replace(path)

    def running(self) -> bool:
        """True until it has ended; one that only waits to be reaped has ended."""
        if self.boot != boot_id():
            return False
        try:
            stat = _stat(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return int(stat[19]) == self.start and stat[0] not in "ZX"

    def kill(self) -> None:
        """Sends SIGKILL if it runs; does not wait."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            # The handle is taken first: it keeps naming the process that is checked next.
            if self.running():
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            pass
        finally:
            os.close(handle)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def kill_all(processes: Iterable[Process], timeout: float) -> None:
    """Kills the processes and waits until all have ended; HarnessError after `timeout` seconds."""
    waiting = list(processes)
    for process in waiting:
        process.kill()
    deadline = time.monotonic() + timeout
    while waiting := [process for process in waiting if process.running()]:
        if time.monotonic() > deadline:
            raise HarnessError(f"processes do not end: {' '.join(str(process.pid) for process in waiting)}")
        time.sleep(0.02)


def start(
    argv: Sequence[str | Path],
    *,
    record: Path,
    log: Path,
    env: Mapping[str, str],
    net: Process | None = None,
    unshare: int = 0,
) -> Process:
    """Starts a daemon and returns once it runs the given program.

    It is no child of ours, has a session of its own, writes to `log`, and `record` names it.
    `net` is a process whose network namespace it joins; `unshare` are CLONE_NEW* flags of the
    namespaces it gets for itself. With CLONE_NEWPID it is the first process of its namespace:
    everything in it ends with it.
    """

    def between_fork_and_exec() -> None:
        os.setsid()
        if net is not None:
            namespace = os.open(f"/proc/{net.pid}/ns/net", os.O_RDONLY)
            _check(_libc.setns(namespace, CLONE_NEWNET), "setns")
            os.close(namespace)
        if unshare:
            _check(_libc.unshare(unshare), "unshare")
        child = os.fork()
        if child:
            try:
                Process.of(child).write(record)
            except BaseException:
                os.kill(child, signal.SIGKILL)
                os._exit(1)
            os._exit(0)

    record.parent.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output, _interrupts_wait():
        starter = subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd="/",
            # It takes no lock and imports nothing, so other threads cannot block it.
            preexec_fn=between_fork_and_exec,  # noqa: PLW1509
        )
    if starter.wait(timeout=30) != 0:
        raise HarnessError(f"{argv[0]} could not be recorded in {record}")
    process = Process.read(record)
    if process is None:
        raise HarnessError(f"{argv[0]} left no record in {record}")
    return process


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Keeps an interrupt until the end of the block: raised in a hook that runs at a fork, it would be lost."""
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if came:
        raise KeyboardInterrupt


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
