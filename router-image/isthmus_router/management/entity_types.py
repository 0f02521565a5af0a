"""Every entity type: its attributes, the operations it allows, and where its rows come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from isthmus_router.config.attributes import Attribute, Kind, Section
from isthmus_router.config.edit import entities_in
from isthmus_router.config.model import (
    AddressConfig,
    AutoLinkConfig,
    LinkRouteConfig,
    LogConfig,
    RouterConfig,
)
from isthmus_router.config.tables.addresses import ADDRESS, AUTO_LINK, LINK_ROUTE
from isthmus_router.config.tables.endpoints import CONNECTOR, LISTENER, SSL_PROFILE
from isthmus_router.config.tables.policy import POLICY, VHOST, VHOST_GROUP
from isthmus_router.config.tables.router import LOG, LOG_LEVELS, LOG_MODULES, NETWORK, ROUTER, SITE
from isthmus_router.core.access import ManagementLevel
from isthmus_router.core.roles import Role
from isthmus_router.management import columns, policy
from isthmus_router.management.columns import AMQP_MANAGEMENT, OTHER_PREFIX, PREFIX, Columns, constant
from isthmus_router.management.port import (
    AutoLinkRow,
    ConnectorRow,
    Counters,
    LinkRouteRow,
    ListenerRow,
    ManagementView,
)
from isthmus_router.message.types import ULong

CONNECTION_LINK_ROUTE = "router.connection.linkRoute"


@dataclass(frozen=True, slots=True)
class EntityType:
    """One type of managed entity."""

    name: str
    """Short name, e.g. `router.link`."""
    description: str
    columns: Columns[Any]
    rows: Callable[[ManagementView, int], Iterator[Any]]
    """Rows without the first so many; None when other work may have its turn first."""
    operations: tuple[str, ...] = ("READ",)
    section: Section | None = None
    """The section of the configuration whose entities these are."""
    config_of: Callable[[Any], object] = lambda row: row
    """The configured entity that a row shows."""
    row_of: Callable[[Any], object] = lambda config: config
    """The row of an entity just configured."""
    why_kept: Callable[[Any], str | None] = lambda config: None
    """Why a configured entity may not be deleted, if so."""
    address_keys: frozenset[str] = frozenset()
    """Attributes that hold the key of an address."""
    lenient: bool = False
    """Attributes asked for that do not exist are null instead of an error."""
    schema_of: Section | None = None
    """Describes the attributes, where they are no section of their own."""
    listed: bool = field(default=True)
    """Part of a QUERY for all types."""

    @property
    def full_name(self) -> str:
        """Name with the prefix that management tools use."""
        return PREFIX + self.name

    @property
    def bases(self) -> tuple[str, ...]:
        """The types it extends."""
        kind = "configurationEntity" if self.section or self.schema_of else "operationalEntity"
        return (kind, "entity")


def entity_types(view: ManagementView) -> dict[str, EntityType]:
    """All types by short name."""
    types = [*_state_types(view), *_configuration_types(view), *_EMPTY_TYPES]
    return {entity_type.name: entity_type for entity_type in types}


def _state_types(view: ManagementView) -> Iterable[EntityType]:
    yield EntityType(
        "router.link",
        "A link attached to the router.",
        columns.LINK,
        lambda view, offset: view.links(offset),
        operations=("READ", "UPDATE"),
        address_keys=frozenset({"owningAddr"}),
        lenient=True,
        listed=False,
    )
    yield EntityType(
        "router.address",
        "An address in use.",
        columns.ADDRESS,
        lambda view, offset: view.addresses(offset),
        address_keys=frozenset({"name", "identity", "key"}),
        lenient=True,
        listed=False,
    )
    yield EntityType(
        "connection",
        "An open connection.",
        columns.CONNECTION,
        lambda view, offset: view.connections(offset),
        operations=("READ", "UPDATE"),
        lenient=True,
        listed=False,
    )
    yield EntityType(
        "routerMetrics",
        "Totals of the router.",
        columns.metrics_columns(view),
        lambda view, offset: islice((view.counters(),), offset, None),
        lenient=True,
        listed=False,
    )
    yield EntityType(
        "router.node",
        "A known interior router.",
        columns.NODE,
        lambda view, offset: islice(view.nodes(), offset, None),
    )
    yield EntityType(
        CONNECTION_LINK_ROUTE,
        "A link route that a container has made for its own connection.",
        {
            "pattern": lambda row: row.pattern,
            "direction": lambda row: "in" if row.incoming else "out",
            "dir": lambda row: "in" if row.incoming else "out",
            "containerId": lambda row: row.container,
            "connectionId": lambda row: str(row.connection_id),
            "linkCount": lambda row: ULong(row.link_count),
            **_identified(
                CONNECTION_LINK_ROUTE,
                lambda row: row.name,
                lambda row: f"{CONNECTION_LINK_ROUTE}/{row.connection_id}/{row.name}",
            ),
        },
        lambda view, offset: view.connection_link_routes(offset),
        operations=("CREATE", "DELETE", "READ"),
    )
    yield EntityType(
        "vhostStats",
        "What came of a vhost.",
        {
            **policy.VHOST_STATS,
            **_identified("vhostStats", lambda v: v.hostname, lambda v: f"vhostStats/{v.hostname}"),
        },
        lambda view, offset: islice(view.vhosts(), offset, None),
    )
    yield EntityType(
        VHOST_GROUP.name,
        VHOST_GROUP.description,
        {
            "vhost": policy.vhost_of_group,
            "group": policy.name_of_group,
            **_section_columns(VHOST_GROUP, policy.config_of_group),
            **_identified(VHOST_GROUP.name, policy.group_identity, policy.group_identity),
        },
        lambda view, offset: islice(policy.groups(view), offset, None),
        schema_of=VHOST_GROUP,
    )
    yield EntityType(
        "logStats",
        "Log records written by a module.",
        {
            **{f"{level}Count": partial(_logged, view, level) for level in LOG_LEVELS},
            **_identified("logStats", lambda module: module, lambda module: f"logStats/{module}"),
        },
        lambda view, offset: islice(iter(LOG_MODULES), offset, None),
    )
    yield EntityType(
        "management",
        "This management agent.",
        _identified("management", lambda _: "self", lambda _: "self"),
        lambda view, offset: islice(("self",), offset, None),
        operations=(
            "QUERY",
            "GET-TYPES",
            "GET-ATTRIBUTES",
            "GET-OPERATIONS",
            "GET-ANNOTATIONS",
            "GET-MGMT-NODES",
            "GET-SCHEMA",
            "GET-JSON-SCHEMA",
            "GET-LOG",
        ),
    )


def _configuration_types(view: ManagementView) -> Iterable[EntityType]:
    all_operations = ("CREATE", "UPDATE", "DELETE", "READ")
    yield _of_section(
        ROUTER,
        _with_router_facts(view, _section_columns(ROUTER, lambda row: row.config)),
        _identified("router", lambda row: f"router/{row.config.id}", lambda row: f"router/{row.config.id}"),
        _totals(view),
        operations=("READ", "UPDATE"),
        config_of=lambda row: row.config,
        row_of=lambda config: _RouterRow(config, Counters()),
        rows=lambda view, offset: islice(
            (_RouterRow(view.configuration.router, view.counters()),), offset, None
        ),
    )
    yield _of_section(
        NETWORK,
        _section_columns(NETWORK, lambda n: n),
        _identified("network", lambda _: "network/0", lambda _: "network/0"),
        operations=("UPDATE", "READ"),
    )
    yield _of_section(
        SITE,
        _section_columns(SITE, lambda s: s, without=("name",)),
        _identified("site", lambda s: s.name or "site/0", lambda _: "site/0"),
    )
    yield _of_section(
        SSL_PROFILE,
        _section_columns(SSL_PROFILE, lambda p: p, without=("name",)),
        _identified("sslProfile", lambda p: p.name, lambda p: f"sslProfile/{p.name}"),
        operations=all_operations,
    )
    yield _of_section(
        LISTENER,
        _section_columns(LISTENER, lambda row: row.config, without=("name",)),
        {
            "operStatus": lambda row: "up" if row.listening else "down",
            "connectionMsg": lambda row: row.message,
        },
        _identified("listener", lambda row: row.config.name, lambda row: row.config.identity),
        operations=all_operations,
        rows=lambda view, offset: islice(view.listeners(), offset, None),
        config_of=lambda row: row.config,
        row_of=lambda config: ListenerRow(config, listening=False),
        why_kept=lambda listener: _HTTP_KEPT if listener.http else None,
    )
    yield _of_section(
        CONNECTOR,
        _section_columns(CONNECTOR, lambda row: row.config, without=("name",)),
        {"failoverUrls": constant(None), **columns.CONNECTOR_STATE},
        _identified("connector", lambda row: row.config.name, lambda row: row.config.identity),
        operations=all_operations,
        rows=lambda view, offset: view.connectors(offset),
        config_of=lambda row: row.config,
        row_of=lambda config: ConnectorRow(config, state="connecting"),
    )
    yield _of_section(
        ADDRESS,
        _identified("router.config.address", _address_identity, _address_identity),
        _section_columns(ADDRESS, lambda a: a, without=("name",))
        | {
            "priority": _address_priority,
            "waypoint": lambda a: a.phases == (0, 1),
            "ingressPhase": lambda a: a.phases[0],
            "egressPhase": lambda a: a.phases[1],
        },
        operations=all_operations,
    )
    yield _of_section(
        AUTO_LINK,
        _identified(
            "router.config.autoLink",
            lambda row: _link_identity("autoLink", row.config.address, row.config),
            lambda row: _link_identity("autoLink", row.config.address, row.config),
        ),
        _section_columns(AUTO_LINK, lambda row: row.config, without=("name",))
        | {"phase": lambda row: row.phase, "addr": lambda row: row.config.address}
        | dict(_DIR),
        {
            "linkRef": lambda row: None if row.link_id is None else str(row.link_id),
            "operStatus": lambda row: row.oper_status,
            "lastError": lambda row: row.last_error,
        },
        operations=all_operations,
        rows=lambda view, offset: view.auto_links(offset),
        config_of=lambda row: row.config,
        row_of=lambda config: AutoLinkRow(config, oper_status="inactive", phase=config.phase),
    )
    yield _of_section(
        LINK_ROUTE,
        _identified(
            "router.config.linkRoute",
            lambda row: _link_identity("linkRoute", row.config.prefix or row.config.pattern, row.config),
            lambda row: _link_identity("linkRoute", row.config.prefix or row.config.pattern, row.config),
        ),
        _section_columns(LINK_ROUTE, lambda row: row.config, without=("name",)),
        {"operStatus": lambda row: "active" if row.active else "inactive", **_DIR},
        operations=all_operations,
        rows=lambda view, offset: view.link_routes(offset),
        config_of=lambda row: row.config,
        row_of=LinkRouteRow,
    )
    yield _of_section(
        POLICY,
        _section_columns(POLICY, lambda _: view.configuration.policy),
        policy.POLICY_STATS,
        _identified("policy", lambda _: "policy/0", lambda _: "policy/0"),
        rows=lambda view, offset: islice((view.policy(),), offset, None),
    )
    yield _of_section(
        VHOST,
        _section_columns(VHOST, lambda v: v, without=("name",))
        | {"groups": policy.groups_of_vhost, "maxMessageSize": policy.message_size_of_vhost(view)},
        _identified("vhost", lambda v: v.name or v.hostname, lambda v: f"vhost/{v.hostname}"),
        operations=("CREATE", "UPDATE", "DELETE", "READ"),
    )
    yield _of_section(
        LOG,
        _section_columns(LOG, lambda log: log),
        _identified("log", lambda log: f"log/{log.module}", lambda log: f"log/{log.module}"),
        operations=all_operations,
        rows=lambda view, offset: islice(_log_rows(view), offset, None),
    )


_DIR: Columns[AutoLinkRow | LinkRouteRow] = {"dir": lambda row: str(row.config.direction)}
"""What qpid-dispatch calls the direction as well."""
_HTTP_KEPT = "probes, metrics and status depend on it; only the configuration file can change it"


def _of_section(
    section: Section,
    *parts: Columns[Any],
    operations: tuple[str, ...] = ("READ",),
    rows: Callable[[ManagementView, int], Iterator[Any]] | None = None,
    config_of: Callable[[Any], object] = lambda row: row,
    row_of: Callable[[Any], object] = lambda config: config,
    why_kept: Callable[[Any], str | None] = lambda config: None,
) -> EntityType:
    all_columns: dict[str, Callable[[Any], object]] = {}
    for part in parts:
        all_columns.update(part)

    def configured(view: ManagementView, offset: int) -> Iterator[Any]:
        return islice(entities_in(view.configuration, section), offset, None)

    return EntityType(
        section.short_type,
        section.description,
        all_columns,
        rows or configured,
        operations=operations,
        section=section,
        config_of=config_of,
        row_of=row_of,
        why_kept=why_kept,
    )


def _identified(
    short_name: str, name: Callable[[Any], object], identity: Callable[[Any], object]
) -> Columns[Any]:
    return {"name": name, "identity": identity, "type": constant(PREFIX + short_name)}


def _section_columns(
    section: Section, config_of: Callable[[Any], object], without: tuple[str, ...] = ()
) -> dict[str, Callable[[Any], object]]:
    return {
        attribute.name: _column(attribute, config_of)
        for attribute in section.attributes
        if attribute.name not in without
    }


def _column(attribute: Attribute, config_of: Callable[[Any], object]) -> Callable[[Any], object]:
    kind, name = attribute.kind, attribute.field
    if kind is Kind.SECRET:
        return constant(None)

    def read(row: Any) -> object:
        value: Any = getattr(config_of(row), name, attribute.default)
        if value is None:
            return None
        if kind is Kind.PORT:
            return str(value)
        if kind is Kind.WORDS:
            return " ".join(value)
        if kind is Kind.LIST:
            return ", ".join(value)
        if kind is Kind.ENUM:
            return value.label if isinstance(value, Role | ManagementLevel) else str(value)
        return value

    return read


def _with_router_facts(
    view: ManagementView, router: dict[str, Callable[[Any], object]]
) -> dict[str, Callable[[Any], object]]:
    result: dict[str, Callable[[Any], object]] = {}
    for name, read in router.items():
        result[name] = read
        if name == "mode":
            result["area"] = constant("0")
            result["version"] = lambda _: view.version
            result["hostName"] = lambda _: view.host_name
    return result


@dataclass(frozen=True, slots=True)
class _RouterRow:
    config: RouterConfig
    counters: Counters


def _totals(view: ManagementView) -> Columns[_RouterRow]:
    """qpid-dispatch's tools look for the columns of `routerMetrics` in `router`."""

    def of_counters(read: Callable[[Counters], object]) -> Callable[[_RouterRow], object]:
        return lambda row: read(row.counters)

    own = ("identity", "type", "id", "version")
    totals = columns.metrics_columns(view)
    return {name: of_counters(read) for name, read in totals.items() if name not in own}


def _address_priority(address: AddressConfig) -> object:
    return -1 if address.priority is None else address.priority


def _address_identity(address: AddressConfig) -> str:
    return address.name or f"router.config.address/{address.prefix or address.pattern}"


def _link_identity(kind: str, address: str | None, config: AutoLinkConfig | LinkRouteConfig) -> str:
    if config.name:
        return config.name
    peer = config.container_id or config.connection or ""
    return f"router.config.{kind}/{config.direction}/{peer}/{address or ''}"


def _logged(view: ManagementView, level: str, module: str) -> object:
    return ULong(view.log_counts().get((module, level), 0))


def _log_rows(view: ManagementView) -> Iterator[LogConfig]:
    configured = {log.module: log for log in view.configuration.logs}
    for module in LOG_MODULES:
        level = "info+" if module == "DEFAULT" else "default"
        yield configured.get(module) or LogConfig(module, level, True, None, None)


def _empty(name: str, *attributes: str) -> EntityType:
    return EntityType(
        name,
        "Known to management tools; there are none on this router.",
        {attribute: constant(None) for attribute in (*attributes, "name", "identity", "type")},
        lambda view, offset: iter(()),
        lenient=True,
        listed=False,
    )


_EMPTY_TYPES = (
    _empty("allocator", "typeName", "typeSize", "totalAllocFromHeap", "totalFreeToHeap", "heldByThreads"),
    _empty("tcpListener", "address", "host", "port", "operStatus"),
    _empty("tcpConnector", "address", "host", "port"),
    _empty("tcpConnection", "address", "host", "direction"),
    _empty("proxyProfile", "host", "port", "username"),
)


def find_type(types: Mapping[str, EntityType], name: str) -> EntityType | None:
    """The type with that short or full name."""
    for prefix in (PREFIX, OTHER_PREFIX):
        if name.startswith(prefix):
            return types.get(name.removeprefix(prefix))
    if name == AMQP_MANAGEMENT:
        return types["management"]
    return types.get(name)
