"""kopf handlers: thin shells that fill the store and wake the reconciler.

Only `index` and `event` handlers are used. These keep no state in the objects: no finalizer, no
annotation, no status of kopf's. What must happen is decided by comparing states, never by an event.
"""

from __future__ import annotations

import kopf

from . import (
    children,
    connectors,
    flowanalyses,
    flowlogs,
    gossiprouters,
    linkroutes,
    pods,
    relaysites,
    replicasets,
    routers,
    secrets,
    sslprofiles,
)

MODULES = (
    routers,
    connectors,
    linkroutes,
    relaysites,
    gossiprouters,
    sslprofiles,
    flowlogs,
    flowanalyses,
    pods,
    replicasets,
    children,
    secrets,
)


def registry() -> kopf.OperatorRegistry:
    """All handlers."""
    found = kopf.OperatorRegistry()
    for module in MODULES:
        module.register(found)
    return found


def selectors(settings: kopf.OperatorSettings) -> None:
    """Label selectors for watches: objects of others are not even sent to us."""
    for module in (pods, replicasets, children):
        module.select(settings)
