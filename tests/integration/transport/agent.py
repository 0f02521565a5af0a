"""A member in a process of its own, for a host of a network; it does what it is told, line by line.

`python -m tests.integration.transport.agent <number> <host> <settings as Python>`. Each line on standard input is
a Python expression over the member (`one`); its value is written as one line. Nothing is waited for but the start.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop
from tests.integration.transport.recorder import Member

from isthmus_router.groups.identity import PhysicalAddress
from isthmus_router.transport.settings import MulticastSettings


async def main() -> None:
    """Until standard input ends."""
    number, host, settings = sys.argv[1:]
    one = Member(int(number), **{"host": host, **eval(settings, {"MulticastSettings": MulticastSettings})})
    print(repr(tuple(one.address)), flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        known = {"one": one, "At": PhysicalAddress}
        print(repr(eval(line, known)), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
