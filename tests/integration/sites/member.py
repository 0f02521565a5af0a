"""A router process; the one named A is the only member of a group."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from isthmus_router import __main__
from isthmus_router.groups.batch import GroupMessage
from isthmus_router.groups.identity import MemberId
from isthmus_router.process import RouterProcess
from isthmus_router.sites.face import RelayFace
from isthmus_router.sites.port import FaceSettings, SiteMember

OWN = SiteMember(MemberId(b"A" * 16), "nyc", "A")
ROOM = 256 * 1024


class LoneMember:
    """The port of a member that is alone: what it publishes arrives at itself, a turn of the loop later."""

    def __init__(self, process: RouterProcess, loop: asyncio.AbstractEventLoop) -> None:
        self.room = ROOM
        self._loop = loop
        self._driver = process.driver
        settings = FaceSettings("trades", OWN, ("orders/#",), max_message_bytes=100_000)
        self._face = RelayFace(process.core, settings, self, loop.call_later)

    def publish(self, messages: Sequence[GroupMessage], token: object | None) -> None:
        """Of everything that is under way, so much is allowed."""
        size = sum(len(message.payload) for message in messages)
        self.room -= size
        self._loop.call_soon(self._arrived, messages, token, size)

    def _arrived(self, messages: Sequence[GroupMessage], token: object | None, size: int) -> None:
        self._face.deliver(OWN, messages, 0)
        if token is not None:
            self._face.protected(token)
        full = self.room <= 0
        self.room += size
        if full and self.room > 0:
            self._face.room_changed()
        self._driver.flush()

    def send_to(
        self, member: MemberId, message: GroupMessage, token: object | None, source: object = None
    ) -> None:
        """There is only this one."""
        self._loop.call_soon(self._received, message, token)

    def answer(self, member: MemberId, message: GroupMessage) -> None:
        """Nobody asks for the state."""

    def positions(self) -> dict[MemberId, int]:
        """Nobody asks for the state."""
        return {}

    def awaits(self, origin: MemberId) -> bool:
        """Nobody asks for the state."""
        return False

    def in_contact(self, site: str) -> bool:
        """Nobody asks for the state."""
        return False

    def _received(self, message: GroupMessage, token: object | None) -> None:
        self._face.received(OWN, message)
        if token is not None:
            self._face.protected(token)
        self._driver.flush()


class Process(RouterProcess):
    """With what there is of the group at it."""

    def __init__(self, configuration: Any, loop: asyncio.AbstractEventLoop, *arguments: Any) -> None:
        super().__init__(configuration, loop, *arguments)
        if self.core.id == "A":
            LoneMember(self, loop)


def main(arguments: list[str]) -> int:
    """As that of `isthmus_router`, with this process."""
    __main__.RouterProcess = Process  # type: ignore[misc]
    return __main__.main(arguments)
