"""A status that was stored under another schema concerns its resource alone, and is replaced."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.operator import test_large_namespaces
from tests.unit.operator.support import (
    connector,
    flow_analysis,
    flow_log,
    gossip_router,
    link_route,
    relay_site,
    router,
    ssl_profile,
)
from tests.unit.operator.test_creations import Answer

from isthmus_operator.cluster import Cluster
from isthmus_operator.handlers.children import KINDS
from isthmus_operator.handlers.watching import copied
from isthmus_operator.observe import Observer
from isthmus_operator.reconcile import Operator, Reconciliation
from isthmus_operator.render import RenderSettings
from isthmus_operator.resources import API_VERSION, RESOURCE_KINDS
from isthmus_operator.store import Store
from isthmus_operator.stored import stored_status

CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "message": "",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
    "observedGeneration": 1,
}
REFUSAL = {"router": "r", "address": "a", "description": "d", "time": "2026-01-02T03:04:05Z"}
STATUSES: list[Any] = [
    *("x", [1], 7, True, {"conditions": "x"}, {"conditions": [7]}, {"conditions": [{"a": 1}]}),
    *({"conditions": [{"type": "Ready"}]}, {"conditions": [{"type": ["Ready"], "status": {}}]}),
    *({"conditions": {"Ready": 1}}, {"conditions": [CONDITION | {"lastTransitionTime": "soon"}]}),
    *({"conditions": [CONDITION, CONDITION]}, {"conditions": [CONDITION | {"reason": 7}, None]}),
    *({"ordinal": "x"}, {"ordinal": {"a": 1}}, {"ordinal": -1, "fingerprint": [1]}, {"ordinal": 1e300}),
    *({"oldestValidOrdinal": [1]}, {"handledRequest": "x"}, {"ordinals": [{"ordinal": 1}, {"ordinal": "1"}]}),
    *({"remoteSites": 7}, {"remoteSites": [{"a": 1}]}, {"remoteSites": [{"site": "x", "dropped": "many"}]}),
    *({"runs": "x"}, {"runs": [{"name": 7}]}, {"runs": [{"name": "a", "startedAt": 7}, {"name": "b"}]}),
    *({"runs": [{"name": "a", "state": "Failed", "startedAt": "2026-99-02T03:04:05Z"}]}, {"findings": [1]}),
    *({"instances": [{"id": 1}, {"id": "x"}]}, {"instances": [{}]}, {"users": [{"pod": 1}, {"pod": "x"}]}),
    *({"lastRefusal": "x"}, {"lastRefusal": REFUSAL | {"time": "2026-01-02T03:04:05"}}, {"lastRefusal": {}}),
    *({"observedGeneration": "x"}, {"replicas": "x"}, {"progress": "x", "state": 7}, {"rowsWritten": "x"}),
    {"unknown": {"a": [1]}},
]
RESOURCES = {
    "Router": router("bad"),
    "Connector": connector("bad", "good", ("host", 5672), "route-container"),
    "LinkRoute": link_route("bad", prefix="a", containerId="x"),
    "RelaySite": relay_site("bad", "good"),
    "GossipRouter": gossip_router("bad"),
    "SslProfile": ssl_profile("bad", "tls"),
    "FlowLog": flow_log("bad", "good"),
    "FlowAnalysis": flow_analysis("bad", "bad"),
}


class Server(test_large_namespaces.Server):
    """An API server that has what the operator has written, and stores a status by kind and name."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, Any] = {}

    async def call_api(
        self, verb: str, path: str, query: dict[str, str], body: Any, **options: Any
    ) -> Answer:
        answer = await super().call_api(verb, path, query, body, **options)
        if path.endswith("/status"):
            kind, name = path.split("/")[-3:-1]
            self.stored[f"{kind}/{name}"] = self.statuses.pop(name)
        return answer


def indexed(*resources: dict[str, Any]) -> Store:
    """The resources as the handlers index them."""
    indices: dict[str, dict[str, list[Any]]] = {kind: {} for kind in RESOURCE_KINDS}
    for item in resources:
        found = copy.deepcopy(item)
        kind = found.pop("kind")
        found["metadata"] |= {"resourceVersion": "7", "uid": f"{kind} {found['metadata']['name']}"}
        indices[kind].setdefault("net", []).append(copied(found, kind, API_VERSION))
    names = ("Router", "Connector", "LinkRoute", "RelaySite", "GossipRouter", "FlowLog", "FlowAnalysis")
    none: dict[str, Any] = {}
    children: dict[str, Any] = {kind: {} for kind in KINDS}
    return Store(*(indices[name] for name in names), indices["SslProfile"], none, none, children)


@pytest.fixture
async def observer() -> AsyncIterator[Observer]:
    found = Observer(lambda _: None)
    yield found
    await found.close()


@pytest.mark.parametrize("kind", RESOURCE_KINDS)
async def test_no_stored_status_stops_a_namespace(kind: str, observer: Observer) -> None:
    for status in STATUSES:
        api: Any = Server()
        settings = RenderSettings(router_image="router:1")
        operator = Operator(Cluster(api), settings, observer, "1", "pod", lambda: 1000.0)
        reconciliation = Reconciliation("net", operator)
        store = indexed({**RESOURCES[kind], "status": status}, router("good", replicas=0))
        due = await reconciliation.look(store)
        assert due is not None, status
        assert api.stored["routers/good"]["conditions"], status
        (own,) = [found for name, found in api.stored.items() if name != "routers/good"]
        assert {item["type"] for item in own["conditions"]} >= {"Ready"}, status
        assert stored_status(kind, own) == own, "what the operator writes is what the schema allows"
        assert not reconciliation._failed, status


@pytest.mark.parametrize("kind", RESOURCE_KINDS)
def test_valid_fields_of_a_status_stay(kind: str) -> None:
    valid = {"observedGeneration": 3, "conditions": [CONDITION]}
    for status in STATUSES:
        mixed = {**valid, **status} if isinstance(status, dict) else status
        found = stored_status(kind, mixed)
        if isinstance(status, dict):
            assert {name: found[name] for name in valid if name not in status} == {
                name: value for name, value in valid.items() if name not in status
            }
        else:
            assert found == {}
    assert stored_status(kind, None) == {}
