"""Senders of every kind, room that comes and goes: all is published once, in order, and accepted when it is safe."""

from __future__ import annotations

import random
from typing import Any

import pytest
from proton import Delivery, Message
from tests.unit.amqp.rig import Rig
from tests.unit.sites.loopback import Client, LoopbackSite, member_of

from isthmus_router.core.roles import Role
from isthmus_router.sites import face as face_module

ADDRESSES = ("relay/trades", "orders/eu")
BOUND = 3


def settle_down(rig: Rig, site: LoopbackSite) -> None:
    """With all further steps of what is published."""
    rig.settle_down()
    while site.timers:
        site.pass_time(0.0)
        rig.driver.flush()
        rig.settle_down()


@pytest.mark.parametrize("seed", range(30))
def test_any_order(rig: Rig, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(face_module, "MOST_PENDING", BOUND)
    chance = random.Random(seed)
    site, face = member_of(rig, addresses=("orders/#",))
    senders: list[tuple[Client, Any, str, bool]] = []
    for number, role in enumerate((Role.NORMAL, Role.NORMAL, Role.EDGE)):
        client = Client(rig, f"c{number}", role)
        address = chance.choice(ADDRESSES)
        targeted = chance.random() < 0.6
        senders.append((client, client.sender(address if targeted else None), address, targeted))
    sent: dict[str, list[str]] = {client.container: [] for client, *_ in senders}
    unsettled: dict[str, Delivery] = {}
    for step in range(200):
        action = chance.random()
        if action < 0.6:
            client, link, address, targeted = chance.choice(senders)
            if link.credit > 0:
                text = f"{client.container} {step}"
                settled = chance.random() < 0.4
                delivery = client.send(
                    link, Message(address=None if targeted else address, body=text), settled=settled
                )
                sent[client.container].append(text)
                if not settled:
                    unsettled[text] = delivery
        elif action < 0.68:
            site.room = 0
        elif action < 0.71:
            site.room = 1
            face.room_changed()
            rig.driver.flush()
        elif action < 0.9:
            settle_down(rig, site)
            published = set(site.texts())
            links = [link for connection in rig.core.connections.values() for link in connection.links]
            waiting = sum(link.deliveries for link in links) - len(published)
            assert waiting == 0 if site.room else waiting < BOUND + len(senders)
            accepted = {text for text, delivery in unsettled.items() if delivery.remote_state}
            assert accepted <= published
        else:
            site.protect()
            rig.driver.flush()
    site.room = 1
    for _ in range(3):
        face.room_changed()
        rig.driver.flush()
        settle_down(rig, site)
        site.protect()
        rig.driver.flush()
    rig.settle_down()
    assert all(sent.values())
    for name, texts in sent.items():
        assert [text for text in site.texts() if text.startswith(name)] == texts
    assert {delivery.remote_state for delivery in unsettled.values()} <= {Delivery.ACCEPTED}
    assert not any(
        link.unsettled for connection in rig.core.connections.values() for link in connection.links
    )
    assert not rig.driver.forwarder.inside.held
    assert max(len(messages) for messages, _ in site.published) <= BOUND
