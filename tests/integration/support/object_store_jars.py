"""What Spark needs for s3a:// beside what it comes with, as the image of analyses has it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

POM = Path(__file__).parents[3] / "flow-analysis" / "object-store.pom.xml"
SET_UP_SECONDS = 300.0


def object_store_jars() -> Path:
    """Their folder, in the user's cache; fetched when they are not those that the project asks for."""
    assert shutil.which("mvn"), "mvn is needed for the analysis of a log in an object store (Debian: maven)"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isthmus" / "object-store-jars"
    cache.mkdir(parents=True, exist_ok=True)
    wanted, complete = hashlib.sha256(POM.read_bytes()).hexdigest(), cache / ".complete"
    jars = cache / "jars"
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (complete.exists() and complete.read_text() == wanted):
            shutil.rmtree(jars, ignore_errors=True)
            subprocess.run(
                ["mvn", "-q", "-B", "-f", str(POM), "package", f"-DoutputDirectory={jars}"],
                check=True,
                timeout=SET_UP_SECONDS,
                stdin=subprocess.DEVNULL,
            )
            complete.write_text(wanted)
    return jars
