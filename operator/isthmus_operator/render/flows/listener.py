"""The listener that a Router has for the collectors of FlowLogs, and which of them use it.

A FlowLog that states neither `tls` nor `sasl` nor a listener has a certificate of the namespace's own authority. Its
Router has a listener for such collectors alone, which accepts the names of their certificates and nobody else. Flow
records of the whole network are for them, and not for the applications of another listener.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...model import NamespaceModel
from ...names import flow_log_name
from ...resources import Router
from ..instances import Value

LISTENER = "collectors/flow-records"
"""Name of the section in the router's configuration. Names of declared listeners have no slash."""
PORT_NAME = "collectors-of-flow-records"
"""Name of the port of the Service. No listener's is as long."""
FIRST_PORT = 35672
"""The first port from here on that nothing else of the Router uses."""
VHOST = LISTENER
"""Of the policy."""
SOURCES, TARGETS = ("mc/sfe.*",), ("sfe.*",)
"""Addresses that a collector receives from and sends to."""


@dataclass(frozen=True)
class CollectorsListener:
    """The listener of one Router for collectors."""

    port: int
    flow_logs: tuple[str, ...]
    """Names of the FlowLogs whose collectors connect to it."""

    @property
    def peer_names(self) -> tuple[str, ...]:
        """Names of their certificates, which are their users as well."""
        return tuple(flow_log_name(name) for name in self.flow_logs)

    def attributes(self, *, policy: bool) -> dict[str, str | int | bool]:
        """The attributes of its section; `policy`: the Router has one."""
        found: dict[str, str | int | bool] = {
            "saslMechanisms": "EXTERNAL",
            "authenticatePeer": True,
            "requireSsl": True,
            "requireClientCertificate": True,
            "peerNames": ", ".join(self.peer_names),
            "allowPlainWithoutTls": False,
            "management": "none",
            "allowFlowRecords": True,
        }
        return {**found, "policyVhost": VHOST} if policy else found


def collectors_vhost(users: Sequence[str]) -> dict[str, Value]:
    """The `vhost` section for collectors: they may do what they need and nothing else."""
    rights = {
        "users": list(users),
        "remoteHosts": ["*"],
        "sources": list(SOURCES),
        "targets": list(TARGETS),
        "allowDynamicSource": False,
        "allowAnonymousSender": False,
        "allowUserIdProxy": False,
        "allowWaypointLinks": False,
        "allowFallbackLinks": False,
        "allowDynamicLinkRoutes": False,
        "allowAdminStatusUpdate": False,
    }
    return {"hostname": VHOST, "allowUnknownUser": False, "groups": {"collectors": rights}}


def collectors_listener(router: Router, model: NamespaceModel) -> CollectorsListener | None:
    """The listener of `router` for collectors; None while no FlowLog of `model` needs it."""
    names = model.collectors_of.get(router.name)
    return CollectorsListener(_port(router, model), names) if names else None


def _port(router: Router, model: NamespaceModel) -> int:
    taken = {item.port for item in router.spec.effective_listeners()} | {router.spec.health_port}
    for site in model.relay_sites_of.get(router.name, ()):
        taken |= {site.spec.member_port, site.spec.bridge.port}
    return next(port for port in range(FIRST_PORT, 65536) if port not in taken)
