"""A group in memory: members, a network with faults between them, a virtual clock; one seed decides everything.

A schedule is data: `(seconds, action, arguments ...)`, so that one that fails can be made shorter and kept as a test.
Members live at places (0, 1, ...); one that restarts at its place has its physical address, but is somebody else.

=====================  ==============================================================================================
start P                a member starts at place P, unless one lives there
leave P, crash P       it leaves in good order; it dies and its connections end
vanish P               it dies, and nobody is told: frames to its place are lost until somebody starts there
pause P SECONDS        it stands still; what happens to it meanwhile, happens to it afterwards
suspect P Q            P is told that Q may have failed
cut PLACES PLACES      nothing passes from the first ones to the second ones
heal                   everything passes again
disorder LOSS DUP MAX  that part of frames is lost, that part comes twice; delays are up to MAX seconds, in any order
=====================  ==============================================================================================
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from isthmus_router.groups.frames import Kind, decode_header, encode_frame
from isthmus_router.groups.identity import MemberId, MemberInfo, PhysicalAddress, member_id, short
from isthmus_router.groups.membership.membership import Membership
from isthmus_router.groups.membership.port import MembershipSettings
from isthmus_router.groups.views import View, ViewId

Action = tuple[Any, ...]
DELAY = (0.0002, 0.002)


class Found(NamedTuple):
    """An answer to discovery."""

    info: MemberInfo
    is_member: bool
    view_id: ViewId | None
    coordinator: MemberId | None


@dataclass
class Disorder:
    """What the network does to frames."""

    loss: float = 0.0
    duplicates: float = 0.0
    slowest: float = 0.0


class Node:
    """One member at a place; the port and the user of its membership."""

    def __init__(self, group: Group, place: int) -> None:
        self.group = group
        self.place = place
        random = Random(group.random.randbytes(16))
        address = PhysicalAddress("10.0.0.1", 5000 + place)
        self.info = MemberInfo(member_id(random.randbytes(16)), f"m{place}", (address,))
        self.id = self.info.id
        self.places: dict[MemberId, int] = {}
        """Where the members are that it knows."""
        self.views: list[tuple[float, View]] = []
        self.states_of: list[set[MemberId]] = []
        self.baselines: list[bytes] = []
        self.fresh_baseline = False
        self.left_at = math.inf
        self.leaving_at = math.inf
        self.paused_until = 0.0
        self.alive = True
        self.answers: list[Found] = []
        self.timer = math.inf
        self.due_again = 0
        self.membership = Membership(self.info, group.settings, self, self, random)

    # MemberPort
    def send(self, now: float, to: MemberId, kind: Kind, body: bytes) -> None:
        assert to != self.id
        self.group.sent[kind] = self.group.sent.get(kind, 0) + 1
        frame = encode_frame(kind, self.id, to, body)
        if to in self.places:
            self.group.send(self, to, self.places[to], frame)
        else:
            self.group.who_has(self, to, frame)

    def send_all(self, now: float, kind: Kind, body: bytes) -> None:
        view = self.membership.view
        for member in view.ids if view is not None else ():
            if member != self.id:
                self.send(now, member, kind, body)

    # MembershipUser
    def find(self, now: float, *, initial: bool) -> None:
        self.answers.clear()
        self.group.find(self)

    def known(self, now: float, infos: Sequence[MemberInfo]) -> None:
        for info in infos:
            for address in info.addresses[:1]:
                self.places[info.id] = address.port - 5000

    def state(self, now: float) -> bytes:
        return b"state of " + self.id

    def states(self, now: float, states: Mapping[MemberId, bytes]) -> None:
        assert all(state == b"state of " + member for member, state in states.items())
        self.states_of.append(set(states))

    def baseline(self, now: float) -> bytes:
        assert self.states_of, "states come before the baseline"
        return b"baseline of " + self.id

    def take_baseline(self, now: float, baseline: bytes) -> None:
        self.fresh_baseline = True

    def view_installed(self, now: float, view: View, left: tuple[MemberId, ...]) -> None:
        self.group.check_view(self, view, left)
        self.views.append((now, view))
        self.fresh_baseline = False

    def left(self, now: float) -> None:
        self.left_at = now
        self.group.end(self, told=True)


@dataclass
class Group:
    """All of it."""

    seed: int
    settings: MembershipSettings = field(default_factory=MembershipSettings)
    strict: bool = False
    """Nothing in the schedule can make a member look dead that lives: none is ever to be removed."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.now = 0.0
        self.nodes: list[Node] = []
        self.at: dict[int, Node] = {}
        self.sent: dict[Kind, int] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.vanished: set[int] = set()
        self.disorder = Disorder()
        self.installed: dict[ViewId, View] = {}
        self.predecessors: dict[ViewId, set[ViewId]] = {}
        self.arrivals: dict[tuple[int, int], float] = {}
        self._events: list[tuple[float, int, Node | None, Callable[[], None]]] = []
        self._numbers = itertools.count()

    # Time

    def after(self, delay: float, node: Node | None, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._numbers), node, event))

    def run(self, until: float, *, stop: Callable[[], bool] | None = None) -> None:
        """Let everything happen that happens until then, or until `stop` says so."""
        while self._events and self._events[0][0] <= until:
            if stop is not None and stop():
                return
            at, number, node, event = heapq.heappop(self._events)
            self.now = max(self.now, at)
            if node is None:
                event()
            elif node.alive:
                if self.now < node.paused_until:
                    heapq.heappush(self._events, (node.paused_until, number, node, event))
                else:
                    event()
                    self._arm(node)
        self.now = until

    def _arm(self, node: Node) -> None:
        deadline = node.membership.deadline
        if node.alive and deadline < math.inf and not self.now < node.timer <= max(deadline, self.now):
            node.timer = max(deadline, self.now + 1e-6)
            self.after(node.timer - self.now, node, lambda: self._time(node))

    def _time(self, node: Node) -> None:
        node.timer = math.inf
        if node.membership.deadline <= self.now:
            node.membership.on_time(self.now)
            node.due_again = node.due_again + 1 if node.membership.deadline <= self.now else 0
            assert node.due_again < 5, "what is due is done, or the driver spins"

    # Network

    def passes(self, source: int, target: int) -> bool:
        return (
            (source, target) not in self.cuts and source not in self.vanished and target not in self.vanished
        )

    def transfer(self, source: int, target: int, arrive: Callable[[], None]) -> None:
        disorder = self.disorder
        for _ in range(2 if self.random.random() < disorder.duplicates else 1):
            if not self.passes(source, target) or self.random.random() < disorder.loss:
                continue
            at = self.now + self.random.uniform(*DELAY)
            if disorder.slowest:
                at += self.random.uniform(0, disorder.slowest)
            else:
                at = max(at, self.arrivals.get((source, target), 0.0))
                self.arrivals[source, target] = at
            self.after(at - self.now, None, arrive)

    def to_node(self, place: int, event: Callable[[Node], None]) -> None:
        node = self.at.get(place)
        if node is not None:
            self.after(0, node, lambda: event(node))

    def send(self, source: Node, to: MemberId, place: int, frame: bytes) -> None:
        def arrive() -> None:
            node = self.at.get(place)
            if node is None:
                lost = source.membership.connection_lost
                self.transfer(
                    place,
                    source.place,
                    lambda: self.after(0, source, lambda: lost(self.now, to, refused=True)),
                )
            elif node.id == to:
                self.after(0, node, lambda: self.receive(node, source, frame))

        self.transfer(source.place, place, arrive)

    def who_has(self, source: Node, to: MemberId, frame: bytes) -> None:
        """The resolver's part: the one that is asked for answers, and gets what waits for it."""

        def answer(node: Node) -> None:
            self.transfer(node.place, source.place, lambda: self.send(source, to, node.place, frame))

        for node in self.at.values():
            if node.id == to:
                self.transfer(
                    source.place, node.place, lambda node=node: self.after(0, node, lambda: answer(node))
                )

    def receive(self, node: Node, source: Node, frame: bytes) -> None:
        kind, sender, _ = decode_header(frame)
        node.places.setdefault(sender, source.place)
        node.membership.heard(self.now, sender)
        node.membership.on_frame(self.now, kind, sender, frame)

    def find(self, node: Node) -> None:
        def ask(other: Node) -> None:
            membership = other.membership
            if membership.leaving:
                return
            view = membership.view
            answer = Found(
                other.info,
                view is not None,
                view.id if view is not None else None,
                view.ids[0] if view is not None else None,
            )
            self.transfer(
                other.place, node.place, lambda: self.after(0, node, lambda: self.found(node, answer))
            )

        for place in list(self.at):
            if place != node.place:
                self.transfer(node.place, place, lambda place=place: self.to_node(place, ask))

    def found(self, node: Node, answer: Found) -> None:
        node.known(self.now, (answer.info,))
        node.answers = [other for other in node.answers if other.info.id != answer.info.id] + [answer]
        node.membership.found(self.now, node.answers)

    # Actions

    def start(self, place: int) -> None:
        if place in self.at:
            return
        self.vanished.discard(place)
        node = self.at[place] = Node(self, place)
        self.nodes.append(node)
        node.membership.join(self.now)
        self._arm(node)

    def end(self, node: Node, *, told: bool) -> None:
        node.alive = False
        del self.at[node.place]
        if not told:
            self.vanished.add(node.place)
            return
        for other in self.at.values():
            if node.id in other.places:
                lost = other.membership.connection_lost
                self.transfer(
                    node.place,
                    other.place,
                    lambda other=other, lost=lost: self.after(
                        0, other, lambda: lost(self.now, node.id, refused=False)
                    ),
                )

    def do(self, action: str, *arguments: Any) -> None:
        node = self.at.get(arguments[0]) if arguments and isinstance(arguments[0], int) else None
        match action:
            case "start":
                self.start(arguments[0])
            case "crash" | "vanish" if node is not None:
                self.end(node, told=action == "crash")
            case "leave" if node is not None:
                node.leaving_at = min(self.now, node.leaving_at)
                self.after(0, node, lambda: node.membership.leave(self.now))
            case "pause" if node is not None:
                node.paused_until = self.now + arguments[1]
            case "suspect" if node is not None and arguments[1] in self.at:
                suspect = self.at[arguments[1]].id
                self.after(0, node, lambda: node.membership.suspect(self.now, suspect))
            case "cut":
                self.cuts |= set(itertools.product(arguments[0], arguments[1]))
            case "heal":
                self.cuts.clear()
            case "disorder":
                self.disorder = Disorder(*arguments)
            case _:
                pass

    def play(self, schedule: Sequence[Action]) -> None:
        """All of a schedule; then nothing is disturbed any more for as long as it takes to repair everything."""
        for at, action, *arguments in sorted(schedule, key=lambda entry: entry[0]):
            self.run(at)
            self.do(action, *arguments)
        self.run(max((entry[0] for entry in schedule), default=0.0) + 0.01)
        self.do("heal")
        self.disorder = Disorder()
        self.run(self.now + 30)
        self.check_quiescent()

    # Properties

    def check_view(self, node: Node, view: View, left: tuple[MemberId, ...]) -> None:
        """M1 to M5, M8, at every view that is installed."""
        assert node.id in view, f"M1: {node.info.name} installs {view} without itself"
        assert self.installed.setdefault(view.id, view) == view, f"M3: {view} and {self.installed[view.id]}"
        assert view.id.coordinator == view.ids[0], "M4: who made it is its first member"
        if not node.views:
            assert node.fresh_baseline or view.ids == (node.id,), "joiners get a baseline"
            return
        old = node.views[-1][1]
        assert view.id > old.id, f"M2: {view} after {old}"
        assert set(left) == set(old.ids) - set(view.ids)
        new = set(view.ids) - set(old.ids)
        if view.merged:
            assert list(view.merged) == sorted(set(view.merged)), "M7: each part once"
            assert old.id in view.merged, f"M7: {view} was not told to come from {old}"
        else:
            stayed = [member for member in view.ids if member in old]
            assert stayed == [member for member in old.ids if member in view], "M4: order"
            assert set(view.ids[len(stayed) :]) == new, "M4: joiners at the end"
            predecessors = self.predecessors.setdefault(view.id, {old.id})
            assert predecessors == {old.id}, f"survivors came to {view} from {predecessors} and {old}"
        by_id = {other.id: other for other in self.nodes}
        for member in new:
            assert by_id[member].left_at + 2 > self.now, f"M8: {by_id[member].info.name} is merged back"
        if self.strict:
            for member in left:
                other = by_id[member]
                assert not other.alive or other.leaving_at <= self.now, f"M5: {other.info.name} is removed"

    def check_quiescent(self) -> None:
        """M5, M7, M9, when everything has settled."""
        alive = sorted(node.id for node in self.at.values())
        views = {node.membership.view for node in self.at.values()}
        if not alive:
            return
        assert len(views) == 1, f"M7: {[str(node.membership.view) for node in self.at.values()]}"
        (view,) = views
        assert view is not None
        assert sorted(view.ids) == alive, f"M7, M5: {view} but {[short(member) for member in alive]} live"
        survived = {v.id for node in self.at.values() for _, v in node.views}
        assert view.id == max(survived), "M7: above all before"
