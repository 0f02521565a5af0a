"""A process that answers `/status` as no router does: one port for each attack, listed on standard output.

Run as `python -m tests.security.support.hostile_pod`. Ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator, Callable

ADDRESS = "127.0.0.1"
MEGABYTE = 1024 * 1024
GOOD = {"router": {"id": "good-0", "configHash": "1", "ready": True}}

Attack = Callable[[int], AsyncIterator[bytes]]
"""What is sent after a request; the argument is the port that nobody must ask."""


def plain(body: bytes, fields: str = "") -> Attack:
    """An attack by the content of an otherwise normal answer."""

    async def answer(_: int) -> AsyncIterator[bytes]:
        yield f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{fields}\r\n".encode()
        yield body

    return answer


def endless(head: bytes, part: bytes, pause: float = 0.0) -> Attack:
    """An attack that goes on for as long as somebody reads."""

    async def answer(_: int) -> AsyncIterator[bytes]:
        yield head
        while True:
            yield part
            await asyncio.sleep(pause)

    return answer


async def redirect(secret_port: int) -> AsyncIterator[bytes]:
    yield (
        f"HTTP/1.1 302 Found\r\nLocation: http://{ADDRESS}:{secret_port}/latest/meta-data\r\n"
        "Content-Length: 0\r\n\r\n"
    ).encode()


async def silence(_: int) -> AsyncIterator[bytes]:
    await asyncio.sleep(3600)
    yield b""


def bomb() -> bytes:
    """1.2 GB in 1.2 MB."""
    return gzip.compress(bytes(100 * MEGABYTE), 9) * 12


def status(**fields: object) -> bytes:
    return json.dumps({**GOOD, **fields}).encode()


def remote(seconds: str) -> bytes:
    names = (
        "lagBytes",
        "lagMessages",
        "droppedMessages",
        "replayedMessages",
        "duplicateMessages",
        "gapMessages",
    )
    site = {
        "site": "x",
        "state": "up",
        "members": [],
        "problem": "",
        "lagSeconds": 0,
        **dict.fromkeys(names, 0),
    }
    relay = {
        "group": "g",
        "site": "n",
        "view": 1,
        "members": [],
        "problems": [],
        "accepts": True,
        "remotes": [site],
    }
    return status(relay=relay).replace(b'"lagSeconds": 0', f'"lagSeconds": {seconds}'.encode())


_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"


def attacks() -> dict[str, Attack]:
    """By name. `good` is none."""
    packed = bomb()
    return {
        "good": plain(json.dumps(GOOD).encode()),
        "gzip": plain(packed, "Content-Encoding: gzip\r\n"),
        "gzip-in-name-only": plain(json.dumps(GOOD).encode(), "Content-Encoding: br\r\n"),
        "gzip-unannounced": plain(packed),
        "redirect": redirect,
        "deep-lists": plain(b"[" * 150_000),
        "deep-objects": plain(b'{"a":' * 150_000),
        "wide": plain(b"[" + b"[]," * 1_300_000 + b"[]]"),
        "wide-objects": plain(b"[" + b'{"a":1},' * 400_000 + b"{}]"),
        "quotes-without-end": plain(b'"' + b'\\"' * 1_900_000),
        "backslashes": plain(b"\\" * 3 * MEGABYTE),
        "endless-body": endless(_OK + b"\r\n", bytes(65536)),
        "endless-chunks": endless(_CHUNKED, b"10000\r\n" + bytes(65536) + b"\r\n"),
        "tiny-chunks": endless(_CHUNKED, b"1\r\n0\r\n" * 8192),
        "huge-chunk": endless(_CHUNKED + b"ffffffff\r\n", bytes(65536)),
        "chunk-without-end": endless(_CHUNKED, b"0" * 65536),
        "length-of-10-GB": endless(_OK + b"Content-Length: 10000000000\r\n\r\n", bytes(65536)),
        "negative-length": endless(_OK + b"Content-Length: -1\r\n\r\n", bytes(65536)),
        "two-lengths": endless(_OK + b"Content-Length: 5\r\nContent-Length: 9\r\n\r\n", bytes(65536)),
        "endless-headers": endless(_OK, b"X-Field: 1\r\n" * 4096),
        "endless-header": endless(_OK + b"X-Field: ", b"1" * 65536),
        "endless-status-line": endless(b"", b"H" * 65536),
        "endless-continue": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        "trickle": endless(_OK + b"\r\n", b" ", pause=0.05),
        "silence": silence,
        "infinite-seconds": plain(remote("1e999")),
        "not-a-number": plain(remote("NaN")),
        "huge-number": plain(status(policyDenials={"a": 10**300})),
        "number-of-5000-digits": plain(b'{"router": {"id": ' + b"9" * 5000 + b"}}"),
        "negative-number": plain(status(linkRoutesTotal=-1)),
        "list-for-object": plain(b'{"router": []}'),
        "numbers-for-lists": plain(status(nodes=5, connectors=7)),
        "text-for-flag": plain(json.dumps({"router": {"id": "x", "ready": "yes"}}).encode()),
        "null": plain(b"null"),
    }


async def serve() -> None:
    ports: dict[str, int] = {}
    visits = 0

    async def forbidden(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visits
        visits += 1
        writer.close()

    async def count(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(str(visits).encode())
        writer.close()

    secret = await asyncio.start_server(forbidden, ADDRESS, 0)
    secret_port = secret.sockets[0].getsockname()[1]
    counter = await asyncio.start_server(count, ADDRESS, 0)
    ports["visits"] = counter.sockets[0].getsockname()[1]
    servers = [secret, counter]
    for name, attack in attacks().items():

        async def handle(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, attack: Attack = attack
        ) -> None:
            try:
                await reader.readuntil(b"\r\n\r\n")
                async for part in attack(secret_port):
                    writer.write(part)
                    await writer.drain()
            except (OSError, EOFError, asyncio.CancelledError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(handle, ADDRESS, 0)
        servers.append(server)
        ports[name] = server.sockets[0].getsockname()[1]
    print(json.dumps(ports), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
