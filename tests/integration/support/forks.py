"""Processes of one Python module that are forked from a process which has imported it.

A router, or the command `isthmus`, takes half a second of CPU to import its modules, and the tests start thousands of
them. From the moment at which the module's `main` is called a forked process is what the command
starts; tests of the commands and of their first moments start the command itself.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 60.0
MAXIMUM_REQUEST = 1 << 20


def end_with_the_tests() -> None:
    """Even a test run that crashes leaves no process behind (prctl PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class ForkServer:
    """A process that has imported `module`, whose `main(arguments)` returns an exit status, and forks others."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        """`environment`: of the process that imports, which modules may read then."""
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(ANSWER_SECONDS)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, module, str(other.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                preexec_fn=end_with_the_tests,  # noqa: PLW1509  # one system call
            )

    def start(
        self,
        arguments: Sequence[str],
        *,
        output: Path | None = None,
        streams: Sequence[int] = (),
        environment: Mapping[str, str],
        descriptor_limit: int | None = None,
    ) -> Forked:
        """Call `main(arguments)` in a new process, in a session of its own.

        `output` is the file that standard output and errors are added to, or `streams` are the descriptors of standard
        input, output and, unless these are the caller's, errors. `environment` has all variables of the process.
        """
        request = {
            "arguments": list(arguments),
            "output": None if output is None else str(output),
            "environment": dict(environment),
            "descriptors": descriptor_limit,
        }
        return Forked(self, self.ask(request, streams))

    def ask(self, request: dict[str, Any], streams: Sequence[int] = ()) -> int:
        """The answer of the process to a request."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
        answer = self._socket.recv(64)
        assert answer, f"the fork server ended with status {self._process.poll()}"
        return int(answer)

    def close(self) -> None:
        """End the process, and all processes that were forked from it."""
        self._socket.close()
        self._process.wait(ANSWER_SECONDS)


class Forked:
    """A forked process, with what tests use of `subprocess.Popen`."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None
        """Exit status, or the number of the signal that ended the process, negative. None until `poll` or `wait`."""
        self._descriptor: int | None = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit status, or None while the process runs."""
        return self._status(0)

    def wait(self, timeout: float) -> int:
        """The exit status; raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        status = self._status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None and self._descriptor is not None:
            signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _status(self, timeout: float) -> int | None:
        if self._descriptor is not None:
            ended = select.poll()
            ended.register(self._descriptor, select.POLLIN)
            if not ended.poll(timeout * 1000):
                return None
            self.returncode = self._server.ask({"ended": self.pid})
            os.close(self._descriptor)
            self._descriptor = None
        return self.returncode

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def _serve(module: str, requests: socket.socket) -> None:
    main = importlib.import_module(module).main
    while True:
        message, streams, _, _ = socket.recv_fds(requests, MAXIMUM_REQUEST, 3)
        if not message:
            break
        request = json.loads(message)
        if (pid := request.get("ended")) is not None:
            answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        elif (answer := os.fork()) == 0:
            requests.close()
            _become(request, streams)
            sys.exit(main(request["arguments"]))
        for stream in streams:
            os.close(stream)
        requests.send(str(answer).encode())


def _become(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Make this process what a start of the command would have made it."""
    end_with_the_tests()
    os.setsid()
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)
    if request["output"] is not None:
        output = os.open(request["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        for standard in (1, 2):
            os.dup2(output, standard)
        os.close(output)
    if (limit := request["descriptors"]) is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    os.environ.clear()
    os.environ.update(request["environment"])


if __name__ == "__main__":
    _serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
