"""`python -m tests.security.fuzz`: conversations with a router in memory, one after the other, until the time is over.

Each ends with all peers gone; two others, which keep to the rules, then still exchange messages. The seed of a
conversation is in the file `--last` while it runs. Exit status: 0 nothing found, 1 something is wrong; the process
ends by a signal if the engine does.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import random
import re
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from proton import Delivery, Message
from tests.security.fuzz.container import Container
from tests.security.fuzz.conversations import Conversation
from tests.unit.amqp.garbage import nothing_left_to_collect
from tests.unit.amqp.rig import End, Peer, Rig, usable
from tests.unit.amqp.routed_ends import LINK_ROUTE

from isthmus_router.config import parse
from isthmus_router.core.roles import Role
from isthmus_router.linkroute.routing import LinkRouting
from isthmus_router.policy.enforcer import PolicyEnforcer

ROLES = (Role.NORMAL, Role.EDGE, Role.ROUTE_CONTAINER, Role.NORMAL, Role.INTER_ROUTER)
MOST_PEERS = 4
SHARED = (None, None, "balanced/a", "multicast/d", "b2.x")
"""Addresses that the peers of a conversation share."""
CALM_MESSAGES = 3
CONVERSATIONS_OF_A_ROUTER = 50
POLICIES_OF_4 = 2
POLICY = [
    ["policy", {"enableVhostPolicy": True, "defaultVhost": "$default"}],
    [
        "vhost",
        {
            "hostname": "$default",
            "allowUnknownUser": True,
            "groups": {
                "$default": {
                    "remoteHosts": "*",
                    "sources": "*",
                    "targets": "*",
                    "allowAnonymousSender": True,
                    "allowDynamicSource": True,
                    "allowWaypointLinks": True,
                }
            },
        },
    ],
]


class Talker(End):
    """One that sends the pieces of its conversation, each when the router has dealt with the one before."""

    def __init__(self, rig: Rig, name: str, role: Role, pieces: list[bytes]) -> None:
        super().__init__(rig, name, role)
        self._pieces = pieces[::-1]
        self._unsent = b""

    def _say(self) -> bool:
        if not self._unsent and self._pieces:
            self._unsent = self._pieces.pop()
        if not self._unsent:
            return False
        try:
            sent = self.socket.send(self._unsent)
        except OSError:  # the router has closed its end
            self._unsent, self._pieces = b"", []
            return False
        self._unsent = self._unsent[sent:]
        return True


class Errors(logging.Handler):
    """What the router could not deal with."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class Play:
    """A router, and two clients and a container that keep to the rules."""

    def __init__(self, *, compiled: bool, policy: bool) -> None:
        """`policy`: the router looks for the `user-id` of messages."""
        self.rig = Rig(compiled=compiled)
        if policy:
            self.rig.driver.policy = PolicyEnforcer(self.rig.core, parse(json.dumps(POLICY), "fuzz"))
        self.routing = LinkRouting(self.rig.core, lambda: 0.0, lambda *_: None)
        self.routing.configure([LINK_ROUTE])
        sender, self._receiver = (self.rig.connect(Role.NORMAL) for _ in range(2))
        self.rig.settle_down()
        self._out, self._back = sender.session.sender("calm"), self._receiver.session.receiver("calm")
        self._out.target.address = self._back.source.address = "balanced/calm"
        self._out.open()
        self._back.open()
        self._back.flow(1000)
        self.rig.settle_down()
        assert usable(self._out)
        assert usable(self._back)
        self.rig.peers.append(Container(self.rig))  # type: ignore[arg-type]
        self.rig.settle_down()
        self._calm: list[Peer | End] = list(self.rig.peers)

    def talk(self, seed: int) -> None:
        """One conversation."""
        chance = random.Random(seed)
        talkers: list[End] = []
        shared = chance.choice(SHARED)
        for index in range(chance.randint(1, MOST_PEERS)):
            role = chance.choice(ROLES)
            container = "shelf" if role is Role.ROUTE_CONTAINER else f"peer-{index}"
            conversation = Conversation(chance, edge=role is Role.EDGE, container=container, shared=shared)
            talkers.append(Talker(self.rig, f"talker-{index}", role, conversation.pieces()))
        self.rig.peers += talkers  # type: ignore[arg-type]
        self.rig.settle_down()
        if chance.random() < 0.3:
            self.rig.seconds_pass(chance.choice((1, 12)))
        self._others_go_on()
        for talker in talkers:
            talker.drop()
        self.rig.settle_down()
        self.rig.work_off()
        self.rig.peers[:] = self._calm
        self._others_go_on()
        left = {one.peer for one in self.rig.driver.connections.values()}
        assert left == {one.router_side.peer for one in self._calm}, f"connections are left: {left}"
        for link in (link for one in self.rig.core.connections.values() for link in one.links):
            assert not link.unsettled, f"deliveries are left on {link.name}"
            assert not link.parked, f"messages are left for {link.name}"

    def _others_go_on(self) -> None:
        payload = Message(body=b"calm").encode()
        sent: list[Any] = []
        for index in range(CALM_MESSAGES):
            sent.append(self._out.delivery(str(index)))
            self._out.send(payload)
            self._out.advance()
        self.rig.settle_down()
        arrived = self._receiver.deliveries.pop(self._back.name, [])
        assert len(arrived) == CALM_MESSAGES, f"{len(arrived)} messages of others have arrived"
        for delivery in arrived:
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
        self.rig.settle_down()
        assert [one.remote_state for one in sent] == [Delivery.ACCEPTED] * CALM_MESSAGES
        for one in sent:
            one.settle()
        self._back.flow(CALM_MESSAGES)


def cpu_seconds() -> float:
    """Of this process."""
    return time.process_time()


def run(
    first: int,
    conversations: int,
    seconds: float,
    *,
    compiled: bool | None,
    last: Path | None,
    most_megabytes: int,
) -> int:
    """Hold conversations until there were so many, or that much time has passed; the number of what was found."""
    found = 0
    end = time.monotonic() + seconds
    errors = Errors()
    logging.getLogger().addHandler(errors)
    play: Play | None = None
    seed = first
    while seed < first + conversations and time.monotonic() < end:
        if play is None or (seed - first) % CONVERSATIONS_OF_A_ROUTER == 0:
            if play is not None:
                play.rig.close()
                play = None
                gc.collect()
            router = seed // CONVERSATIONS_OF_A_ROUTER
            play = Play(
                compiled=bool(router % 2) if compiled is None else compiled, policy=router % 4 < POLICIES_OF_4
            )
        if last is not None:
            last.write_text(str(seed))
        problem = ""
        try:
            with nothing_left_to_collect():
                play.talk(seed)
        except Exception:
            problem = traceback.format_exc()
        if errors.records:
            problem += "\n".join(logging.Formatter().format(record) for record in errors.records)
            errors.records.clear()
        if problem:
            found += 1
            print(f"seed {seed}: {problem}", file=sys.stderr, flush=True)
            play = None
        seed += 1
    if play is not None:
        play.rig.close()
    peak = peak_megabytes()
    if peak > most_megabytes:
        found += 1
        print(f"seeds {first} to {seed - 1}: {peak} MB of memory", file=sys.stderr, flush=True)
    print(
        f"{seed - first} conversations, {found} problems, {cpu_seconds():.0f} s of CPU, {peak} MB", flush=True
    )
    return found


def peak_megabytes() -> int:
    """Of this program; the resource usage of a process also has that of the one that has started it."""
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(peak) // 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--conversations", type=int, default=10**9)
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first conversation; the next have the next"
    )
    parser.add_argument("--kernel", choices=("compiled", "python"), help="both in turns, unless one is named")
    parser.add_argument("--last", type=Path, help="the file that has the seed of the conversation under way")
    parser.add_argument("--most-megabytes", type=int, default=10**9, help="more memory is a problem")
    options = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    compiled = None if options.kernel is None else options.kernel == "compiled"
    found = run(
        options.seed,
        options.conversations,
        options.seconds,
        compiled=compiled,
        last=options.last,
        most_megabytes=options.most_megabytes,
    )
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
