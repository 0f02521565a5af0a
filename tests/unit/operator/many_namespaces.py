"""Many namespaces and an API server that takes time for each request: what does a change of one namespace wait for?

`python -m tests.unit.operator.many_namespaces 120 0.05 4` measures it.
"""

from __future__ import annotations

import asyncio
import copy
import json
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import yaml
from tests.unit.operator.api_server import STORED

from isthmus_operator.cluster import ENDPOINTS, Cluster
from isthmus_operator.handlers.watching import copied
from isthmus_operator.names import CHILD_KINDS, MANAGER
from isthmus_operator.render import RenderSettings
from isthmus_operator.resources import API_VERSION, RESOURCE_KINDS
from isthmus_operator.store import Store
from isthmus_operator.workers import Reconciler

_KINDS = {item.plural: kind for kind, item in ENDPOINTS.items()}
SETTINGS = RenderSettings(router_image="router:1")
WATCH_SECONDS = 0.005
"""From a write until its event arrives."""


class Answer:
    reason = "?"

    def __init__(self, status: int, content: dict[str, Any]) -> None:
        self.status = status
        self._content = json.dumps(content).encode()

    async def read(self) -> bytes:
        return self._content


class Server:
    """An API server and the operator's watches of it. `seconds`: how long a request takes."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.indices: dict[str, dict[str, dict[str, dict[str, Any]]]] = defaultdict(dict)
        """Kind, namespace and name to an object."""
        self.requests: Counter[str] = Counter()
        """Answers, by namespace."""
        self._version = 0
        self._observed = {kind: Index() for kind in (*RESOURCE_KINDS, *CHILD_KINDS)}
        self.reconciler = Reconciler(Cluster(self), SETTINGS, version="1", instance="pod")
        own = [self._observed[kind] for kind in STORED]
        children = {kind: self._observed[kind] for kind in CHILD_KINDS if kind != "Secret"}
        self.reconciler.use(Store(*own, self._observed["Secret"], {}, children))

    async def param_serialize(
        self, verb: str, path: str, *, body: Any, header_params: dict[str, str], **_: Any
    ) -> tuple[Any, ...]:
        return verb, path, header_params, body, None

    async def call_api(self, verb: str, path: str, headers: dict[str, str], body: Any, **_: Any) -> Answer:
        await asyncio.sleep(self.seconds)
        _, _, rest = path.partition("/namespaces/")
        namespace, plural, *more = rest.split("/")
        self.requests[namespace] += 1
        kind = _KINDS[plural]
        if kind == "Event":
            return Answer(200, body or {"metadata": {}, "items": []})
        objects = self.indices[kind].setdefault(namespace, {})
        if verb == "POST":
            entry = {"manager": MANAGER, "operation": "Update", "fieldsV1": {"f:spec": {}}}
            metadata = {**body["metadata"], "managedFields": [entry]}
            return Answer(201, self.put({**body, "metadata": metadata}))
        known = objects.get(more[0]) if more else None
        if known is None:
            return Answer(404, {"reason": "NotFound"})
        if verb == "GET":
            return Answer(200, known)
        if isinstance(body, str):
            body = yaml.load(body, yaml.CSafeLoader)
        if more[1:] == ["status"]:
            return Answer(200, self.put({**known, "status": body["status"]}))
        metadata = {**known["metadata"], **body["metadata"]}
        return Answer(200, self.put({**known, **body, "metadata": metadata}))

    def put(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Store an object, and send the event to the operator."""
        self._version += 1
        kind, metadata = manifest["kind"], dict(manifest["metadata"])
        metadata.setdefault("uid", f"uid-{self._version}")
        metadata["resourceVersion"] = str(self._version)
        made = {**manifest, "metadata": metadata}
        namespace = metadata["namespace"]
        self.indices[kind].setdefault(namespace, {})[metadata["name"]] = made
        asyncio.get_running_loop().call_later(WATCH_SECONDS, self._notice, kind, namespace, made)
        return made

    def _notice(self, kind: str, namespace: str, manifest: dict[str, Any]) -> None:
        item = copied(manifest, kind, manifest["apiVersion"])
        self._observed[kind].put(namespace, manifest["metadata"]["name"], item)
        if kind in RESOURCE_KINDS:
            self.reconciler.trigger(namespace)
        else:
            self.reconciler.nudge(namespace)

    def resource(self, kind: str, namespace: str, name: str, **spec: Any) -> dict[str, Any]:
        """Create a resource, or replace its specification."""
        known = self.indices[kind].get(namespace, {}).get(name, {})
        metadata = copy.deepcopy(known.get("metadata", {"name": name, "namespace": namespace}))
        metadata["generation"] = metadata.get("generation", 0) + 1
        return self.put(
            {**known, "apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
        )

    def remove(self, namespace: str) -> None:
        """Delete the namespace."""
        for kind, index in self._observed.items():
            index.remove(namespace)
            self.indices[kind].pop(namespace, None)
        self.reconciler.trigger(namespace)

    def generation(self, kind: str, namespace: str, name: str) -> int:
        """The generation for which the resource has its status."""
        status = self.indices[kind][namespace][name].get("status") or {}
        return int(status.get("observedGeneration", 0))


class Index:
    """Objects by namespace, as kopf holds them."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Any]] = {}

    def put(self, namespace: str, name: str, item: dict[str, Any]) -> None:
        self._items.setdefault(namespace, {})[name] = item

    def remove(self, namespace: str) -> None:
        self._items.pop(namespace, None)

    def __getitem__(self, namespace: str) -> Any:
        return self._items[namespace].values()

    def __iter__(self) -> Any:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, namespace: object) -> bool:
        return namespace in self._items


async def settle(server: Server, quiet: float = 1.0) -> None:
    """Wait until the operator sends no more requests."""
    before = -1
    while before != server.requests.total():
        before = server.requests.total()
        await asyncio.sleep(quiet)


def attack(server: Server, number: int) -> None:
    """Create two Routers without replicas and a GossipRouter in each of `number` namespaces."""
    for index in range(number):
        for name in ("r0", "r1"):
            server.resource("Router", f"w{index}", name, replicas=0)
        server.resource("GossipRouter", f"w{index}", "g", replicas=0)


@dataclass(frozen=True)
class Change:
    """What passes until the status of a changed Router reports the change."""

    seconds: float
    own: int
    """Requests of its namespace."""
    others: int
    """Requests of other namespaces."""


async def change(server: Server, port: int) -> Change:
    """Change the Router `r` of namespace `canary`."""
    began, total, own = time.monotonic(), server.requests.total(), server.requests["canary"]
    listeners = [{"name": "a", "port": port}]
    made = server.resource("Router", "canary", "r", replicas=0, listeners=listeners)
    while server.generation("Router", "canary", "r") < made["metadata"]["generation"]:  # noqa: ASYNC110 -- as above
        await asyncio.sleep(0.002)
    own = server.requests["canary"] - own
    return Change(time.monotonic() - began, own, server.requests.total() - total - own)


async def main(namespaces: int, seconds: float, pause: float) -> None:
    """Print how long changes take while the operator works on `namespaces` others, with `pause` seconds between two."""
    server, port = Server(seconds), 5000
    server.resource("Router", "canary", "r", replicas=0)
    await settle(server)
    print("alone", await change(server, port))
    await settle(server)
    attack(server, namespaces)
    await asyncio.sleep(1)
    others = 1
    while others:
        port += 1
        found = await change(server, port)
        print(found, flush=True)
        others = found.others
        await asyncio.sleep(pause)
    print(server.requests.total(), "requests")
    await server.reconciler.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))
