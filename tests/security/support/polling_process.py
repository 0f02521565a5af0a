"""A process that polls pods as the operator does, and reports on each line of its standard output.

Run as `python -m tests.security.support.polling_process`. Reads one JSON object from standard input: name to port.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path
from typing import Any

from isthmus_operator.observe import Observer, Target


def measured() -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    # Its ru_maxrss may be that of the process that has started this one.
    status = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in status if line.startswith("VmHWM:"))
    return {"peak": int(peak) * 1024, "cpu": usage.ru_utime + usage.ru_stime}


async def main() -> None:
    ports: dict[str, int] = json.loads(sys.stdin.readline())
    observer = Observer(lambda namespace: None, interval=0.05)
    # As on a cluster: the attackers are in one namespace, the honest pod is in another one.
    observer.watch(
        "evil", {name: Target(name, "127.0.0.1", port) for name, port in ports.items() if name != "good"}
    )
    observer.watch("good", {"good": Target("good", "127.0.0.1", ports["good"])})
    while True:
        found = {**observer.observations("evil"), **observer.observations("good")}
        errors = {name: item.error if item.report is None else None for name, item in found.items()}
        alive = sorted(key[1] for key, (_, task) in observer._tasks.items() if not task.done())
        print(json.dumps({"errors": errors, "alive": alive, **measured()}), flush=True)
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main())
