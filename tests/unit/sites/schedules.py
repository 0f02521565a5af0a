"""Random faults for sites in a world: made from a seed, carried out, and made shorter when something is not true."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.unit.sites import properties
from tests.unit.sites.sites import Net, Node, Trap
from tests.unit.sites.world import World

from isthmus_router.groups.frames import Kind as Kinds
from isthmus_router.groups.identity import PhysicalAddress
from isthmus_router.sites.settings import MemberSettings

SETTLE_SECONDS = 60.0
AT_ONCE = 60
"""Messages of a sender without end."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is done at a time; `member` and `site` are names."""

    at: float
    act: str
    who: str = ""
    other: str = ""
    value: float = 0.0

    def __str__(self) -> str:
        return f"Step({self.at:.4f}, {self.act!r}, {self.who!r}, {self.other!r}, {self.value:.4f})"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of schedule."""

    sites: int = 2
    members: tuple[int, int] = (1, 3)
    faults: tuple[str, ...] = ("crash", "restart", "leave", "pause")
    most_faults: int = 4
    gaps_allowed: bool = False
    """More than one member may be lost at once."""
    loss: float = 0.0
    jitter: float = 0.0
    disorder: float = 0.0
    duplicates: float = 0.0
    relays: int = 1
    lossy_bridge: bool = False
    apart: float = 0.0
    """Least seconds between two faults."""
    seconds: float = 8.0
    messages: int = 60
    """Most publications of a sender."""
    replies: int = 20
    """Most messages to one member."""
    discovery: str = "hosts"
    skewed: bool = False
    buffer: int = 0
    """Messages that are kept for other sites; senders publish for some seconds whenever there is room. 0: the default,
    and what they publish is little."""


POINTS = (
    *(
        f"{when} bridge {kind}"
        for when in ("before", "after")
        for kind in ("BATCH", "ACK", "HELLO_ACK", "START")
    ),
    *(
        f"{when} {kind}"
        for when in ("before", "after")
        for kind in ("BATCH", "POSITIONS", "SITE_ACKS", "STABLE", "SITES", "UNICAST", "UNICAST_ACK", "REPAIR")
    ),
    *(f"{when} {kind}" for when in ("before", "after") for kind in ("PROPOSE", "AGREE", "INSTALL", "MERGE")),
)
"""Where a member may be crashed."""

NAMES = ("nyc", "sfo", "lon", "tok")


def make(kind: Kind, seed: int) -> tuple[dict[str, int], list[Step]]:
    """Sizes of sites, and what is done."""
    rng = random.Random(seed)
    sizes = {NAMES[number]: rng.randint(*kind.members) for number in range(kind.sites)}
    names = [f"{site}{number}" for site, size in sizes.items() for number in range(size)]
    steps = []
    for _ in range(rng.randint(1, 4)):
        sender = rng.choice(names)
        at, end = rng.uniform(0.0, kind.seconds / 2), rng.uniform(kind.seconds / 2, kind.seconds)
        if kind.buffer:
            steps.append(Step(at, "flood", sender, value=min(end - at, 2.0)))
            continue
        pace = rng.choice((0.003, 0.02, 0.1))
        for _ in range(kind.messages):
            steps.append(Step(at, "publish", sender, value=rng.choice((1, 1, 1, 5, 40))))
            at += rng.expovariate(1 / pace)
            if at > end:
                break
    for _ in range(rng.randint(0, kind.replies)):
        who, other = rng.choice(names), rng.choice(names)
        steps.append(Step(rng.uniform(0.0, kind.seconds), "reply", who, other))
    at = 0.0
    for _ in range(rng.randint(1, kind.most_faults)):
        at += kind.apart + rng.uniform(0.0, kind.seconds / kind.most_faults)
        act = rng.choice(kind.faults)
        who, other = rng.choice(names), rng.choice(list(sizes))
        value = rng.choice((0.05, 0.3, 1.0, 4.0))
        if act == "crash at":
            who, other, value = rng.choice((who, *sizes)), rng.choice(POINTS), rng.choice((1, 1, 2, 3, 7))
        steps.append(Step(at, act, who, other, value))
    return sizes, sorted(steps, key=lambda step: step.at)


class Run:
    """A schedule being carried out."""

    def __init__(self, kind: Kind, sizes: dict[str, int], steps: Sequence[Step], seed: int) -> None:
        self.kind = kind
        self.steps = steps
        world = World(seed)
        world.default.jitter = kind.jitter
        self.net = Net(
            world,
            sizes,
            relays=kind.relays,
            lossy_bridge=kind.lossy_bridge,
            discovery=kind.discovery,
            skewed=kind.skewed,
            change=self._change,
        )
        self.net.watched.append(properties.queues_bounded)

    def _change(self, settings: MemberSettings) -> MemberSettings:
        if not self.kind.buffer:
            return settings
        return replace(settings, relay=replace(settings.relay, buffer_messages=self.kind.buffer))

    def go(self) -> None:
        """Raises AssertionError for what is not true at the end."""
        net, world, kind = self.net, self.net.world, self.kind
        net.start_all()
        for name in ("loss", "disorder", "duplicates"):
            setattr(world.default, name, getattr(kind, name))
        start = world.now
        for step in self.steps:
            world.at(start + step.at, lambda step=step: self._do(step))
        world.run(max((step.at for step in self.steps), default=0.0) + 5.0)
        net.traps.clear()
        finish(net, gaps_allowed=kind.gaps_allowed)

    def _do(self, step: Step) -> None:
        net, world = self.net, self.net.world
        node = next((node for node in net.alive if node.name == step.who), None)
        match step.act:
            case "publish":
                if node is not None:
                    node.publish(int(step.value))
            case "flood":
                self._flood(step.who, world.now + step.value)
            case "crash":
                if node is not None and self._may_lose(node):
                    net.crash(node)
                    world.after(2.0 + step.value, lambda: self._again(step.who))
            case "restart":
                if node is not None and self._may_lose(node):
                    net.crash(node)
                    world.after(step.value / 10, lambda: self._again(step.who))
            case "crash relay":
                nodes = net.of(step.other)
                if nodes and self._may_lose(nodes[0]):
                    name = nodes[0].name
                    net.crash(nodes[0])
                    world.after(2.0 + step.value, lambda: self._again(name))
            case "leave":
                if node is not None and self._may_lose(node):
                    net.leave(node)
                    world.after(2.0 + step.value, lambda: self._again(step.who))
            case "reply":
                other = next((each for each in net.alive if each.name == step.other), None)
                if node is not None and other is not None:
                    node.reply(other)
            case "crash at":
                net.traps.append(Trap(self._is(step.who), step.other, int(step.value), self._spring))
            case "restart site":
                for each in net.of(step.other):
                    net.crash(each)
                    world.after(step.value, lambda name=each.name: self._again(name))
            case "garbage":
                if node is not None:
                    self._garbage(node)
            case "pause":
                if node is not None:
                    world.pause(node.process, step.value)
            case "cut bridge":
                others = [site for site in net.sizes if site != step.other]
                world.cut([step.other], others)
                world.after(step.value, world.heal)
            case "cut one way":
                others = [site for site in net.sizes if site != step.other]
                world.cut([step.other], others, both=False)
                world.after(step.value, world.heal)
            case "cut member":
                if node is not None:
                    for other in net.alive:
                        if other is not node:
                            world.cut([node.process.host.name], [other.process.host.name])
                    world.after(step.value, world.heal)
            case _:
                raise AssertionError(step.act)

    def _flood(self, who: str, until: float) -> None:
        for node in self.net.alive:
            if node.name == who and node.member.room > 0 and not node.outbox:
                node.publish(AT_ONCE)
        if self.net.world.now < until:
            self.net.world.after(0.005, lambda: self._flood(who, until))

    def _may_lose(self, node: Node) -> bool:
        """A single loss at a time is what the promise is about: the others must have got over the last one."""
        return self.kind.gaps_allowed or (len(self.net.of(node.site)) > 1 and self.net.is_settled())

    def _is(self, who: str) -> Callable[[Node], bool]:
        """Whether a node is meant: by its name, or that of its site while it is the relay."""
        return lambda node: node.name == who or (node.site == who and node.member.relay.is_relay)

    def _spring(self, node: Node) -> None:
        if self._may_lose(node):
            self.net.crash(node)
            self.net.world.after(2.5, lambda: self._again(node.name))

    def _garbage(self, node: Node) -> None:
        """To its ports, from somebody who is no member."""
        rng, now = self.net.world.random, self.net.world.now
        stranger = PhysicalAddress("10.9.9.9", 9)
        for _ in range(20):
            kind = rng.choice(list(Kinds))
            node.on_frame(now, stranger, rng.randbytes(rng.choice((0, 1, 20, 33, 40, 200))))
            node.on_frame(now, stranger, bytes((kind,)) + rng.randbytes(16) + bytes(16) + rng.randbytes(60))
            node.bridge_frame(now, -999, rng.randbytes(50))
            for session in list(node.process.sessions):
                node.bridge_frame(now, session, bytes((rng.randrange(40),)) + rng.randbytes(rng.randrange(9)))

    def _again(self, name: str) -> None:
        if not any(node.name == name for node in self.net.alive):
            self.net.start(name)


def finish(net: Net, *, gaps_allowed: bool = False) -> None:
    """Everything is mended and everybody back, says something, and all is true that must be. Raises AssertionError."""
    world = net.world
    for name in sorted({node.name for node in net.nodes} - {node.name for node in net.alive}):
        net.start(name)
    world.default.loss = world.default.disorder = world.default.duplicates = 0.0
    world.heal()
    assert net.settled(SETTLE_SECONDS), f"not settled {net.describe()}"
    for node in net.alive:
        node.publish()
    end = world.now + SETTLE_SECONDS
    while _is_violated(net, gaps_allowed=gaps_allowed) and world.now < end:
        world.run(0.5)
    world.run(3.0)
    properties.everything(net, gaps_allowed=gaps_allowed)


def _is_violated(net: Net, *, gaps_allowed: bool) -> bool:
    try:
        properties.everything(net, gaps_allowed=gaps_allowed)
    except AssertionError:
        return True
    return False


def check(kind: Kind, seed: int) -> None:
    """One schedule. Raises AssertionError with the shortest one that fails like it."""
    sizes, steps = make(kind, seed)
    error = failure(kind, sizes, steps, seed)
    if error is None:
        return
    steps = shrink(kind, sizes, steps, seed)
    shown = "\n".join(f"    {step}," for step in steps)
    raise AssertionError(
        f"seed {seed}: {failure(kind, sizes, steps, seed)}\nfails, too: {kind}, {sizes}, [\n{shown}\n], {seed}\n"
        f"at first: {error}"
    )


def failure(kind: Kind, sizes: dict[str, int], steps: Sequence[Step], seed: int) -> str | None:
    """What is not true; None: all is."""
    try:
        Run(kind, sizes, steps, seed).go()
    except AssertionError as error:
        return str(error) or repr(error)
    return None


def shrink(kind: Kind, sizes: dict[str, int], steps: list[Step], seed: int, most: int = 150) -> list[Step]:
    """Leave out what is not needed to fail."""
    tries = 0
    part = len(steps) // 2
    while part and tries < most:
        at = 0
        while at < len(steps) and tries < most:
            shorter = steps[:at] + steps[at + part :]
            tries += 1
            if failure(kind, sizes, shorter, seed) is not None:
                steps = shorter
            else:
                at += part
        part //= 2
    return steps
