"""A member in a process of its own, for a host of a network; it does what it is told, line by line.

`python -m tests.integration.transport.agent <number> <address> <settings as Python>`. Each line on standard input is
a Python expression over the member (`one`); its value is written as one line. Nothing is waited for but the start.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop
from tests.integration.transport.recorder import Member

from isthmus_router.groups.identity import PhysicalAddress
from isthmus_router.transport.interfaces import own_networks
from isthmus_router.transport.settings import MulticastSettings


async def main() -> None:
    """Until standard input ends."""
    number, address, settings = sys.argv[1:]
    known = {"MulticastSettings": MulticastSettings, "At": PhysicalAddress, "own_networks": own_networks}
    one = Member(int(number), at=address, **eval(settings, known))
    print(repr(tuple(one.address)), flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        print(repr(eval(line, {"one": one, **known})), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
