"""Random conversations that keep to the rules, with small windows: afterwards every session lets messages through.

Peers begin and end sessions, attach and detach links, send messages of many frames and abort some, drain links and take
credit back, let little in, stop reading, and answer late. The router closes links.
"""

from __future__ import annotations

import random

import pytest
from cproton_ffi import lib
from tests.unit.amqp.player import Player, Session
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import LINK_ROUTE
from tests.unit.amqp.test_detached import FORCED, second_passes

from isthmus_router.core.roles import Role
from isthmus_router.linkroute.routing import LinkRouting

PLAYS, STEPS = 80, 120
SIZES = (20, 3000, 80_000, 200_000)
ADDRESSES = ("closest/a", "multicast/b", "b2.c", "b2.c")


class Play:
    """Two clients and a container at one router."""

    def __init__(self, rig: Rig, number: int) -> None:
        self.rig = rig
        self.chance = random.Random(number)
        names = {"first": Role.NORMAL, "second": Role.NORMAL, "shelf": Role.ROUTE_CONTAINER}
        self.peers = [Player(rig, name, role, self.chance) for name, role in names.items()]
        self.clients = self.peers[:2]
        self.answers_detaches = self.chance.random() < 0.5
        self.move()

    def move(self, rounds: int = 2000) -> None:
        """Until nothing moves any more, or for so many rounds."""
        idle = 0
        while rounds and idle < 3:
            rounds -= 1
            moved = [peer.turn() for peer in self.peers]
            self.rig.driver.turn()
            while self.rig.driver._jobs:
                self.rig.driver._work()
            idle = 0 if any(moved) else idle + 1

    def step(self) -> None:
        chance, peer = self.chance, self.chance.choice(self.peers)
        session = chance.choice([one for one in peer.sessions.values() if one.is_begun] or [Session(0, 0)])
        links = [link for link in peer.all_links() if link.session is session]
        senders = [link for link in links if peer.can_send(link)]
        receivers = [link for link in links if not link.sender]
        what = chance.randrange(16)
        if what < 5 and senders:
            link = chance.choice(senders)
            for _ in range(chance.choice((1, 5, 20))):
                if peer.can_send(link):
                    peer.send(link, chance.choice(SIZES), abort=bool(link.left) and chance.random() < 0.1)
        elif what < 7 and receivers:
            peer.give(chance.choice(receivers), chance.choice((0, 1, 5)), drain=chance.random() < 0.3)
        elif what == 7 and links:
            peer.leave(chance.choice(links))
        elif what == 13:
            for link in self.peers[2].all_links()[:1]:
                self.peers[2].leave(link)
        elif what == 8 and (owed := chance.choice((peer.attaches, peer.attaches, peer.detaches))):
            owed.pop(0)()
        elif what == 9:
            for client in self.clients:
                client.is_paused = chance.random() < 0.6
        elif what == 10 and peer.router_side.links:
            link_here = chance.choice(list(peer.router_side.links.values()))
            if not link_here.routed:
                self.rig.driver.detach_link(link_here, FORCED)
                self.rig.driver.flush()
        elif what == 11 and peer in self.clients:
            channel = chance.randrange(3)
            if channel not in peer.sessions:
                peer.begin(channel)
            elif peer.sessions[channel].is_begun and chance.random() < 0.3:
                peer.leave_session(peer.sessions[channel])
        elif what == 12:
            second_passes(self.rig)
        elif peer in self.clients and session.is_begun and len(session.links) < 6:
            peer.add(session, chance.choice(ADDRESSES), sender=chance.random() < 0.6)
        if session.is_begun and peer.has(session):
            peer.allow(session, chance.choice((0, 0, 1, 3)))
            if chance.random() < 0.3:
                peer.settle(session)
        self.move(chance.choice((0, 1, 2000)))

    def be_honest(self) -> None:
        """All read, let everything in and end their messages; they need not answer detaches."""
        for _ in range(2000):
            for peer in self.peers:
                peer.is_paused = False
                for owed in (peer.attaches, peer.detaches if self.answers_detaches else []):
                    while owed:
                        owed.pop()()
                for session in peer.sessions.values():
                    if session.is_begun:
                        peer.allow(session, 100)
                        peer.settle(session)
                for link in peer.all_links():
                    if not link.sender:
                        peer.give(link, 5)
                    while link.left and peer.can_send(link):
                        peer.send(link, 0)
            self.move()
            if not any(link.left for peer in self.peers for link in peer.all_links()):
                return
        raise AssertionError("the window of a session stays closed")

    def exchange(self, peer: Player, session: Session, address: str) -> None:
        receiver, sender = (peer.add(session, address, sender=one) for one in (False, True))
        self.be_honest()
        for size in (SIZES[0], SIZES[-1]):
            assert peer.can_send(sender), "a sender has no credit, or no window"
            peer.send(sender, size)
            self.be_honest()
        assert receiver.count == 2
        for link in (receiver, sender):
            peer.leave(link)
        self.be_honest()
        assert not {receiver, sender}.intersection(session.gone)


@pytest.mark.parametrize("part", range(2))
def test_every_session_lets_messages_through_after_random_conversations(rig: Rig, part: int) -> None:
    LinkRouting(rig.core, lambda: 0.0, lambda *_: None).configure([LINK_ROUTE])
    for number in range(part * PLAYS, (part + 1) * PLAYS):
        play = Play(rig, number)
        for _ in range(STEPS):
            play.step()
        play.be_honest()
        second_passes(rig)
        for peer in play.clients:
            peer.begin(5)
            play.move()
            for session in list(peer.sessions.values()):
                play.exchange(peer, session, f"closest/{number}")
            for link in peer.router_side.links.values():
                assert link.routed or link.incoming or lib.pn_link_credit(link.io) == 5
            for session in list(peer.sessions.values()):
                peer.leave_session(session)
        play.be_honest()
        for peer in play.clients:
            assert not peer.theirs, "a session is not ended"
            assert not peer.router_side.closed
        for peer in play.peers:
            peer.drop()
