"""An object store on loopback: moto's server, in an environment of its own, as it needs other versions than Isthmus."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.integration.support.forks import end_with_the_tests
from tests.integration.support.ports import free_port
from tests.integration.support.routers import STOP_SECONDS, eventually

MOTO = ("moto[s3]>=5.2,<6", "flask>=3,<4", "flask-cors>=6,<7")
"""Its extra `server` brings much more, for services that are not needed here."""
SET_UP_SECONDS = 300.0
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}


def moto_server() -> Path:
    """The command, installed into the user's cache the first time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isthmus" / "moto"
    cache.mkdir(parents=True, exist_ok=True)
    command, complete = cache / "bin" / "moto_server", cache / ".complete"
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (complete.exists() and complete.read_text() == str(MOTO)):
            for arguments in (
                ["venv", str(cache)],
                ["pip", "--python", str(cache), "install", "--quiet", *MOTO],
            ):
                subprocess.run([sys.executable, "-m", *arguments], check=True, timeout=SET_UP_SECONDS)
            complete.write_text(str(MOTO))
    return command


class ObjectStore:
    """Has one bucket, `flows`; what is in it is gone when it stops."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._log = folder / "moto.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> ObjectStore:
        """Answer."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(moto_server()), "--host", "127.0.0.1", "--port", str(self.port)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **KEYS},
                start_new_session=True,
                preexec_fn=end_with_the_tests,  # noqa: PLW1509  # a system call
            )
        eventually(self._has_bucket, "the object store answers")
        return self

    def _has_bucket(self) -> bool:
        request = urllib.request.Request(f"{self.endpoint}/flows", method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def has_unfinished_uploads(self) -> bool:
        """Whether there are multipart uploads under way, or broken off."""
        with urllib.request.urlopen(f"{self.endpoint}/flows?uploads", timeout=5) as answer:
            return b"<UploadId>" in answer.read()

    def stop(self) -> None:
        """Answer no more."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOP_SECONDS)
            self._process = None
