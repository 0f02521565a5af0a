"""CPU time of a gossip router per message that it passes on, on loopback, with TLS and without.

One member sends to another, at most so many messages ahead of what has arrived; the user and system time of the
router's process is divided by their number. For TLS all have certificates, made for the run. A table goes to standard
output.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop
from options import parser_of
from routers import cpu_seconds, free_port

from isthmus_router.gossip.messages import (
    MOST_BYTES,
    VERSION,
    FrameReader,
    GetMembers,
    Hello,
    Register,
    encode_control,
    encode_message,
    is_message,
)
from isthmus_router.groups.identity import MemberInfo, member_id

GROUP = "bench"


class Member:
    """A registered connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.id = member_id(os.urandom(16))
        self.writer = writer
        self._reader, self._frames = reader, FrameReader(MOST_BYTES)

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext | None) -> Member:
        """Returns when it is known to the router."""
        name = None if tls is None else "localhost"
        member = cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name))
        for message in (Hello(VERSION), Register(GROUP, MemberInfo(member.id, "", ())), GetMembers(GROUP)):
            member.writer.write(encode_control(message))
        greeting = 0
        while greeting < 2:
            greeting += len(await member.frames())
        return member

    async def frames(self) -> list[bytes]:
        """What has arrived; not empty unless a frame is incomplete."""
        data = await self._reader.read(1 << 20)
        if not data:
            raise ConnectionError("the gossip router has closed the connection")
        self._frames.feed(data)
        return self._frames.cut(len(data), MOST_BYTES)


async def pass_on(sender: Member, receiver: Member, messages: int, size: int, ahead: int) -> None:
    """Send so many, and await them all."""
    frame = encode_message(GROUP, receiver.id, sender.id, bytes(size))
    sent = arrived = 0
    while arrived < messages:
        more = min(messages, arrived + ahead) - sent
        sender.writer.write(frame * more)
        sent += more
        arrived += sum(map(is_message, await receiver.frames()))


@contextlib.asynccontextmanager
async def gossip_router(folder: Path, *, tls: bool) -> AsyncIterator[tuple[int, int, ssl.SSLContext | None]]:
    """A process: its port and process id, and how to connect."""
    port, health = free_port(), free_port()
    command = [sys.executable, "-m", "isthmus_router.gossip", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--health-host", "127.0.0.1", "--health-port", str(health), "--log-level", "warning"]
    context = None
    if tls:
        files, context = credentials(folder)
        command += files
    else:
        command.append("--plain-text")
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL)
    try:
        await listening(health, process)
        yield port, process.pid, context
    finally:
        process.terminate()
        await process.wait()


async def listening(port: int, process: asyncio.subprocess.Process) -> None:
    """Returns when somebody listens on the port."""
    while process.returncode is None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.02)
    raise SystemExit("the gossip router does not start")


def credentials(folder: Path) -> tuple[list[str], ssl.SSLContext]:
    """Options of a router with certificates, and how members connect to it."""
    import trustme  # noqa: PLC0415  # only needed here

    authority = trustme.CA()
    leaf = authority.issue_cert("localhost")
    paths = {name: folder / f"{name}.pem" for name in ("cert", "key", "ca")}
    leaf.cert_chain_pems[0].write_to_path(paths["cert"])
    leaf.private_key_pem.write_to_path(paths["key"])
    authority.cert_pem.write_to_path(paths["ca"])
    context = ssl.create_default_context(cafile=str(paths["ca"]))
    context.load_cert_chain(paths["cert"], paths["key"])
    return [word for name, path in paths.items() for word in (f"--tls-{name}", str(path))], context


async def measure(options: argparse.Namespace) -> None:
    """The table."""
    print(f"messages of {options.size} bytes\n{'':24}{'CPU us each':>12}{'messages/s':>12}")
    for tls in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            async with gossip_router(Path(folder), tls=tls) as (port, pid, context):
                sender, receiver = [await Member.connect(port, context) for _ in range(2)]
                for name, ahead, messages in (
                    ("at full speed", options.ahead, options.messages),
                    ("one at a time", 1, options.messages // 10),
                ):
                    cpu, before = cpu_seconds(pid), time.perf_counter()
                    await pass_on(sender, receiver, messages, options.size, ahead)
                    seconds, used = time.perf_counter() - before, cpu_seconds(pid) - cpu
                    title = f"{name}{', TLS' * tls}"
                    print(f"{title:24}{1e6 * used / messages:12.1f}{messages / seconds:12,.0f}")


def main() -> None:
    """Entry point."""
    parser = parser_of(__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="at full speed; a tenth one at a time")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a message")
    parser.add_argument("--ahead", type=int, default=1000, help="messages on their way at full speed")
    uvloop.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
