"""UDP multicast (IPv4) over several interfaces, for discovery.

One socket: it is bound to the group's address, so that it gets nothing else, joined on every interface, and tells the
system with each datagram which interface it is to leave by.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import socket
import struct
from collections.abc import Callable, Iterable

from isthmus_router.transport.settings import MulticastSettings

logger = logging.getLogger("TRANSPORT")

LONGEST_BYTES = 65_507
"""Of a datagram's contents."""
REJOIN_SECONDS = 10.0
"""Between looks at which interfaces there are."""
_READ_AT_ONCE = 64
_ALL = 49
"""IP_MULTICAST_ALL, which Python does not name: 0 keeps away what others on this machine have joined."""
_PKTINFO = 8
"""IP_PKTINFO."""
_SIOCGIFFLAGS = 0x8913
_UP, _LOOPBACK, _MULTICAST = 0x1, 0x8, 0x1000
_IFREQ = struct.Struct("16sH22x")
_MREQN = struct.Struct("4s4si")
_IN_PKTINFO = struct.Struct("i4s4s")


class Multicast:
    """The socket; frames of other members, and this one's own, are given to `received`."""

    def __init__(self, settings: MulticastSettings, received: Callable[[bytes], None]) -> None:
        """Raises OSError."""
        self._settings = settings
        self._group = socket.inet_aton(settings.group)
        self._received = received
        self._joined: set[int] = set()
        self.unsent = 0
        """Datagrams that the system did not take, or that are too long."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setsockopt(socket.IPPROTO_IP, _ALL, 0)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, settings.ttl)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            self._socket.bind((settings.group, settings.port))
        except OSError:
            self._socket.close()
            raise
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._read)
        self._join()

    def send(self, frame: bytes) -> None:
        """By every interface."""
        if len(frame) > LONGEST_BYTES:
            self.unsent += 1
            return
        to = (self._settings.group, self._settings.port)
        for index in self._joined:
            leave_by = (socket.IPPROTO_IP, _PKTINFO, _IN_PKTINFO.pack(index, bytes(4), bytes(4)))
            try:
                self._socket.sendmsg([frame], [leave_by], 0, to)
            except OSError:
                self.unsent += 1

    def close(self) -> None:
        """Leave the group."""
        if self._socket.fileno() >= 0:
            self._rejoin.cancel()
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _read(self) -> None:
        for _ in range(_READ_AT_ONCE):
            try:
                frame = self._socket.recv(LONGEST_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                logger.debug("multicast not received", extra={"reason": str(error)})
                return
            self._received(frame)

    def _join(self) -> None:
        """Join where there is an interface that was not there before; forget those that are gone."""
        self._rejoin = self._loop.call_later(REJOIN_SECONDS, self._join)
        wanted = set(self._interfaces())
        for index in wanted - self._joined:
            request = _MREQN.pack(self._group, bytes(4), index)
            # An interface that came back with its old index is still joined.
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        self._joined = wanted

    def _interfaces(self) -> Iterable[int]:
        names = self._settings.interfaces
        found = {name: index for index, name in socket.if_nameindex() if not names or name in names}
        flags = {name: self._flags(name) for name in found}
        usable = [name for name in found if flags[name] & _UP and flags[name] & (_MULTICAST | _LOOPBACK)]
        if not names:
            # The loopback interface is for members on one machine without any other.
            usable = [name for name in usable if not flags[name] & _LOOPBACK] or usable
        return [found[name] for name in usable]

    def _flags(self, interface: str) -> int:
        try:
            answer = fcntl.ioctl(self._socket, _SIOCGIFFLAGS, _IFREQ.pack(interface.encode(), 0))
        except OSError:
            return 0
        flags: int = _IFREQ.unpack(answer)[1]
        return flags
