"""One HTTP request to a pod, which may be hostile: bounded in bytes and time, without redirects or encodings.

HTTP/1.1 as far as status endpoints need it. A general client decodes, follows and buffers too much.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address

MAX_ANSWER_BYTES = 4 * 1024 * 1024
HEAD_BYTES = 16 * 1024
_CHUNK_LINE_BYTES = 256
_MAX_CHUNKS = 16_384
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r?\n")
_HEX = re.compile(rb"[0-9A-Fa-f]{1,8}")


class AnswerError(ValueError):
    """An answer that is not taken; the text is a clause about it."""


async def fetch(
    ip: str, port: int, path: str, *, limit: int = MAX_ANSWER_BYTES, seconds: float = 3.0
) -> bytes:
    """The body that the process at `ip` and `port` serves at `path`.

    Raises AnswerError, OSError, EOFError or TimeoutError. `ip` must be an address, not a name.
    """
    host = ip_address(ip)
    authority = f"[{host}]" if host.version == 6 else str(host)
    request = (
        f"GET {path} HTTP/1.1\r\nHost: {authority}:{port}\r\nUser-Agent: isthmus-operator\r\n"
        "Accept: application/json\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n"
    )
    async with asyncio.timeout(seconds), _connection(str(host), port) as (reader, writer):
        writer.write(request.encode("ascii"))
        head = await _head(reader)
        return await _body(reader, head, limit)


@asynccontextmanager
async def _connection(
    host: str, port: int
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(host, port, limit=HEAD_BYTES)
    try:
        yield reader, writer
    finally:
        # Nothing is sent after the request, and a close that waits could be held up by the peer.
        with contextlib.suppress(OSError):
            writer.transport.abort()


async def _head(reader: asyncio.StreamReader) -> dict[bytes, bytes]:
    """The header fields of a response with status 200."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise AnswerError(f"more than {HEAD_BYTES} bytes of header") from None
    line = _STATUS_LINE.match(head)
    if line is None:
        raise AnswerError("no HTTP response")
    if line[1] != b"200":
        raise AnswerError(f"HTTP status {int(line[1])}")
    fields: dict[bytes, bytes] = {}
    for item in head[line.end() :].split(b"\r\n"):
        key, separator, value = item.partition(b":")
        if not separator:
            continue
        key = key.strip().lower()
        if key in fields and key in {b"content-length", b"transfer-encoding", b"content-encoding"}:
            raise AnswerError(f"two header fields {key.decode()}")
        fields[key] = value.strip().lower()
    return fields


async def _body(reader: asyncio.StreamReader, fields: dict[bytes, bytes], limit: int) -> bytes:
    if fields.get(b"content-encoding", b"identity") != b"identity":
        raise AnswerError("a content encoding, which was not asked for")
    transfer = fields.get(b"transfer-encoding")
    if transfer == b"chunked":
        return await _chunks(reader, limit)
    if transfer is not None:
        raise AnswerError("a transfer encoding, which was not asked for")
    length = fields.get(b"content-length")
    if length is not None:
        if not re.fullmatch(rb"[0-9]{1,15}", length):
            raise AnswerError("a malformed length")
        if int(length) > limit:
            raise _too_long(limit)
        return await reader.readexactly(int(length))
    body = bytearray()
    while part := await reader.read(HEAD_BYTES):
        body += part
        if len(body) > limit:
            raise _too_long(limit)
    return bytes(body)


async def _chunks(reader: asyncio.StreamReader, limit: int) -> bytes:
    body = bytearray()
    for _ in range(_MAX_CHUNKS):
        try:
            line = await reader.readuntil(b"\r\n")
        except asyncio.LimitOverrunError:
            raise AnswerError("a malformed chunk") from None
        size = line.partition(b";")[0].strip()
        if len(line) > _CHUNK_LINE_BYTES or not _HEX.fullmatch(size):
            raise AnswerError("a malformed chunk")
        length = int(size, 16)
        if len(body) + length > limit:
            raise _too_long(limit)
        if length == 0:
            return bytes(body)  # the connection is not used again: trailers do not matter
        body += await reader.readexactly(length)
        if await reader.readexactly(2) != b"\r\n":
            raise AnswerError("a malformed chunk")
    raise AnswerError(f"more than {_MAX_CHUNKS} chunks")


def _too_long(limit: int) -> AnswerError:
    return AnswerError(f"more than {limit} bytes")
