"""A peer of a `Rig` that says what it is told to, frame by frame, whatever the router has said."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.integration.support.raw import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    TRANSFER,
    frame,
)
from tests.unit.amqp.rig import End, Rig

from isthmus_router.core.roles import Role
from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.sections import encode_annotations
from isthmus_router.message.types import Described, UInt, ULong, UShort

_LARGE = UInt(2**31 - 1)
RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED = range(0x23, 0x28)
STATES: dict[int, list[Any]] = {
    RECEIVED: [UInt(0), ULong(0)],
    ACCEPTED: [],
    REJECTED: [],
    RELEASED: [],
    MODIFIED: [True, False],
}


class RawPeer(End):
    """One connection, opened, with sessions on channels 0 and 1. What is said goes out with the next turn."""

    def __init__(self, rig: Rig, name: str, role: Role, **settings: Any) -> None:
        super().__init__(rig, name, role, **settings)
        self.edge = role is Role.EDGE
        self.name = name
        self._unsaid = bytearray(AMQP_HEADER)
        self._names = 0
        self._deliveries: Counter[int] = Counter()
        """Next delivery id, by channel."""
        self.say(frame(OPEN, [name, None, UInt(65536), UShort(10)]))
        for channel in (0, 1):
            self.begin(channel)

    def _say(self) -> bool:
        if not self._unsaid:
            return False
        try:
            sent = self.socket.send(self._unsaid)
        except OSError:  # the router has closed its end
            sent = len(self._unsaid)
        del self._unsaid[:sent]
        return True

    def say(self, data: bytes) -> None:
        """Any bytes."""
        self._unsaid += data

    def begin(self, channel: int) -> None:
        self._deliveries[channel] = 0
        self.say(frame(BEGIN, [None, UInt(0), _LARGE, _LARGE], channel=channel))

    def attach(
        self, channel: int, handle: int, receiver: bool, address: str | None, name: int | None
    ) -> None:
        """With a `name`, a link that may have the name of another one."""
        self._names += 1
        shown = f"{self.name}/{self._names if name is None else f'same {name}'}"
        source = Described(ULong(0x28), [address if receiver else None])
        target = Described(ULong(0x29), [None if receiver else address])
        fields = [shown, UInt(handle), receiver, None, None, source, target, None, None, UInt(0)]
        self.say(frame(ATTACH, fields, channel=channel))

    def flow(self, channel: int, handle: int | None, credit: int, drain: bool, skew: int) -> None:
        """With `skew`, it is wrong about what it has been sent so far."""
        window = [UInt(skew), _LARGE, UInt(self._deliveries[channel]), _LARGE]
        link = [] if handle is None else [UInt(handle), UInt(skew), UInt(credit), None, drain]
        self.say(frame(FLOW, [*window, *link], channel=channel))

    def transfer(
        self,
        channel: int,
        handle: int,
        to: str,
        size: int,
        settled: bool,
        more: bool,
        aborted: bool,
        skew: int,
    ) -> None:
        """A frame of a message for `to`; with `skew`, its delivery id is wrong."""
        number = self._deliveries[channel] + skew
        if not more:
            self._deliveries[channel] += 1
        payload = b""
        if size >= 0:
            payload = encode_message(Message(properties=Properties(to=to), body=b"x" * size))
        if self.edge:
            payload = encode_annotations(0, to, "E", ("E",)) + payload
        fields = [
            UInt(handle),
            UInt(max(0, number)),
            str(number).encode(),
            UInt(0),
            settled,
            more,
            None,
            None,
            None,
            aborted,
        ]
        self.say(frame(TRANSFER, fields, payload, channel=channel))

    def disposition(
        self, channel: int, receiver: bool, first: int, last: int, settled: bool, state: int | None
    ) -> None:
        shown = None if state is None else Described(ULong(state), STATES[state])
        self.say(
            frame(DISPOSITION, [receiver, UInt(first), UInt(last), settled, shown, False], channel=channel)
        )

    def detach(self, channel: int, handle: int, closed: bool) -> None:
        self.say(frame(DETACH, [UInt(handle), closed], channel=channel))

    def end(self, channel: int) -> None:
        self.say(frame(END, [], channel=channel))

    def close(self) -> None:
        self.say(frame(CLOSE, []))
