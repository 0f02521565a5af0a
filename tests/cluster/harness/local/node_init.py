"""The first process of a node. Run as a script in namespaces of its own; standard library only.

Reads a JSON file: {"hostname": str, "private": [folders that become empty tmpfs],
"daemons": [{"argv": [...], "log": file, "after": file that must exist first}]}.
It makes the mounts private, starts the daemons in order, restarts those that end, and reaps
everything that is orphaned in the node. Killing it ends the whole node.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TypedDict

START_TIMEOUT_S = 60.0


class Daemon(TypedDict):
    argv: list[str]
    log: str
    after: str


class Config(TypedDict):
    hostname: str
    private: list[str]
    daemons: list[Daemon]


def isolate(config: Config) -> None:
    """Nothing mounted here reaches the machine; what kubelet mounts reaches the pods."""
    socket.sethostname(config["hostname"])
    subprocess.run(["mount", "--make-rslave", "/"], check=True)
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
    for folder in config["private"]:
        Path(folder).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder], check=True)


def launch(daemon: Daemon) -> int:
    deadline = time.monotonic() + START_TIMEOUT_S
    while daemon["after"] and not os.path.exists(daemon["after"]):
        if time.monotonic() > deadline:
            sys.exit(f"{daemon['argv'][0]}: {daemon['after']} did not appear")
        time.sleep(0.05)
    with open(daemon["log"], "ab") as log:
        return subprocess.Popen(daemon["argv"], stdin=subprocess.DEVNULL, stdout=log, stderr=log).pid


def main() -> None:
    config: Config = json.loads(Path(sys.argv[1]).read_text())
    isolate(config)
    running = {launch(daemon): daemon for daemon in config["daemons"]}
    while True:
        pid, status = os.wait()
        ended = running.pop(pid, None)
        if ended is not None:
            print(f"{ended['argv'][0]} ended with status {status}, starting it again", flush=True)
            time.sleep(1)
            running[launch(ended)] = ended


if __name__ == "__main__":
    main()
