"""A router whose relay sends forged FORWARD frames once the file that `LIE` names is there."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

from isthmus_router import __main__
from isthmus_router.groups.frames import Kind
from isthmus_router.groups.identity import MemberId
from isthmus_router.relay.messages import Unicast, pack_unicast
from isthmus_router.relay.relay import Relay

CONNECTION = 1 << 31
_on_time = Relay.on_time


def _lie(relay: Relay, now: float) -> None:
    _on_time(relay, now)
    job = Path(os.environ["LIE"])
    done = job.with_suffix(".done")
    if done.exists() or not job.exists():
        return
    lie = json.loads(job.read_text())
    source, to = (MemberId(bytes.fromhex(lie[name])) for name in ("source", "to"))
    if lie["kind"] == "ack":
        bodies = [struct.pack(">QQ", c, n) for c in range(1, 5) for n in range(1, 100)]
        kind = Kind.UNICAST_ACK
    else:
        bodies = [struct.pack(">QQQ", CONNECTION, 1, 1) + b"\x00\x00\x00\x53\x77\xa1\x06FORGED"]
        kind = Kind.UNICAST
    for hops in (0, 0x80):
        for body in bodies:
            frame = pack_unicast(Unicast(kind, hops, source, to, body))
            relay._forwarding._port.send(now, to, Kind.FORWARD, frame)
    done.touch()


def main(arguments: list[str]) -> int:
    """As that of `isthmus_router`, with the lie."""
    Relay.on_time = _lie  # type: ignore[method-assign]
    return __main__.main(arguments)
