"""The read-only document of `/status`; docs/status.md describes it for the operator and the CLI."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice

from isthmus_router.core.address import split_phase
from isthmus_router.core.roles import Role
from isthmus_router.management.port import (
    SELF,
    AddressRow,
    AutoLinkRow,
    ConnectionRow,
    ConnectorRow,
    EdgeRow,
    LinkRouteRow,
    ListenerRow,
    ManagementView,
    NodeRow,
    SslProfileRow,
    UplinkRow,
)
from isthmus_router.relay_site.status import RelayStatus, relay_document

LISTED = 1000
"""Most addresses, and most connections, in the document."""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What the process knows beyond the router's view."""

    instance: int
    """Changes with every start."""
    ready: bool
    last_config_error: str | None
    """Why the configuration file, as it is now, is not in force."""
    relay: RelayStatus | None = None
    """Of a member of a site."""


def status_document(view: ManagementView, facts: ProcessFacts) -> Mapping[str, object]:
    """The document; every value is plain JSON."""
    configuration = view.configuration
    counters = view.counters()
    others = [node for node in view.nodes() if node.next_hop != SELF]
    return {
        "router": {
            "id": configuration.router.id,
            "mode": str(configuration.router.mode),
            "version": view.version,
            "instance": facts.instance,
            "uptimeSeconds": counters.uptime_seconds,
            "ready": facts.ready,
            "configHash": configuration.config_hash,
        },
        "neighbors": [_neighbor(node) for node in others if node.next_hop is None],
        "nodes": [_node(node) for node in others],
        "edge": _edge(view.edge()),
        "connectors": [_connector(row) for row in view.connectors()],
        "sslProfiles": [_ssl_profile(row) for row in view.ssl_profiles()],
        "listeners": [_listener(row) for row in view.listeners()],
        "autoLinks": [_auto_link(row) for row in view.auto_links()],
        "linkRoutes": [_link_route(row) for row in islice(view.link_routes(), LISTED)],
        "linkRoutesTotal": counters.link_route_count,
        "connections": [_connection(row) for row in islice(view.connections(), LISTED)],
        "connectionsTotal": counters.connection_count,
        "addresses": [_address(row) for row in islice(view.addresses(), LISTED)],
        "addressesTotal": counters.address_count,
        "counters": {_camel_case(name): value for name, value in asdict(counters).items()},
        "policyDenials": dict(view.policy().denials),
        "relay": relay_document(facts.relay) if facts.relay is not None else None,
        "lastConfigError": facts.last_config_error,
    }


def _node(node: NodeRow) -> dict[str, object]:
    return {
        "id": node.id,
        "nextHop": node.next_hop or node.id,
        "cost": node.cost,
        "peers": sorted(node.link_state),
    }


def _neighbor(node: NodeRow) -> dict[str, object]:
    return {"id": node.id, "cost": node.cost, "connectionId": node.connection_id}


def _connector(row: ConnectorRow) -> dict[str, object]:
    return {
        "name": row.config.name,
        "host": row.config.host,
        "port": row.config.port,
        "role": row.config.role.label,
        "state": row.state,
        "message": row.message,
        "container": row.container,
        "cost": row.cost,
        "tlsOrdinal": row.tls_ordinal,
        "active": row.active,
    }


def _ssl_profile(row: SslProfileRow) -> dict[str, object]:
    return {
        "name": row.config.name,
        "ordinal": row.config.ordinal,
        "oldestValidOrdinal": row.config.oldest_valid_ordinal,
        "connections": {str(ordinal): count for ordinal, count in row.connections.items()},
    }


def _edge(row: EdgeRow | None) -> dict[str, object] | None:
    if row is None:
        return None
    return {
        "active": _uplink(row.active) if row.active is not None else None,
        "standbys": [_uplink(standby) for standby in row.standbys],
        "proxiedAddresses": row.proxied_addresses,
        "boundAddresses": row.bound_addresses,
    }


def _uplink(row: UplinkRow) -> dict[str, object]:
    return {
        "connector": row.connector,
        "connectionId": row.connection_id,
        "container": row.container,
        "cost": row.cost,
        "tlsOrdinal": row.tls_ordinal,
    }


def _listener(row: ListenerRow) -> dict[str, object]:
    return {
        "name": row.config.name,
        "host": row.config.host,
        "port": row.config.port,
        "role": row.config.role.label,
        "state": "listening" if row.listening else "failed" if row.message else "opening",
        "message": row.message,
    }


def _auto_link(row: AutoLinkRow) -> dict[str, object]:
    return {
        "name": row.config.name,
        "address": row.config.address,
        "direction": str(row.config.direction),
        "phase": row.phase,
        "externalAddress": row.config.external_address,
        "connection": row.config.connection,
        "containerId": row.config.container_id,
        "state": row.oper_status,
        "message": row.last_error or "",
    }


def _link_route(row: LinkRouteRow) -> dict[str, object]:
    refusal = {
        "address": row.last_refused_address,
        "description": row.last_refusal,
        "secondsAgo": round(row.last_refusal_seconds_ago, 3),
    }
    return {
        "name": row.config.name,
        "prefix": row.config.prefix,
        "pattern": row.config.pattern,
        "direction": str(row.config.direction),
        "connection": row.config.connection,
        "containerId": row.config.container_id,
        "state": "active" if row.active else "inactive",
        "destinations": row.container_count,
        "remote": row.remote_count,
        "links": row.link_count,
        "refusals": row.refusal_count,
        "lastRefusal": refusal if row.last_refused_address is not None else None,
    }


def _connection(row: ConnectionRow) -> dict[str, object]:
    client = row.incoming and row.role is Role.NORMAL
    return {
        "id": row.id,
        # Who the clients are is for management, which asks for rights.
        "container": None if client else row.container,
        "role": row.role.label,
        "dir": "in" if row.incoming else "out",
        "host": None if client else row.host,
        "user": None if client else row.user,
        "tls": row.ssl_protocol is not None,
        "tlsOrdinal": row.tls_ordinal,
        "active": row.active,
        "groupOrdinal": row.group_ordinal,
        "upgrade": row.upgrade,
        "uptimeSeconds": row.uptime_seconds,
        "message": row.problem or "",
    }


def _address(row: AddressRow) -> dict[str, object]:
    name, phase = split_phase(row.key[1:])
    return {
        "name": name,
        "phase": phase,
        "class": row.key[:1],
        "distribution": row.distribution,
        "local": row.subscriber_count,
        "remote": row.remote_count,
        "inProcess": row.in_process,
        "deliveriesIn": row.deliveries_ingress + row.deliveries_transit,
        "deliveriesOut": row.deliveries_egress,
    }


def _camel_case(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)
