"""What an API server keeps of one namespace, and refuses."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from isthmus_operator.apply import Identity, identity
from isthmus_operator.cluster import ApiError
from isthmus_operator.fields import applied, is_applied
from isthmus_operator.handlers.watching import copied
from isthmus_operator.names import CHILD_KINDS, LABEL_MANAGED_BY, MANAGER
from isthmus_operator.store import Store


class ApiServer:
    """What the API server has of one namespace; somebody else may act just before the operator writes."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects: dict[Identity, dict[str, Any]] = {}
        self.versions = 0
        self.unreadable: set[Identity] = set()
        self.refusing: set[Identity] = set()
        self.breaks = False
        """After the next creation no request is answered."""
        self.acts: dict[Identity, dict[str, Any] | None] = {}
        """What somebody else makes of an object before the operator writes it."""
        self.written: list[Identity] = []
        for item in objects:
            self.put(item)

    def put(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.versions += 1
        made = copy.deepcopy(manifest)
        made["metadata"]["resourceVersion"] = str(self.versions)
        made["metadata"].setdefault("uid", f"uid {self.versions}")
        before = self.objects.get(identity(made), {"metadata": {"generation": 0}})
        changed = before.get("spec") != made.get("spec")
        made["metadata"]["generation"] = before["metadata"]["generation"] + changed
        if "status" in before:
            made.setdefault("status", before["status"])
        self.objects[identity(made)] = made
        return copy.deepcopy(made)

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        if (kind, name) in self.unreadable:
            raise ApiError(0, "Unreachable", "no answer")
        return copy.deepcopy(self.objects.get((kind, name)))

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        key = identity(manifest)
        self._before(key)
        if key in self.objects:
            raise ApiError(409, "AlreadyExists", "it is there")
        if self.breaks:
            self.unreadable.add(key)
        self.written.append(key)
        owners = manifest["metadata"].get("ownerReferences") or ()
        references = {f'k:{{"uid":"{item["uid"]}"}}': {".": {}} for item in owners}
        fields = {"f:metadata": {"f:ownerReferences": references}, "f:spec": {}}
        entry = {"manager": MANAGER, "operation": "Update", "fieldsV1": fields}
        metadata = {**manifest["metadata"], "managedFields": [entry]}
        return self.put({**manifest, "metadata": metadata})

    async def claim(self, seen: dict[str, Any]) -> dict[str, Any]:
        found = self._seen(seen)
        found["metadata"]["managedFields"] = applied(found["metadata"])
        return self.put(found)

    async def apply(self, manifest: dict[str, Any], *, seen: dict[str, Any]) -> dict[str, Any]:
        key = identity(manifest)
        self._before(key)
        found = self._seen(seen)
        assert is_applied(found["metadata"]), "the fields of a creation count as applied before others are"
        self.written.append(key)
        names = ("uid", "managedFields", "deletionTimestamp", "finalizers")
        kept = {name: found["metadata"][name] for name in names if name in found["metadata"]}
        return self.put({**manifest, "metadata": {**manifest["metadata"], **kept}})

    async def delete(self, seen: dict[str, Any]) -> bool:
        self._before(identity(seen))
        try:
            del self.objects[identity(self._seen(seen))]
        except ApiError:
            return False
        self.written.append(identity(seen))
        return True

    def _before(self, key: Identity) -> None:
        if key in self.refusing:
            raise ApiError(403, "Forbidden", "exceeded quota")
        if key in self.acts:
            self.objects.pop(key, None)
            if (other := self.acts.pop(key)) is not None:
                self.put(other)

    def _seen(self, seen: dict[str, Any]) -> dict[str, Any]:
        if identity(seen) in self.unreadable:
            raise ApiError(0, "Unreachable", "no answer")
        found = self.objects.get(identity(seen))
        versions = [
            [item["metadata"][key] for key in ("uid", "resourceVersion")] for item in (found, seen) if item
        ]
        if found is None or versions[0] != versions[1]:
            raise ApiError(409, "Conflict", "it has been modified")
        return copy.deepcopy(found)

    def live(self) -> dict[Identity, dict[str, Any]]:
        """What a cache that is up to date holds: objects with the operator's label."""
        return {
            key: copied(item, item["kind"], item["apiVersion"])
            for key, item in self.objects.items()
            if (item["metadata"].get("labels") or {}).get(LABEL_MANAGED_BY) == MANAGER
        }


class WholeApiServer(ApiServer):
    """One that also has statuses, for a whole reconciliation."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        super().__init__(*objects)
        self.statuses: dict[Identity, dict[str, Any]] = {}

    async def apply(
        self,
        manifest: dict[str, Any],
        *,
        seen: dict[str, Any] | None = None,
        subresource: str | None = None,
    ) -> dict[str, Any]:
        if seen is not None:
            return await super().apply(manifest, seen=seen)
        assert subresource == "status"
        self.statuses[manifest["kind"], manifest["metadata"]["name"]] = manifest["status"]
        return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": "9"}}

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return manifest if manifest["kind"] == "Event" else await super().create(manifest)

    async def merge(self, kind: str, namespace: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        found = self._seen({"kind": kind, **patch, "metadata": {**patch["metadata"], "name": name}})
        return self.put(_merged(found, patch))


def _merged(value: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A JSON merge patch, applied."""
    found = {**value, **{key: item for key, item in patch.items() if item is not None}}
    found = {key: item for key, item in found.items() if patch.get(key, item) is not None}
    for key, item in patch.items():
        if isinstance(item, dict):
            found[key] = _merged(value.get(key) or {}, item)
    return found


STORED = (
    *("Router", "Connector", "LinkRoute", "RelaySite", "GossipRouter", "FlowLog", "FlowAnalysis"),
    "SslProfile",
)


def store_of(
    *resources: dict[str, Any],
    live: dict[Identity, dict[str, Any]] | None = None,
    pods: Sequence[dict[str, Any]] = (),
) -> Store:
    """What the operator watches of namespace `net`."""
    indices: dict[str, Any] = {
        kind: {"net": [item for item in resources if item["kind"] == kind]} for kind in STORED
    }
    children: dict[str, Any] = {kind: {"net": []} for kind in CHILD_KINDS}
    for (kind, _), item in (live or {}).items():
        children[kind]["net"].append(item)
    secrets = children.pop("Secret")
    return Store(*(indices[kind] for kind in STORED), secrets, {"net": pods}, children)
