"""Many edge routers in one process: `edges.py FILE...`, a configuration file each. Ends at SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

import uvloop

from isthmus_router.config.loader import load
from isthmus_router.descriptors import raise_limit
from isthmus_router.process import RouterProcess


async def run(paths: list[str]) -> None:
    """Run until SIGTERM."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    processes = [RouterProcess(load(path), loop) for path in paths]
    for process in processes:
        await process.start()
    await stop.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    raise_limit()
    uvloop.run(run(sys.argv[1:]))
