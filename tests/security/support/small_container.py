"""Containers that answer frame by frame, and fail the test when the router does what it may not do."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

from tests.integration.support.by_hand import ACCEPTED, AMPLE, ByHand, open_frame
from tests.integration.support.links import TIMEOUT_SECONDS
from tests.integration.support.raw import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    HEARTBEAT,
    TRANSFER,
    Arrived,
    await_input,
    frame,
)

from isthmus_router.message.types import UInt, UShort

AMPLE_FOR_ALL = UInt(2**31 - 1)
HEARTBEAT_SECONDS = 2.0


class AnsweringContainer(ABC):
    """A container that answers on a thread, from `with` to the end of its block."""

    def __init__(self, port: int, *, channel_max: int, container: str = "broker") -> None:
        opened = open_frame(container, None, UInt(65536), UShort(channel_max))
        self._connection = ByHand(port, opened=opened, begun=b"")
        self.wrong: list[str] = []
        """What the router may not do."""
        self._changed = threading.Condition()
        self._leaving = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving = True
        self._thread.join()
        self._connection.socket.close()
        assert not self.wrong

    def _run(self) -> None:
        heartbeat_due = 0.0
        while not self._leaving and not self._connection.ended:
            arrived = self._connection.rest()
            with self._changed:
                for one in arrived:
                    self._answer(one)
                if self._connection.ended:
                    self.wrong.append("the router closed the connection")
                elif time.monotonic() >= heartbeat_due:
                    self._connection.send(HEARTBEAT)
                    heartbeat_due = time.monotonic() + HEARTBEAT_SECONDS
                self._changed.notify_all()
            await_input(self._connection.socket, 0.05)

    @abstractmethod
    def _answer(self, one: Arrived) -> None:
        """Answer a frame."""


class SmallContainer(AnsweringContainer):
    """Allows few links in a session and few sessions, and answers everything within these limits."""

    def __init__(
        self, port: int, *, handle_max: int, channel_max: int, container: str = "broker", credit: int = 100
    ) -> None:
        """It gives `credit` on each link and settles nothing by itself."""
        super().__init__(port, channel_max=channel_max, container=container)
        self.handle_max, self.channel_max, self.credit = handle_max, channel_max, UInt(credit)
        self.links: dict[tuple[int, int], str] = {}
        """Attached by the router and not detached: names by channel and handle."""
        self.payloads: list[bytes] = []
        """Of the messages that have arrived."""
        self.received: dict[int, int] = {}
        """Deliveries by channel; ids begin with 0."""
        self.most_links = 0

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until something is true that depends on what has arrived."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition() or bool(self.wrong), TIMEOUT_SECONDS)
        assert not self.wrong

    def settle(self, channel: int, first: int, last: int) -> None:
        """Accept the deliveries of a session that have these ids."""
        with self._changed:
            fields = [True, UInt(first), UInt(last), True, ACCEPTED]
            self._connection.send(frame(DISPOSITION, fields, channel=channel))

    def _answer(self, one: Arrived) -> None:
        channel, send = one.channel, self._connection.send
        if channel > self.channel_max:
            self.wrong.append(f"channel {channel}: {one}")
        elif one.code == BEGIN:
            fields = [UShort(channel), UInt(0), AMPLE_FOR_ALL, AMPLE, UInt(self.handle_max)]
            send(frame(BEGIN, fields, channel=channel))
        elif one.code == ATTACH:
            self._attach(one)
        elif one.code == TRANSFER:
            self.payloads.append(one.payload)
            self.received[channel] = int(one.fields[1]) + 1
        elif one.code == DETACH:
            del self.links[channel, int(one.fields[0])]
            send(frame(DETACH, [one.fields[0], True], channel=channel))
        elif one.code == END:
            send(frame(END, [], channel=channel))
        elif one.code == CLOSE:
            self.wrong.append(f"close: {one}")

    def _attach(self, one: Arrived) -> None:
        handle, channel = int(one.fields[1]), one.channel
        if handle > self.handle_max or (channel, handle) in self.links:
            self.wrong.append(f"handle {handle}: {one}")
        self.links[channel, handle] = str(one.fields[0])
        self.most_links = max(self.most_links, len(self.links))
        receives = not one.fields[2]
        source, target = one.fields[5:7]
        fields = [one.fields[0], one.fields[1], receives, None, None, source, target]
        if not receives:
            fields += [None, None, UInt(0)]
        self._connection.send(frame(ATTACH, fields, channel=channel))
        if receives:
            window = [UInt(0), AMPLE_FOR_ALL, UInt(0), AMPLE]
            self._connection.send(frame(FLOW, [*window, UInt(handle), UInt(0), self.credit], channel=channel))
