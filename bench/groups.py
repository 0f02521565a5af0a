"""CPU of the streams of a group: `groups.py [SECONDS]`.

Three members' streams in one process and nothing between them: for batches of 1, 16 and 64 messages of 1 KB it prints
the CPU time per batch and member, and per message and member; frames are encoded and decoded as on the network.
"""

from __future__ import annotations

import random
import sys
import time
from collections import deque

from isthmus_router.groups.batch import Batch, GroupMessage
from isthmus_router.groups.frames import HEADER_BYTES, Kind, decode_header, encode_frame
from isthmus_router.groups.identity import NOBODY, MemberId, MemberInfo, member_id
from isthmus_router.groups.streams.streams import Streams
from isthmus_router.groups.streams.user import StreamsSettings
from isthmus_router.groups.views import View, ViewId

MEMBERS = 3
MESSAGE_BYTES = 1_024


class Member:
    """Port and user of its streams: a queue of frames for each other member."""

    def __init__(self, index: int) -> None:
        self.id = member_id(bytes([index]) * 16)
        self.queue: deque[bytes] = deque()
        self.others: dict[MemberId, Member] = {}
        self.messages = 0
        self.streams = Streams(self.id, "site", StreamsSettings(), self, self, random.Random(index))

    def send(self, now: float, to: MemberId, kind: Kind, body: bytes) -> None:
        """To one."""
        self.others[to].queue.append(encode_frame(kind, self.id, to, body))

    def send_all(self, now: float, kind: Kind, body: bytes) -> None:
        """The same frame to all."""
        frame = encode_frame(kind, self.id, NOBODY, body)
        for other in self.others.values():
            other.queue.append(frame)

    def delivered(self, now: float, batch: Batch) -> None:
        """Counted; making messages of it is measured apart."""
        self.messages += batch.count

    def gap(self, now: float, origin: MemberId, site: str, first: int, last: int, lost: int) -> None:
        """Nothing is lost here."""
        raise AssertionError("gap")

    def protected(self, now: float, number: int) -> None:
        """Not needed."""

    def held(self, now: float, origin: MemberId, number: int) -> None:
        """Not needed."""

    def room_changed(self, now: float) -> None:
        """Not needed: the window is watched."""

    def relayed(self, origin: MemberId) -> float:
        """Nothing is needed for other sites."""
        return float("inf")

    def elsewhere(self, number: int) -> int:
        return number

    def turn(self, now: float) -> None:
        """What has come, then the timers."""
        while self.queue:
            frame = self.queue.popleft()
            kind, sender, _ = decode_header(frame)
            assert len(frame) >= HEADER_BYTES
            self.streams.on_frame(now, kind, sender, frame)
        if self.streams.deadline <= now:
            self.streams.on_time(now)
        self.streams.flush(now)


def measure(count: int, seconds: float) -> None:
    """Every member publishes batches of so many messages."""
    members = [Member(index + 1) for index in range(MEMBERS)]
    view = View(ViewId(1, members[0].id), tuple(MemberInfo(member.id, "", ()) for member in members))
    for member in members:
        member.others = {other.id: other for other in members if other is not member}
        member.streams.view_installed(0, view)
    messages = [GroupMessage("news", bytes(MESSAGE_BYTES))] * count
    start, cpu = time.monotonic(), time.process_time()
    batches = 0
    while (now := time.monotonic()) < start + seconds:
        for member in members:
            if member.streams.room > 0:
                member.streams.publish(now, messages)
                batches += 1
            member.turn(now)
    spent = time.process_time() - cpu
    for now in (start + seconds + tick / 10 for tick in range(50)):
        for member in members:
            member.turn(now)
    assert all(member.messages == batches * count for member in members)
    each = spent / batches / MEMBERS * 1e6
    print(f"{count:3} messages: {each:6.1f} us per batch and member, {each / count:5.2f} us per message")


if __name__ == "__main__":
    for size in (1, 16, 64):
        measure(size, float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)
