"""The memory that a rendering takes, about.

A small specification can have a large rendering: that of 32 replicas has 500 connectors. So the operator estimates the
memory before it renders, and counts while it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..model import NamespaceModel
from ..specs import text_bytes

MAX_SECRET_BYTES = 1024 * 1024
"""Of the contents of a Secret; the API server refuses more."""
CONFIGURATION_COPIES = 3
"""A configuration is in base64, and so are the files that the routers have been given."""
CONTENT_COPIES = 3
"""The content of a Secret is in base64, and as bytes."""
OBJECTS_BYTES = 16 * 1024
"""Of the objects of one resource, at least."""
REPLICA_BYTES = 2048
EDGE_BYTES = 384
"""Of a replica of an edge Router. They share what they have."""
CONNECTOR_BYTES = 448
"""Of a connector of a replica, and of a connection to another replica."""
FILE_BYTES = 2048
"""Of the configuration file of a replica without connectors, at least."""
SECTION_BYTES = 256
"""Of a connector in it, at least."""
GROWTH = 4
"""If a rendering takes more memory than estimated, so many times as much is assumed."""


class LargeError(Exception):
    """A rendering takes more memory than it may. `size` is an estimate in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the rendering takes about {size} bytes")
        self.size = size


def planned_bytes(model: NamespaceModel) -> int:
    """Of the model with the content of Secrets, and of the plan that is made of it."""
    contents = sum(len(value) for secret in model.secrets.values() for value in secret.data.values())
    contents += sum(ledger.size for ledger in model.ledgers.values())
    total = model.spec_bytes + CONTENT_COPIES * contents
    for connector in model.connectors.values():
        source = model.routers.get(connector.spec.from_.router_ref.name)
        reference = connector.spec.to.router_ref
        peer = model.routers.get(reference.name) if reference is not None else None
        if source is not None:
            # One for each replica of the other Router to which a replica connects, and each one has two.
            spread = min(source.spec.replicas, peer.spec.replicas) if peer is not None else 1
            total += 2 * spread * CONNECTOR_BYTES
    for router in model.routers.values():
        replicas = router.spec.replicas
        total += replicas * (
            REPLICA_BYTES + CONNECTOR_BYTES if router.spec.mode == "interior" else EDGE_BYTES
        )
    return total


def least_bytes(model: NamespaceModel, most: int) -> int:
    """Of the objects that are rendered, at least. `most`: of all configurations together."""
    outgoing = Counter(item.spec.from_.router_ref.name for item in model.connectors.values())
    held = refused = 0
    for router in model.routers.values():
        files = router.spec.replicas if router.spec.mode == "interior" else min(1, router.spec.replicas)
        sections = files * outgoing[router.name] + files * (files - 1) // 2
        size = files * FILE_BYTES + sections * SECTION_BYTES
        if size > MAX_SECRET_BYTES:
            refused = MAX_SECRET_BYTES
        else:
            held += size
    owners = (model.routers, model.gossip_routers, model.flow_logs, model.flow_analyses)
    return OBJECTS_BYTES * sum(map(len, owners)) + CONFIGURATION_COPIES * (min(held, most) + refused)


def objects_bytes(objects: Iterable[Mapping[str, Any]]) -> int:
    """Of rendered objects. Secrets are counted apart from them, with the configurations."""
    return sum(text_bytes(item) for item in objects if item["kind"] != "Secret")
