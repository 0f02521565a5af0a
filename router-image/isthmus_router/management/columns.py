"""Attributes of the entity types that show the router's state, in the order of their columns.

Types and order are those of skupper-router 3.4.0: counters are unsigned longs, identities strings; its
tools add and compare some of them, so these are never null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from isthmus_router.management.port import (
    AddressRow,
    ConnectionRow,
    ConnectorRow,
    Counters,
    LinkRow,
    ManagementView,
    NodeRow,
)
from isthmus_router.message.types import Int, UInt, ULong

PREFIX = "io.skupper.router."
AMQP_MANAGEMENT = "org.amqp.management"
"""The standard's type of a management node."""
OTHER_PREFIX = "org.apache.qpid.dispatch."

_Row = TypeVar("_Row")
Columns: TypeAlias = Mapping[str, Callable[[_Row], object]]
"""Per attribute, in column order: how it is read from a row."""


def constant(value: object) -> Callable[[object], object]:
    """A column with the same value in every row."""
    return lambda _row: value


def _ulong(value: int | None) -> object:
    return None if value is None else ULong(value)


def _words(values: Iterable[str]) -> list[str]:
    return list(values)


CONNECTION: Columns[ConnectionRow] = {
    "name": lambda c: f"connection/{c.host}",
    "identity": lambda c: str(c.id),
    "host": lambda c: c.host,
    "localSocket": lambda c: c.local_socket,
    "role": lambda c: c.role.label,
    "protocol": constant("amqp"),
    "dir": lambda c: "in" if c.incoming else "out",
    "container": lambda c: c.container,
    "sasl": lambda c: c.sasl,
    "isAuthenticated": lambda c: c.is_authenticated,
    "user": lambda c: c.user,
    "isEncrypted": lambda c: c.ssl_protocol is not None,
    "sslProto": lambda c: c.ssl_protocol,
    "sslCipher": lambda c: c.ssl_cipher,
    "properties": lambda c: dict(c.properties),
    "sslSsf": lambda c: c.ssl_strength,
    "type": constant(f"{PREFIX}connection"),
    "ssl": lambda c: c.ssl_protocol is not None,
    "opened": lambda c: c.opened,
    "active": lambda c: c.active,
    "adminStatus": constant("enabled"),
    "operStatus": constant("up"),
    "uptimeSeconds": lambda c: UInt(c.uptime_seconds),
    "lastDlvSeconds": lambda c: None if c.last_delivery_seconds is None else UInt(c.last_delivery_seconds),
    "enableProtocolTrace": constant(False),
    "meshId": lambda c: c.mesh_id,
    "tlsOrdinal": lambda c: _ulong(c.tls_ordinal),
    "groupCorrelationId": lambda c: c.group_correlation_id,
    "groupOrdinal": lambda c: _ulong(c.group_ordinal),
}


def _connector_status(row: ConnectorRow) -> str:
    """`FAILED` for what is connected and of no use; what could not connect is tried again."""
    if row.state == "open":
        return "SUCCESS"
    return "CONNECTING" if row.container is None else "FAILED"


def _connector_message(row: ConnectorRow) -> str:
    peer = f"{row.config.host}:{row.config.port}"
    if row.state == "open":
        return row.message or f"Connection Opened: dir=out host={peer} container_id={row.container}"
    return f"Connection to {peer} failed: {row.message}" if row.message else f"Connecting to {peer}"


CONNECTOR_STATE: Columns[ConnectorRow] = {
    "connectionStatus": _connector_status,
    "connectionMsg": _connector_message,
}

LINK: Columns[LinkRow] = {
    "name": lambda link: link.name,
    "identity": lambda link: str(link.id),
    "type": constant(f"{PREFIX}router.link"),
    "linkName": lambda link: link.name,
    "linkType": lambda link: link.link_type,
    "linkDir": lambda link: "in" if link.incoming else "out",
    "owningAddr": lambda link: link.owning_address,
    "peer": lambda link: None if link.peer is None else str(link.peer),
    "capacity": lambda link: ULong(link.capacity),
    "undeliveredCount": lambda link: ULong(link.undelivered_count),
    "unsettledCount": lambda link: ULong(link.unsettled_count),
    "deliveryCount": lambda link: ULong(link.delivery_count),
    "connectionId": lambda link: str(link.connection_id),
    "operStatus": lambda link: link.oper_status,
    "presettledCount": lambda link: ULong(link.presettled_count),
    "droppedPresettledCount": lambda link: ULong(link.dropped_presettled_count),
    "acceptedCount": lambda link: ULong(link.accepted_count),
    "rejectedCount": lambda link: ULong(link.rejected_count),
    "releasedCount": lambda link: ULong(link.released_count),
    "modifiedCount": lambda link: ULong(link.modified_count),
    "deliveriesDelayed1Sec": lambda link: ULong(link.delayed_1_sec),
    "deliveriesDelayed10Sec": lambda link: ULong(link.delayed_10_sec),
    "deliveriesStuck": lambda link: ULong(link.stuck),
    "openMovedStreams": constant(ULong(0)),
    "ingressHistogram": constant(None),
    "priority": lambda link: ULong(link.priority),
    "settleRate": lambda link: ULong(link.settle_rate),
    "creditAvailable": lambda link: ULong(link.credit_available),
    "zeroCreditSeconds": lambda link: ULong(link.zero_credit_seconds),
    "adminStatus": constant("enabled"),
}

ADDRESS: Columns[AddressRow] = {
    "name": lambda a: a.key,
    "identity": lambda a: a.key,
    "type": constant(f"{PREFIX}router.address"),
    "key": lambda a: a.key,
    "distribution": lambda a: a.distribution,
    "inProcess": lambda a: ULong(a.in_process),
    "subscriberCount": lambda a: ULong(a.subscriber_count),
    "remoteCount": lambda a: ULong(a.remote_count),
    "remoteHostRouters": lambda a: _words(a.remote_host_routers),
    "deliveriesIngress": lambda a: ULong(a.deliveries_ingress),
    "deliveriesEgress": lambda a: ULong(a.deliveries_egress),
    "deliveriesTransit": lambda a: ULong(a.deliveries_transit),
    "deliveriesToContainer": lambda a: ULong(a.deliveries_to_container),
    "deliveriesFromContainer": lambda a: ULong(a.deliveries_from_container),
    "deliveriesEgressRouteContainer": lambda a: ULong(a.deliveries_egress_route_container),
    "deliveriesIngressRouteContainer": lambda a: ULong(a.deliveries_ingress_route_container),
    "deliveriesEgressInterNetwork": constant(ULong(0)),
    "deliveriesIngressInterNetwork": constant(ULong(0)),
    "containerCount": lambda a: ULong(a.container_count),  # in qpid-dispatch
    "transitOutstanding": constant(None),
    "trackedDeliveries": lambda a: ULong(a.tracked_deliveries),
    "priority": lambda a: Int(-1 if a.priority is None else a.priority),
    "deliveriesRedirectedToFallback": constant(ULong(0)),
    "watch": constant(False),
}

NODE: Columns[NodeRow] = {
    "id": lambda n: n.id,
    "protocolVersion": lambda n: n.protocol_version,
    "instance": lambda n: n.instance,
    "linkState": lambda n: _words(n.link_state),
    "nextHop": lambda n: n.next_hop,
    "validOrigins": lambda n: _words(n.valid_origins),
    "address": lambda n: f"amqp:/_topo/0/{n.id}",
    "routerLink": lambda n: n.router_link,
    "cost": lambda n: n.cost,
    "lastTopoChange": lambda n: n.last_topology_change,
    "index": lambda n: n.index,
    "name": lambda n: f"router.node/{n.id}",
    "identity": lambda n: f"router.node/{n.id}",
    "type": constant(f"{PREFIX}router.node"),
}


def metrics_columns(view: ManagementView) -> Columns[Counters]:
    """The columns of `routerMetrics`; some are about the router, not in the counters."""

    def connection_counters(c: Counters) -> object:
        return {"tcp": 0, "amqp": c.client_connection_count, "http1": 0, "http2": 0}

    def memory() -> tuple[int | None, int | None]:
        return view.memory_bytes() or (None, None)

    return {
        "identity": constant("1"),
        "type": constant(f"{PREFIX}routerMetrics"),
        "id": lambda _: view.configuration.router.id,
        "addrCount": lambda c: ULong(c.address_count),
        "linkCount": lambda c: ULong(c.link_count),
        "nodeCount": lambda c: ULong(c.node_count),
        "autoLinkCount": lambda c: ULong(c.auto_link_count),
        "connectionCount": lambda c: ULong(c.connection_count),
        "presettledDeliveries": lambda c: ULong(c.presettled_deliveries),
        "droppedPresettledDeliveries": lambda c: ULong(c.dropped_presettled_deliveries),
        "acceptedDeliveries": lambda c: ULong(c.accepted_deliveries),
        "rejectedDeliveries": lambda c: ULong(c.rejected_deliveries),
        "releasedDeliveries": lambda c: ULong(c.released_deliveries),
        "modifiedDeliveries": lambda c: ULong(c.modified_deliveries),
        "deliveriesDelayed1Sec": lambda c: ULong(c.deliveries_delayed_1_sec),
        "deliveriesDelayed10Sec": lambda c: ULong(c.deliveries_delayed_10_sec),
        "deliveriesStuck": lambda c: ULong(c.deliveries_stuck),
        "deliveriesIngress": lambda c: ULong(c.deliveries_ingress),
        "deliveriesEgress": lambda c: ULong(c.deliveries_egress),
        "deliveriesTransit": lambda c: ULong(c.deliveries_transit),
        "deliveriesIngressRouteContainer": lambda c: ULong(c.deliveries_ingress_route_container),
        "deliveriesEgressRouteContainer": lambda c: ULong(c.deliveries_egress_route_container),
        "deliveriesIngressInterNetwork": constant(ULong(0)),
        "deliveriesEgressInterNetwork": constant(ULong(0)),
        "deliveriesRedirectedToFallback": constant(ULong(0)),
        "linksBlocked": lambda c: ULong(c.links_blocked),
        "blockedLinkCount": lambda c: ULong(c.links_blocked),  # its name in qpid-dispatch
        "uptimeSeconds": lambda c: ULong(c.uptime_seconds),
        "memoryUsage": lambda _: _ulong(memory()[0]),
        "residentMemoryUsage": lambda _: _ulong(memory()[1]),
        "connectionCounters": connection_counters,
        "version": lambda _: view.version,
        "linkRouteCount": lambda c: ULong(c.link_route_count),
    }
