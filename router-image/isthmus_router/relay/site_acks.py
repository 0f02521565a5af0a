"""SITE_ACKS: what other sites have acknowledged, told by the relays to those of the own site that keep it for them.

```
 n x ( length (1) | site | count (4) | count x (origin (16) | number (8)) )
```
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator
from math import inf

from isthmus_router.groups.frames import HEADER_BYTES, FrameError, Kind, check_numbers
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.port import MemberPort
from isthmus_router.relay.keeper import Keeper
from isthmus_router.relay.messages import MOST_ORIGINS
from isthmus_router.relay.site_table import MOST_SITES

TELL_INTERVAL = 0.05
PRESSED_INTERVAL = 0.01
"""When senders may wait for it."""
TELL_ALL_INTERVAL = 1.0
"""All numbers, after some have changed: a frame may have been lost."""
_POSITION = struct.Struct(">16sQ")
_COUNT = struct.Struct(">I")


def encode_site_acks(acks: dict[str, dict[MemberId, int]]) -> bytes:
    """The body."""
    parts: list[bytes] = []
    for site, numbers in acks.items():
        name = site.encode()
        parts += (bytes((len(name),)), name, _COUNT.pack(len(numbers)))
        parts += [_POSITION.pack(origin, number) for origin, number in numbers.items()]
    return b"".join(parts)


def decode_site_acks(body: bytes, sites: Container[str]) -> Iterator[tuple[str, list[tuple[bytes, int]]]]:
    """By site: the origins and numbers; what is about others than these `sites` is passed over. Raises FrameError."""
    seen: set[str] = set()
    at = entries = 0
    while at < len(body):
        entries += 1
        if entries > MOST_SITES:
            raise FrameError(f"acknowledgements of more than {MOST_SITES} sites")
        try:
            end = at + 1 + body[at]
            site = body[at + 1 : end].decode()
            (count,) = _COUNT.unpack_from(body, end)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise FrameError(f"malformed acknowledgements of sites: {error}") from error
        start = end + _COUNT.size
        at = start + count * _POSITION.size
        if count > MOST_ORIGINS:
            raise FrameError(f"acknowledgements of {count} origins; {MOST_ORIGINS} at most")
        if at > len(body):
            raise FrameError(f"{count} acknowledgements in {len(body)} bytes")
        if site in sites:
            if site in seen:
                raise FrameError(f"acknowledgements of {site} twice")
            seen.add(site)
            acks = list(_POSITION.iter_unpack(memoryview(body)[start:at]))
            check_numbers(*(number for _, number in acks))
            yield site, acks


class SiteAcks:
    """At a relay: what has changed is told soon, all of it now and then. At others: it is noted."""

    def __init__(self, keeper: Keeper, port: MemberPort) -> None:
        self._keeper = keeper
        self._buffer = keeper.buffer
        self._port = port
        self._changed: dict[str, dict[MemberId, int]] = {}
        self._tell_at = inf
        self._tell_all_at = inf

    @property
    def deadline(self) -> float:
        """When `on_time` is due."""
        return min(self._tell_at, self._tell_all_at)

    def acknowledged(self, now: float, site: str, origin: MemberId) -> None:
        """The buffer has a new number."""
        self._changed.setdefault(site, {})[origin] = self._buffer.acknowledged(site, origin)
        interval = PRESSED_INTERVAL if self._keeper.pressed(site) else TELL_INTERVAL
        self._tell_at = min(self._tell_at, now + interval)
        self._tell_all_at = min(self._tell_all_at, now + TELL_ALL_INTERVAL)

    def changed(self, now: float) -> None:
        """Something else is to be told soon."""
        self._tell_all_at = min(self._tell_all_at, now + TELL_INTERVAL)

    def tell_all(self, now: float) -> None:
        """There are new members, or this one is a new relay."""
        self._tell_at = self._tell_all_at = inf
        self._changed.clear()
        acked = {
            site: {origin: number for origin, number in numbers.items() if self._keeper.has_stream(origin)}
            for site, numbers in self._buffer.acked.items()
            if site in self._buffer.contacted
        }
        if acked:
            self._port.send_all(now, Kind.SITE_ACKS, encode_site_acks(acked))

    def on_frame(self, now: float, frame: bytes) -> None:
        """From a relay of the view, which has the sessions with other sites.

        Raises FrameError, when all that can be noted is.
        """
        wrong: FrameError | None = None
        for site, numbers in decode_site_acks(frame[HEADER_BYTES:], self._buffer.acked):
            self._buffer.contacted.add(site)
            for origin, number in numbers:
                try:
                    self._note(now, site, MemberId(origin), number)
                except FrameError as error:
                    wrong = error
        if wrong is not None:
            raise wrong

    def _note(self, now: float, site: str, origin: MemberId, number: int) -> None:
        """Pass on an acknowledgement, unless the origin has no stream yet: the relay repeats it."""
        if self._keeper.has_stream(origin):
            self._keeper.acknowledge(now, site, origin, number)

    def on_time(self, now: float) -> None:
        """Tell what is due."""
        if now >= self._tell_all_at:
            self.tell_all(now)
        elif now >= self._tell_at:
            self._tell_at = inf
            self._port.send_all(now, Kind.SITE_ACKS, encode_site_acks(self._changed))
            self._changed.clear()
