"""What the operator sends to a pod that it polls, and to no other address."""

from __future__ import annotations

import asyncio

import pytest

from isthmus_operator.fetch import AnswerError, fetch

ANSWER = b"HTTP/1.1 200 OK\r\nSet-Cookie: pod=1\r\nWWW-Authenticate: Basic\r\nContent-Length: 2\r\n\r\n{}"
REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/other\r\nContent-Length: 0\r\n\r\n"


class Pod:
    """A server that gives one answer, and records the requests."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[bytes] = []

    async def __aenter__(self) -> Pod:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.answer)
        writer.close()


async def test_no_credentials_and_no_cookie_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the environment, nor of an answer before."""
    async with Pod(ANSWER) as proxy, Pod(ANSWER) as pod:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://user:password@127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", "")
        for _ in range(2):
            assert await fetch("127.0.0.1", pod.port, "/status") == b"{}"
        assert not proxy.requests
    assert len(pod.requests) == 2
    for request in pod.requests:
        line, *fields = request.decode().rstrip().split("\r\n")
        assert line == "GET /status HTTP/1.1"
        names = {field.partition(":")[0] for field in fields}
        assert names == {"Host", "User-Agent", "Accept", "Accept-Encoding", "Connection"}
        assert "Accept-Encoding: identity" in fields
        assert "User-Agent: isthmus-operator" in fields


async def test_a_redirect_is_not_followed() -> None:
    async with Pod(ANSWER) as other, Pod(REDIRECT % other.port) as pod:
        with pytest.raises(AnswerError, match="302"):
            await fetch("127.0.0.1", pod.port, "/status")
        assert len(pod.requests) == 1
        assert not other.requests


async def test_a_name_is_not_looked_up() -> None:
    with pytest.raises(ValueError, match="localhost"):
        await fetch("localhost", 1, "/status")
