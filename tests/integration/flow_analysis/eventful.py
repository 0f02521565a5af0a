"""A log in which something of everything happens, made up by chance: rotations, restarts, losses, relays, waiting."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from tests.integration.flow_analysis.made import Row, World, at

START, END = at(8), at(11)
DAYS = 3
"""Before, on which less flowed."""
_CLIENTS = 8
_SECOND = 1_000_000


def eventful(seed: int) -> World:
    """From `START` until `END`, and of the same hours of the days before only deliveries."""
    chosen, world = random.Random(seed), World()
    for day in range(1, DAYS + 1):
        _traffic(world, chosen, START - timedelta(days=day), 10)
    _traffic(world, chosen, START, 100)
    _things(world, chosen)
    _rotation(world, chosen)
    _changes(world, chosen)
    _relay(world, chosen)
    return world


def _client(number: int) -> Row:
    return {
        "source": f"r{number % 3}:0",
        "router": f"r{number % 3}",
        # A collector that has not heard of a router yet does not know where it is.
        "site": ("east", "west", None)[number % 3],
        "direction": ("in", "out")[number % 2],
        "address": f"address-{number % 4}",
        "container": f"client-{number}",
        "user": "alice",
        "host": f"10.0.0.{number}",
        "endpoint": "amqps",
        "connection": f"c{number}",
        "link": f"l{number}",
        "link_name": f"link-{number}",
    }


def _traffic(world: World, chosen: random.Random, start: datetime, most: int) -> None:
    for minute in range(0, 180, 3):
        for number in range(_CLIENTS):
            count = chosen.randrange(1, most)
            world.flowed(
                start + timedelta(minutes=minute, seconds=10 + number),
                tls_ordinal=1 if minute < 60 + number else 2,
                deliveries=count,
                octets=count * chosen.randrange(10, 1000),
                accepted=count,
                released=chosen.randrange(3),
                delayed_1_second=chosen.randrange(2),
                no_credit_us=chosen.choice((0, 0, 10 * _SECOND)),
                unsettled=chosen.randrange(3),
                oldest_unsettled_us=chosen.choice((0, 0, 20 * _SECOND)),
                latencies={chosen.randrange(200): count},
                sizes={chosen.randrange(200): count},
                **_client(number),
            )
        between: Row = {"role": "inter-router", "container": "r1", "connection": "t1", "endpoint": "to-r1"}
        world.flowed(
            start + timedelta(minutes=minute, seconds=30),
            deliveries=chosen.randrange(50),
            octets=chosen.randrange(10_000),
            source="r0:0",
            router="r0",
            direction="out",
            **between,
        )


def _things(world: World, chosen: random.Random) -> None:
    for number in range(3):
        run: Row = {
            "source": f"r{number}:0",
            "router": f"r{number}",
            "site": ("east", "west", "north")[number],
        }
        for minute in (1, 70, 150):
            heard = START + timedelta(minutes=minute)
            world.told(heard, "ROUTER", run["source"], start_time=at(7), records_missed=number, **run)
        world.told(at(8), "LISTENER", f"{run['source']}/amqps", name="amqps", ssl_profile="net", **run)
    world.told(at(10, 40), "ROUTER", "r2:0", source="r2:0", router="r2", site="north", lost=True)
    link: Row = {"source": "r0:0", "router": "r0", "role": "inter-router", "name": "to-r1", "container": "r1"}
    world.told(
        at(8), "LINK", "k0", cost=1, status="up", up_time=at(7), down_count=0, ssl_profile="net", **link
    )
    for number in range(_CLIENTS):
        client = _client(number)
        of: Row = {key: client[key] for key in ("source", "router", "site")}
        began = START + timedelta(seconds=chosen.randrange(600))
        peer = {key: client[key] for key in ("container", "user", "host")}
        told: Row = {"parent": f"{of['source']}/amqps", "role": "normal", "direction": "incoming", **peer}
        end = {"end_time": at(10, 30 + number)} if number % 3 == 0 else {}
        world.told(began, "CONNECTION", f"c{number}", start_time=began, tls_ordinal=1, **told, **of)
        world.told(at(10, 50), "CONNECTION", f"c{number}", tls_ordinal=1, **end, **told, **of)
        attached: Row = {
            "parent": f"c{number}",
            "direction": client["direction"],
            "address": client["address"],
        }
        world.told(
            began, "AMQP_LINK", f"l{number}", start_time=began, name=f"link-{number}", **attached, **of
        )
        world.told(at(10, 51), "AMQP_LINK", f"l{number}", deliveries=900, **end, **attached, **of)


def _rotation(world: World, chosen: random.Random) -> None:
    for number in range(3):
        of: Row = {"source": f"r{number}:0", "router": f"r{number}"}
        raised = at(9, 0, chosen.randrange(60))
        world.happened(
            raised, "UPGRADE_EVENT", "ordinal-raised", name="net", tls_ordinal=2, ordinal_before=1, **of
        )
    upgraded: Row = {"source": "r0:0", "router": "r0", "name": "to-r1", "tls_ordinal": 2}
    world.happened(at(9, 2), "UPGRADE_EVENT", "connection-upgraded", **upgraded)


def _changes(world: World, chosen: random.Random) -> None:
    for _ in range(12):
        moment = START + timedelta(seconds=chosen.randrange(3 * 3600))
        event = chosen.choice(("neighbour-lost", "neighbour-up", "paths-computed", "router-removed"))
        router = f"r{chosen.randrange(3)}"
        world.happened(moment, "TOPOLOGY_EVENT", event, source=f"{router}:0", router=router)


def _relay(world: World, chosen: random.Random) -> None:
    for minute in range(0, 180, 3):
        for here, there, source in (("east", "west", "r0:0"), ("west", "east", "r1:0")):
            world.went(
                START + timedelta(minutes=minute, seconds=20),
                source=source,
                router=source[:2],
                relay_site=here,
                remote_site=there,
                sent=chosen.randrange(20),
                received=chosen.randrange(20),
                gaps=chosen.randrange(2),
                lag_messages=chosen.randrange(9),
                lag_us=chosen.randrange(9) * _SECOND,
                state=chosen.choice(("up", "up", "suspect")),
            )
    member: Row = {"relay_group": "g", "relay_site": "east"}
    world.happened(at(9, 30), "RELAY_EVENT", "site-unreachable", subject="west", **member)
