"""Gossip routers as processes, and members that talk to them over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Self

from tests.integration.support.certificates import Identity
from tests.integration.support.forks import end_with_the_tests
from tests.integration.support.ports import free_port

from isthmus_router.gossip.client import ClientSettings, Endpoint, GossipClient
from isthmus_router.gossip.messages import (
    MOST_BYTES,
    VERSION,
    Control,
    FrameReader,
    Hello,
    Register,
    decode_control,
    encode_control,
    encode_message,
    is_message,
    payload_of,
)
from isthmus_router.groups.identity import MemberId, MemberInfo, PhysicalAddress, member_id

WAIT_SECONDS = 90.0
"""Long enough for a machine that has much else to do; nothing takes that long by itself."""
POLL_SECONDS = 0.01
GROUP = "group"


async def eventually(condition: Callable[[], object], what: str) -> None:
    """Ask again until it is true."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():  # noqa: ASYNC110  # of another process
                await asyncio.sleep(POLL_SECONDS)
    assert condition(), f"not within {WAIT_SECONDS:g} s: {what}"


def info(name: str) -> MemberInfo:
    """A new member of that name."""
    return MemberInfo(member_id(os.urandom(16)), name, (PhysicalAddress("127.0.0.1", 7800),))


class GossipRouter:
    """One process; `options` as on its command line."""

    def __init__(self, folder: Path, *options: str, identity: Identity | None = None) -> None:
        self.port, self.health_port = free_port(), free_port()
        self.endpoint = Endpoint("127.0.0.1", self.port)
        self.log_path = folder / f"gossip-{self.port}.log"
        self.options = [*options]
        if identity is not None:
            self.options += ["--tls-cert", str(identity.certificate), "--tls-key", str(identity.key)]
            self.options += ["--tls-ca", str(identity.trusted)]
        else:
            self.options.append("--plain-text")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """All that it has written."""
        return self.log_path.read_text()

    def command(self, *options: str) -> list[str]:
        """What starts it; later options count."""
        command = [
            sys.executable,
            "-m",
            "isthmus_router.gossip",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        command += ["--health-host", "127.0.0.1", "--health-port", str(self.health_port)]
        return [*command, *self.options, *options]

    async def start(self) -> Self:
        """Returns when it is ready."""
        self._spawn()
        await eventually(self.ready, f"gossip router ready: {self.log}")
        return self

    def _spawn(self) -> None:
        with self.log_path.open("ab") as output:
            self.process = subprocess.Popen(
                self.command(),
                stdout=output,
                stderr=output,
                preexec_fn=end_with_the_tests,  # noqa: PLW1509  # as for the routers
            )

    def ready(self) -> bool:
        """Whether `/readyz` says so."""
        assert self.process is not None
        assert self.process.poll() is None, self.log
        with contextlib.suppress(OSError):
            return self.page("/readyz") == "ready\n"
        return False

    def page(self, path: str) -> str:
        """What its health port answers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def metric(self, name: str) -> float:
        """Value of a metric; `name` without the usual prefix."""
        prefix = f"isthmus_gossip_router_{name} "
        found = [line for line in self.page("/metrics").splitlines() if line.startswith(prefix)]
        return float(found[0].removeprefix(prefix))

    def memory(self) -> int:
        """Resident bytes."""
        assert self.process is not None
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """As a crash."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def terminate(self) -> int:
        """SIGTERM; its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=10)


class Peer:
    """A raw connection: says what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = FrameReader(MOST_BYTES)
        self._read: deque[bytes] = deque()

    @classmethod
    async def connect(
        cls, router: GossipRouter, tls: ssl.SSLContext | None = None, source: str = "127.0.0.1"
    ) -> Peer:
        """Connected from an address of this host, nothing said."""
        name = None if tls is None else "localhost"
        return cls(
            *await asyncio.open_connection(
                "127.0.0.1", router.port, ssl=tls, server_hostname=name, local_addr=(source, 0)
            )
        )

    @classmethod
    async def greeted(
        cls, router: GossipRouter, tls: ssl.SSLContext | None = None, source: str = "127.0.0.1"
    ) -> Peer:
        """Connected, and past HELLO."""
        peer = await cls.connect(router, tls, source)
        peer.say(Hello(VERSION))
        assert isinstance(await peer.hear(), Hello)
        return peer

    @classmethod
    async def registered(
        cls, router: GossipRouter, member: MemberInfo, group: str = GROUP, source: str = "127.0.0.1"
    ) -> Peer:
        """Connected and known."""
        peer = await cls.greeted(router, source=source)
        peer.say(Register(group, member))
        return peer

    def say(self, message: Control) -> None:
        """Send a control frame."""
        self.writer.write(encode_control(message))

    def pass_on(self, sender: MemberInfo, to: MemberId, payload: bytes) -> None:
        """Send a message through the router."""
        self.writer.write(encode_message(GROUP, to, sender.id, payload))

    async def frame(self) -> bytes | None:
        """The next one; None at the end of the connection."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not self._read:
                with contextlib.suppress(ConnectionError):
                    if data := await self.reader.read(1 << 18):
                        self._frames.feed(data)
                        self._read += self._frames.cut(len(data), MOST_BYTES)
                        continue
                return None
        return self._read.popleft()

    async def hear(self) -> Control | bytes | None:
        """The next control message or payload; None at the end of the connection."""
        frame = await self.frame()
        if frame is None:
            return None
        return payload_of(frame) if is_message(frame) else decode_control(frame)

    def abort(self) -> None:
        """The connection is lost."""
        self.writer.transport.abort()


class Member:
    """A `GossipClient` with its driver; also its user and port."""

    def __init__(
        self, name: str, routers: Sequence[Endpoint], settings: ClientSettings | None = None
    ) -> None:
        self.info = info(name)
        self.seen: dict[MemberId, MemberInfo] = {}
        self.answers = 0
        self.frames: list[bytes] = []
        self.suspected: list[MemberId] = []
        self.refusals: list[str] = []
        self.client = GossipClient(GROUP, self.info, routers, self, self, Random(1), settings)
        self._loop = asyncio.get_running_loop()
        self._connections: dict[Endpoint, asyncio.Task[None]] = {}
        self._writers: dict[Endpoint, asyncio.StreamWriter] = {}
        self._timer = self._loop.create_task(self._keep_time())
        self.client.start(self._loop.time())

    def ask(self) -> None:
        self.client.ask(self._loop.time())

    def tell(self, to: MemberId, payload: bytes) -> bool:
        return self.client.send(self._loop.time(), to, payload)

    async def end(self) -> None:
        self.client.close(self._loop.time())
        self._timer.cancel()
        await asyncio.gather(self._timer, *self._connections.values(), return_exceptions=True)

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self._loop.time() >= self.client.deadline:
                self.client.on_time(self._loop.time())

    async def _converse(self, router: Endpoint) -> None:
        try:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(*router)
                self._writers[router] = writer
                self.client.connected(self._loop.time(), router)
                frames = FrameReader(MOST_BYTES)
                while data := await reader.read(1 << 16):
                    frames.feed(data)
                    for frame in frames.cut(len(data), MOST_BYTES):
                        self.client.on_frame(self._loop.time(), router, frame)
            if self._connections.get(router) is asyncio.current_task():
                self.client.closed(self._loop.time(), router)
        finally:
            if writer := self._writers.pop(router, None):
                writer.close()

    # The client's port

    def connect(self, router: Endpoint) -> None:
        self._connections[router] = self._loop.create_task(self._converse(router))

    def send(self, router: Endpoint, frame: bytes) -> None:
        self._writers[router].write(frame)

    def close(self, router: Endpoint) -> None:
        self._connections.pop(router).cancel()

    # The client's user

    def members(self, now: float, infos: Sequence[MemberInfo]) -> None:
        self.answers += 1
        self.seen = {found.id: found for found in infos}

    def frame(self, now: float, sender: MemberId, frame: bytes) -> None:
        self.frames.append(frame)

    def suspect(self, now: float, member: MemberId) -> None:
        self.suspected.append(member)

    def refused(self, now: float, router: Endpoint, reason: str) -> None:
        self.refusals.append(reason)
