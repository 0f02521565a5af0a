"""The read-only document of `/status`; docs/status.md describes it for the operator and the CLI."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TypeVar

from isthmus_router.core.address import is_temporary_key, split_phase
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

_Row = TypeVar("_Row")


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


def status_document(view: ManagementView, facts: ProcessFacts) -> Generator[None, None, Mapping[str, object]]:
    """Return the document, whose values are plain JSON, in steps of about a row.

    Lists and totals are those of the first step. Other values of a row are those of its own step.
    """
    configuration = view.configuration
    counters = view.counters()
    connection_rows, address_rows = view.first_connections(LISTED), view.first_addresses(LISTED)
    others = [node for node in view.nodes() if node.next_hop != SELF]
    neighbors = [_neighbor(node) for node in others if node.next_hop is None]
    connector_rows, auto_link_rows = view.connectors(), view.auto_links()
    link_route_rows = islice(view.link_routes(), LISTED)
    listeners = [_listener(row) for row in view.listeners()]
    ssl_profiles = [_ssl_profile(row) for row in view.ssl_profiles()]
    policy_denials = dict(view.policy().denials)
    yield
    edge = _edge((yield from view.edge()))
    nodes = yield from _list(_node, others)
    connectors = yield from _list(_connector, connector_rows)
    auto_links = yield from _list(_auto_link, auto_link_rows)
    link_routes = yield from _list(_link_route, link_route_rows)
    connections = yield from _list(_connection, connection_rows)
    # Who knows a temporary address can send messages to its client.
    lasting = (row for row in address_rows if row is None or not is_temporary_key(row.key))
    addresses = yield from _list(_address, lasting)
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
        "neighbors": neighbors,
        "nodes": nodes,
        "edge": edge,
        "connectors": connectors,
        "sslProfiles": ssl_profiles,
        "listeners": listeners,
        "autoLinks": auto_links,
        "linkRoutes": link_routes,
        "linkRoutesTotal": counters.link_route_count,
        "connections": connections,
        "connectionsTotal": counters.connection_count,
        "addresses": addresses,
        "addressesTotal": counters.address_count,
        "counters": {_camel_case(name): value for name, value in asdict(counters).items()},
        "policyDenials": policy_denials,
        "relay": relay_document(facts.relay) if facts.relay is not None else None,
        "lastConfigError": facts.last_config_error,
    }


def _list(
    write: Callable[[_Row], Mapping[str, object]], rows: Iterable[_Row | None]
) -> Generator[None, None, list[Mapping[str, object]]]:
    written = []
    for row in rows:
        if row is not None:
            written.append(write(row))
        yield
    return written


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
