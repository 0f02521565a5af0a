"""What changed between two configurations, in the terms in which a running router applies it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

from isthmus_router.config.attributes import Attribute, Section, Update
from isthmus_router.config.model import (
    AddressConfig,
    AutoLinkConfig,
    Configuration,
    ConnectorConfig,
    LinkRouteConfig,
    ListenerConfig,
    LogConfig,
    NetworkConfig,
    RouterConfig,
    SslProfileConfig,
    VhostConfig,
)
from isthmus_router.config.relay_model import RelayAddressConfig, RelayRemoteConfig, RelaySiteConfig
from isthmus_router.config.tables.relay import RELAY_SITE
from isthmus_router.config.tables.router import NETWORK, ROUTER, SITE

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class EntityChanges(Generic[_T]):
    """Entities of one section, matched by their key (the name, where there is one)."""

    added: tuple[_T, ...] = ()
    removed: tuple[_T, ...] = ()
    changed: tuple[tuple[_T, _T], ...] = ()
    """Pairs of old and new."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True)
class SslProfileChange:
    """A profile that exists before and after, and differs."""

    old: SslProfileConfig
    new: SslProfileConfig

    @property
    def oldest_valid_raised(self) -> bool:
        """Connections of generations older than `new.oldest_valid_ordinal` must be closed."""
        return self.new.oldest_valid_ordinal > self.old.oldest_valid_ordinal


@dataclass(frozen=True, slots=True)
class RelaySiteChange:
    """A section `relaySite` that is new, gone or different."""

    old: RelaySiteConfig | None
    new: RelaySiteConfig | None

    @property
    def rejoin(self) -> bool:
        """The member `old` leaves and `new` joins; else everything that differs is taken over by who runs."""
        return None in (self.old, self.new) or any(_differing(RELAY_SITE, Update.REPLACE, self.old, self.new))


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that differs. False when nothing does."""

    listeners: EntityChanges[ListenerConfig]
    connectors: EntityChanges[ConnectorConfig]
    addresses: EntityChanges[AddressConfig]
    link_routes: EntityChanges[LinkRouteConfig]
    auto_links: EntityChanges[AutoLinkConfig]
    logs: EntityChanges[LogConfig]
    vhosts: EntityChanges[VhostConfig]
    relay_remotes: EntityChanges[RelayRemoteConfig]
    relay_addresses: EntityChanges[RelayAddressConfig]
    relay_site: RelaySiteChange | None = None
    policy: bool = False
    """Whether the policy section changed."""
    ssl_profiles_added: tuple[SslProfileConfig, ...] = ()
    ssl_profiles_removed: tuple[SslProfileConfig, ...] = ()
    ssl_profiles_changed: tuple[SslProfileChange, ...] = ()
    network: NetworkConfig | None = None
    """The new network section, when it changed."""
    router: RouterConfig | None = None
    """The new router section, when something in it changed that can while it runs."""
    needs_restart: tuple[str, ...] = ()
    """Changes that a running router refuses, e.g. `router.mode: interior -> edge`."""
    refused: tuple[str, ...] = ()
    """Changes that are never possible, such as a lowered ordinal."""

    def __bool__(self) -> bool:
        return any(bool(getattr(self, field.name)) for field in fields(self))

    def summary(self) -> dict[str, list[str]]:
        """Identities of the entities `added`, `removed` and `changed`; without those that are empty."""
        sections = (
            self.listeners, self.connectors, self.addresses, self.link_routes, self.auto_links, self.vhosts, self.logs,
            self.relay_remotes, self.relay_addresses,
        )  # fmt: skip
        found: dict[str, list[Any]] = {
            "added": [item for section in sections for item in section.added],
            "removed": [item for section in sections for item in section.removed],
            "changed": [new for section in sections for _, new in section.changed],
        }
        found["added"] += self.ssl_profiles_added
        found["removed"] += self.ssl_profiles_removed
        found["changed"] += [change.new for change in self.ssl_profiles_changed]
        labels = {verb: [_label(item) for item in items] for verb, items in found.items() if items}
        if self.relay_site is not None:
            verb = "added" if not self.relay_site.old else "changed" if self.relay_site.new else "removed"
            labels.setdefault(verb, []).append("relaySite")
        if self.policy:
            labels.setdefault("changed", []).append("policy")
        return labels


def _label(item: Any) -> str:
    if isinstance(item, ListenerConfig | ConnectorConfig):
        return item.identity
    if isinstance(item, LogConfig):
        return f"log/{item.module}"
    if isinstance(item, SslProfileConfig):
        return f"sslProfile/{item.name}"
    if isinstance(item, VhostConfig):
        return f"vhost/{item.hostname}"
    if isinstance(item, RelayRemoteConfig):
        return f"relayRemote/{item.site}"
    if isinstance(item, RelayAddressConfig):
        return f"relayAddress/{item.pattern}"
    section = {AddressConfig: "address", LinkRouteConfig: "linkRoute", AutoLinkConfig: "autoLink"}[type(item)]
    return f"{section}/{_key(item)}"


def _key(item: AddressConfig | LinkRouteConfig | AutoLinkConfig) -> str:
    if isinstance(item, AutoLinkConfig):
        return item.name or item.address or ""
    return item.name or item.prefix or item.pattern or ""


def diff(old: Configuration, new: Configuration) -> Changes:
    """The changes that lead from `old` to `new`."""
    profiles = _changes("sslProfile", old.ssl_profiles.values(), new.ssl_profiles.values())
    profile_changes = tuple(SslProfileChange(before, after) for before, after in profiles.changed)
    return Changes(
        listeners=_changes("listener", old.listeners, new.listeners),
        connectors=_changes("connector", old.connectors, new.connectors),
        addresses=_changes("address", old.addresses, new.addresses),
        link_routes=_changes("linkRoute", old.link_routes, new.link_routes),
        auto_links=_changes("autoLink", old.auto_links, new.auto_links),
        logs=_changes("log", old.logs, new.logs),
        vhosts=_changes("vhost", old.vhosts, new.vhosts),
        relay_remotes=_changes("relayRemote", old.relay_remotes, new.relay_remotes),
        relay_addresses=_changes("relayAddress", old.relay_addresses, new.relay_addresses),
        relay_site=(
            RelaySiteChange(old.relay_site, new.relay_site) if old.relay_site != new.relay_site else None
        ),
        policy=old.policy != new.policy,
        ssl_profiles_added=profiles.added,
        ssl_profiles_removed=profiles.removed,
        ssl_profiles_changed=profile_changes,
        network=new.network if old.network != new.network else None,
        router=new.router if any(_differing(ROUTER, Update.LIVE, old.router, new.router)) else None,
        needs_restart=(
            *_restarts(ROUTER, old.router, new.router),
            *_restarts(NETWORK, old.network, new.network),
            *_restarts(SITE, old.site, new.site),
        ),
        refused=tuple(message for change in profile_changes for message in _lowered(change)),
    )


def _changes(section: str, old: Iterable[_T], new: Iterable[_T]) -> EntityChanges[_T]:
    key = KEYS[section]
    before = {key(entity): entity for entity in old}
    after = {key(entity): entity for entity in new}
    return EntityChanges(
        added=tuple(entity for k, entity in after.items() if k not in before),
        removed=tuple(entity for k, entity in before.items() if k not in after),
        changed=tuple((before[k], entity) for k, entity in after.items() if before.get(k, entity) != entity),
    )


def _link_route_key(route: LinkRouteConfig) -> Hashable:
    return (
        route.name,
        route.prefix,
        route.pattern,
        route.direction,
        route.container_id,
        route.connection,
    )


def _auto_link_key(link: AutoLinkConfig) -> Hashable:
    return (
        link.name,
        link.address,
        link.direction,
        link.container_id,
        link.connection,
        link.external_address,
        link.phase,
    )


KEYS: Mapping[str, Callable[[Any], Hashable]] = {
    "sslProfile": attrgetter("name"),
    "listener": attrgetter("name"),
    "connector": attrgetter("name"),
    "address": attrgetter("prefix", "pattern"),
    "linkRoute": _link_route_key,
    "autoLink": _auto_link_key,
    "relayRemote": attrgetter("site"),
    "relayAddress": attrgetter("pattern"),
    "log": attrgetter("module"),
    "vhost": attrgetter("hostname"),
}
"""What tells the entities of a section apart."""


def _restarts(section: Section, old: object, new: object) -> Iterator[str]:
    for attribute in _differing(section, Update.RESTART, old, new):
        before, after = getattr(old, attribute.field), getattr(new, attribute.field)
        yield f"{section.name}.{attribute.name}: {before} -> {after}"


def _differing(section: Section, update: Update, old: object, new: object) -> Iterator[Attribute]:
    for attribute in section.attributes:
        differs = getattr(old, attribute.field, None) != getattr(new, attribute.field, None)
        if differs and attribute.update is update and not attribute.inert:
            yield attribute


def _lowered(change: SslProfileChange) -> Iterator[str]:
    for attribute, before, after in (
        ("ordinal", change.old.ordinal, change.new.ordinal),
        ("oldestValidOrdinal", change.old.oldest_valid_ordinal, change.new.oldest_valid_ordinal),
    ):
        if after < before:
            yield f"sslProfile {change.new.name!r}.{attribute}: {before} -> {after}, it can only be raised"
