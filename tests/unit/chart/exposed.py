"""What each kind of pod exposes to Prometheus, with every metric in it at least once."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import Iterator

from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.test_metrics import SITE, SNAPSHOT

from isthmus_flowlog.collector.metrics import Metrics
from isthmus_operator import metrics
from isthmus_router import metrics as router_metrics
from isthmus_router.gossip import health as gossip_metrics
from isthmus_router.gossip.server import GossipServer


def expositions() -> dict[str, bytes]:
    """By the name of the pods."""
    return {
        "isthmus-router": _router(),
        "isthmus-gossip-router": asyncio.run(_gossip_router()),
        "isthmus-flow-collector": Metrics().exposition(),
        "isthmus-operator": _operator(),
    }


def labels() -> dict[str, set[str]]:
    """Names of series, and the labels that they have of themselves."""
    found: dict[str, set[str]] = {}
    for text in expositions().values():
        for family in text_string_to_metric_families(text.decode()):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def names() -> Iterator[str]:
    """Of metrics of this project, as they are declared."""
    for text in expositions().values():
        for line in text.decode().splitlines():
            if line.startswith("# TYPE isthmus_") and "_created" not in line:
                yield line.split()[2]


def _router() -> bytes:
    assert SNAPSHOT.relay is not None
    member = SNAPSHOT.relay.member
    member = member._replace(relay=member.relay._replace(sites=(SITE._replace(round_trip=0.5),)))
    full = dataclasses.replace(
        SNAPSHOT,
        connectors={("edge", "open"): 1},
        auto_links={"active": 1},
        link_routes={"active": 1},
        listeners={"listening": 1},
        policy_denials={"connection": 1},
        failed_logins={"refused": 1},
        relay=dataclasses.replace(SNAPSHOT.relay, member=member),
    )
    return router_metrics.exposition(full)


async def _gossip_router() -> bytes:
    with socket.socket() as unused:
        return gossip_metrics.exposition(GossipServer(unused))


def _operator() -> bytes:
    metrics.RECONCILIATIONS.labels("ok")
    metrics.WRITES.labels("Secret", "apply")
    metrics.API_REQUESTS.labels("GET", "200")
    metrics.POLLS.labels("ok")
    metrics.OBJECTS.labels("Router", "True")
    metrics.CERTIFICATE_EXPIRY.labels("a", "b", "c")
    for gauge in (
        metrics.PROFILE_EXPIRY,
        metrics.PROFILE_REVOCATIONS_EXPIRY,
        metrics.PROFILE_ORDINAL,
        metrics.PROFILE_OLDEST,
        metrics.PROFILE_ROTATING,
    ):
        gauge.labels("a", "b")
    metrics.OMITTED.labels("a")
    metrics.ROTATIONS.labels("adopted")
    metrics.INFO.labels("1")
    return generate_latest(REGISTRY)
