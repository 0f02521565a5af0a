"""The one shape of all handlers: keep a copy of the object in an index, and wake the reconciler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import kopf

from ..bodies import POD_KINDS, described, retained
from ..cluster import ENDPOINTS, Manifest
from ..names import CHILD_KINDS, LABEL_MANAGED_BY, MANAGER
from ..resources import RESOURCE_KINDS
from ..specs import packed
from ..store import slim


def watch(
    registry: kopf.OperatorRegistry,
    kind: str,
    index: str,
    *,
    ours: bool = False,
    when: Callable[..., bool] | None = None,
) -> None:
    """Watches `kind` into the index of the given name. `ours`: only objects with our label."""
    endpoint = ENDPOINTS[kind]
    where = resource(kind)
    labels: dict[str, Any] | None = {LABEL_MANAGED_BY: MANAGER} if ours else None
    resource_of_ours = kind in RESOURCE_KINDS

    def keep(body: kopf.Body, namespace: str | None, **_: Any) -> dict[str | None, Manifest]:
        return {namespace: copied(body, kind, endpoint.api_version)}

    async def wake(memo: Any, namespace: str | None, **_: Any) -> None:
        if resource_of_ours:
            memo.reconciler.trigger(namespace)
        else:
            memo.reconciler.nudge(namespace)

    kopf.index(*where, id=index, registry=registry, labels=labels, when=when)(keep)
    kopf.on.event(*where, id=f"{index}-event", registry=registry, labels=labels, when=when)(wake)


def copied(body: Mapping[str, Any], kind: str, api_version: str) -> Manifest:
    """What an index holds of an object."""
    if kind in (*CHILD_KINDS, *POD_KINDS):
        return slim(retained(body, kind), kind, api_version)
    return slim(packed(described(body, kind)) if kind in RESOURCE_KINDS else body, kind, api_version)


def select_ours(settings: kopf.OperatorSettings, kind: str) -> None:
    """Lets the API server send only objects with our label."""
    settings.watching.label_selectors[resource(kind)] = f"{LABEL_MANAGED_BY}={MANAGER}"


def resource(kind: str) -> tuple[str, str, str]:
    """Group, version and plural of a kind."""
    endpoint = ENDPOINTS[kind]
    group, _, version = endpoint.api_version.rpartition("/")
    return group, version, endpoint.plural
