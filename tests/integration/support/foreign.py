"""Clients of other makes: rhea on Node.js, and C programs on Debian's proton."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

INTEGRATION = Path(__file__).resolve().parent.parent
REPOSITORY = INTEGRATION.parent.parent
RHEA_VERSION = "3"
SET_UP_SECONDS = 180


def rhea_modules() -> Path:
    """A `node_modules` folder with rhea, installed into the user's cache the first time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isthmus" / "node"
    cache.mkdir(parents=True, exist_ok=True)
    assert shutil.which("npm"), "Node.js is needed for the tests with rhea: install nodejs and npm"
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / "node_modules" / "rhea" / "package.json").exists():
            subprocess.run(
                ["npm", "install", "--no-audit", "--no-fund", "--silent", f"rhea@{RHEA_VERSION}"],
                cwd=cache,
                check=True,
                timeout=SET_UP_SECONDS,
            )
    return cache / "node_modules"


def c_clients() -> Path:
    """The folder of the compiled C clients; needs a compiler and libqpid-proton11-dev."""
    folder = REPOSITORY / "bench" / "clients"
    built = subprocess.run(
        ["make", "-C", str(folder), "build/send", "build/recv"],
        capture_output=True,
        text=True,
        timeout=SET_UP_SECONDS,
        check=False,
    )
    assert built.returncode == 0, (
        f"the C clients do not build (is libqpid-proton11-dev installed?):\n{built.stderr}"
    )
    return folder / "build"


class Program:
    """A client program that runs beside the test."""

    def __init__(self, arguments: list[str], environment: dict[str, str] | None = None) -> None:
        self.arguments = arguments
        self._lines: list[str] = []
        self._errors: list[str] = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._threads = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self._lines), (self.process.stderr, self._errors))
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            with self._changed:
                lines.append(line.strip())
                self._changed.notify_all()

    def await_line(self, text: str, timeout: float = 20.0) -> None:
        """Wait for a line of output or of errors."""
        with self._changed:
            found = self._changed.wait_for(lambda: text in self._lines + self._errors, timeout)
        assert found, f"{self.arguments[:2]} did not say {text!r} within {timeout} s: {self._errors}"

    def result(self, timeout: float = 30.0) -> Any:
        """Wait for the end, which must be a success; the last line of output, from JSON."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.arguments[:2]} did not end within {timeout} s: {self._errors}"
            ) from None
        for thread in self._threads:
            thread.join(5)
        assert status == 0, f"{self.arguments[:2]} ended with status {status}: {self._errors} {self._lines}"
        return json.loads(self._lines[-1]) if self._lines and self._lines[-1][:1] in "{[" else None

    def report(self, timeout: float = 30.0) -> Any:
        """Wait for the end, a success or not; the last line of output, from JSON."""
        self.process.wait(timeout)
        for thread in self._threads:
            thread.join(5)
        return json.loads(self._lines[-1])

    def stop(self) -> None:
        """End the program if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


Run = Callable[..., Program]
"""Starts one of the programs, with its arguments."""
