"""The relay of another site, at the end of a session that it has dialled over TLS."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from typing import Self

from isthmus_router.groups.batch import decode_batch
from isthmus_router.groups.frames import PROTOCOL_VERSION
from isthmus_router.groups.identity import MemberId, MemberInfo
from isthmus_router.groups.views import View, ViewId
from isthmus_router.relay.messages import BridgeKind, Hello, pack, pack_hello, pack_numbers
from isthmus_router.relay.settings import Endpoint
from isthmus_router.transport.framing import PREFIX


class OtherSite:
    """Acknowledges what it is sent, and counts it."""

    def __init__(self, port: int, tls: ssl.SSLContext, group: str, site: str, to: str) -> None:
        self._tls = tls.wrap_socket(socket.create_connection(("127.0.0.1", port), 20))
        self._tls.settimeout(20)
        self._lock = threading.Lock()
        self._to_say: list[bytes] = []
        self._ended = False
        self.reads = True
        """It reads what it is sent."""
        self.received = 0
        """Bytes of batches, also of those that have come twice."""
        self.origins: set[MemberId] = set()
        member = MemberId(os.urandom(16))
        view = View(ViewId(1, member), (MemberInfo(member, f"{site}-0", ()),))
        here = (Endpoint("127.0.0.1", 9),)
        hello = Hello(PROTOCOL_VERSION, group, site, site, to, member, here, view, ())
        self.say(pack_hello(BridgeKind.HELLO, hello))
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._thread.join()
        self._tls.close()

    @property
    def open(self) -> bool:
        """Whether the session has not ended."""
        return self._thread.is_alive()

    def say(self, *frames: bytes) -> None:
        """Send frames."""
        with self._lock:
            self._to_say += [PREFIX.pack(len(frame)) + frame for frame in frames]

    def ask_again(self, most: int) -> None:
        """Ask for the batches of each origin from the first one on."""
        self.say(*(pack(BridgeKind.NAK, bytes(origin), 1, most, 0) for origin in self.origins))

    def _run(self) -> None:
        data = bytearray()
        while not self._ended:
            with self._lock:
                said, self._to_say = self._to_say, []
            self._tls.sendall(b"".join(said))
            if not self.reads or not (self._tls.pending() or select.select([self._tls], [], [], 0.01)[0]):
                continue
            more = self._tls.recv(1 << 16)
            if not more:
                return
            data += more
            at = 0
            while len(data) - at >= PREFIX.size:
                end = at + PREFIX.size + PREFIX.unpack_from(data, at)[0]
                if end > len(data):
                    break
                self._frame(bytes(data[at + PREFIX.size : end]))
                at = end
            del data[:at]

    def _frame(self, frame: bytes) -> None:
        if frame[0] == BridgeKind.BATCH:
            batch = decode_batch(frame, 1)
            self.received += len(frame)
            self.origins.add(batch.origin)
            self.say(pack_numbers(BridgeKind.ACK, [(batch.origin, batch.number)]))
        elif frame[0] == BridgeKind.PING:
            self.say(pack_numbers(BridgeKind.PING, ()))
