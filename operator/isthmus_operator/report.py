"""What a router says of itself at `/status`, as far as decisions depend on it. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, get_args

from .certificate_reports import GossipReport
from .flow_reports import CollectorReport, ProgressReport
from .resources.relaysite_status import RemoteState
from .untrusted import (
    FAILURES,
    count,
    flag,
    listed,
    malformed,
    mapping,
    name,
    objects,
    optional_count,
    optional_name,
    seconds,
    text,
    total,
)

MAX_ORDINAL = 2**31 - 1
MAX_VIEW = 2**63 - 1
LAGGING_MILLISECONDS = 1000
"""While a site has not acknowledged a message of this age, its numbers are told with each poll."""


@dataclass(frozen=True)
class ConnectorReport:
    """State of one connector in one router."""

    state: str
    """`open`, `connecting` or `failed`."""
    message: str
    ordinal: int | None = None
    """TLS ordinal of the present connection."""


AutoLinkKey = tuple[str, str | None, str, str | None]
"""Connection, address, direction and external address."""


@dataclass(frozen=True)
class AutoLinkReport:
    """One `autoLink` section of a router."""

    connector: str | None
    address: str | None
    direction: str
    external_address: str | None
    phase: int | None
    """As configured, else the one that the router has chosen."""
    state: str
    """`active`, `attaching`, `failed` or `inactive`."""
    message: str


@dataclass(frozen=True)
class RefusalReport:
    """The last link that a router has refused by a link route."""

    address: str
    description: str
    at: datetime
    """To a few seconds."""


@dataclass(frozen=True)
class LinkRouteReport:
    """One `linkRoute` section of a router."""

    direction: str
    prefix: str | None
    pattern: str | None
    connection: str | None
    container_id: str | None
    destinations: int
    """Containers of this router that take its links."""
    elsewhere: bool
    """Other routers have such containers."""
    links: int = field(compare=False)
    refusals: int = field(compare=False)
    last_refusal: RefusalReport | None = field(compare=False)
    """These change too often to be news."""


@dataclass(frozen=True)
class UplinkReport:
    """An open uplink of an edge router."""

    connector: str
    router: str
    """Id of the interior router at the other end."""
    ordinal: int | None
    """TLS ordinal."""


@dataclass(frozen=True)
class EdgeReport:
    """The uplinks of an edge router."""

    active: UplinkReport | None
    standbys: tuple[UplinkReport, ...]
    proxied_addresses: int = field(compare=False)
    """Changes too often to be news."""


@dataclass(frozen=True)
class ProfileReport:
    """One `sslProfile` section in use."""

    ordinal: int
    ordinals: frozenset[int]
    """Those that have connections."""
    connections: Mapping[int, int] = field(compare=False)
    """Ordinal to number of open connections. Changes too often to be news."""


@dataclass(frozen=True)
class MemberReport:
    """A member of a site's view."""

    id: str
    name: str
    relay: bool


@dataclass(frozen=True)
class RemoteReport:
    """Another site, as one member sees it."""

    site: str
    state: str
    members: tuple[str, ...]
    problem: str
    dropped: int
    gaps: int
    lag_messages: int = field(compare=False)
    lag_bytes: int = field(compare=False)
    lag_milliseconds: int = field(compare=False)
    replayed: int = field(compare=False)
    duplicates: int = field(compare=False)
    """These change too often to be news."""


@dataclass(frozen=True)
class RelayReport:
    """A router as a member of a site."""

    group: str
    site: str
    view: int
    members: tuple[MemberReport, ...]
    """The coordinator first."""
    remotes: tuple[RemoteReport, ...]
    problems: tuple[str, ...]
    accepts: bool
    """Enough members or sites can hold a message for its sender to be told `accepted`."""


@dataclass(frozen=True)
class RouterReport:
    """What decisions depend on, of one answer of `/status`."""

    id: str
    version: str
    ready: bool
    config_hash: str
    neighbors: tuple[str, ...]
    nodes: frozenset[str]
    """Ids of all routers it can reach."""
    connectors: Mapping[str, ConnectorReport]
    failed_listeners: Mapping[str, str]
    """Name to message."""
    config_error: str | None
    edge: EdgeReport | None = None
    profiles: Mapping[str, ProfileReport] = field(default_factory=dict)
    """By name of the section; none from a router that does not tell."""
    auto_links: tuple[AutoLinkReport, ...] = ()
    link_routes: Mapping[str, LinkRouteReport] | None = None
    """By name, those that have one; None from a router that routes no links."""
    more_link_routes: bool = False
    """It has more than it lists."""
    relay: RelayReport | None = None
    """Of a router that is a member of a site."""
    policy_denials: int = field(default=0, compare=False)
    """Changes too often to be news."""

    @cached_property
    def auto_links_by_address(self) -> Mapping[AutoLinkKey, Mapping[int | None, AutoLinkReport]]:
        """What each auto-link is, by phase: one for each, however often the answer lists it."""
        found: dict[AutoLinkKey, dict[int | None, AutoLinkReport]] = {}
        for item in self.auto_links:
            if item.connector is not None:
                key = (item.connector, item.address, item.direction, item.external_address)
                found.setdefault(key, {})[item.phase] = item
        return found

    @property
    def lags(self) -> bool:
        """A remote site is so far behind that people watch it."""
        remotes = self.relay.remotes if self.relay is not None else ()
        return any(item.lag_milliseconds >= LAGGING_MILLISECONDS for item in remotes)

    @property
    def numbers(self) -> tuple[object, ...]:
        """What is told now and then only."""
        return (
            self.edge.proxied_addresses if self.edge is not None else None,
            self.policy_denials,
            tuple(tuple(item.connections.items()) for item in self.profiles.values()),
            tuple((item.links, item.refusals) for item in (self.link_routes or {}).values()),
            tuple(
                (item.lag_messages, item.lag_bytes, item.lag_milliseconds, item.replayed, item.duplicates)
                for item in (self.relay.remotes if self.relay is not None else ())
            ),
        )


Report = RouterReport | GossipReport | CollectorReport | ProgressReport


@dataclass(frozen=True)
class Observation:
    """The last report of a pod; without one, why there is none."""

    report: Report | None
    error: str = ""
    """A predicate whose subject is the pod: "does not answer ..."."""


def occupied(report: Report | None) -> int:
    """Bytes of memory of a report, with all that is in it and what is computed of it later."""
    if isinstance(report, RouterReport):
        _ = report.auto_links_by_address  # it stays in the report
    size = 0
    rest: list[Any] = [report]
    while rest:
        item = rest.pop()
        size += sys.getsizeof(item)
        if isinstance(item, Mapping):
            rest += item
            rest += item.values()
        elif isinstance(item, tuple | frozenset):
            rest += item
        elif is_dataclass(item):
            rest.append(item.__dict__)
    return size


def parse_report(answer: Mapping[str, Any], now: datetime) -> RouterReport:
    """The report in an answer of `/status` that came at `now`. Raises ValueError when it is not one.

    The router may be hostile: no value gets into a report unless its type, range and length are those of the resource's
    schema, so that no router can keep the API server from accepting a status.
    """
    try:
        router = mapping(answer["router"])
        return RouterReport(
            id=name(router["id"]),
            version=text(router.get("version", ""), 64),
            ready=flag(router.get("ready", False)),
            config_hash=text(router.get("configHash", ""), 128),
            neighbors=tuple(sorted(_neighbors(answer))),
            nodes=frozenset(name(item["id"]) for item in objects(answer.get("nodes"))),
            connectors={
                name(item["name"]): ConnectorReport(
                    text(item["state"], 64), text(item.get("message") or ""), _ordinal(item.get("tlsOrdinal"))
                )
                for item in objects(answer.get("connectors"))
            },
            failed_listeners={
                name(item["name"]): text(item.get("message") or item["state"])
                for item in objects(answer.get("listeners"))
                if item.get("state") == "failed"
            },
            config_error=text(answer.get("lastConfigError") or "") or None,
            edge=_edge(mapping(answer["edge"])) if answer.get("edge") is not None else None,
            profiles={name(item["name"]): _profile(item) for item in objects(answer.get("sslProfiles"))},
            auto_links=tuple(_auto_link(item) for item in objects(answer.get("autoLinks"))),
            link_routes=(
                {
                    name(item["name"]): _link_route(item, now)
                    for item in objects(answer["linkRoutes"])
                    if item["name"]
                }
                if "linkRoutes" in answer
                else None
            ),
            more_link_routes=count(answer.get("linkRoutesTotal", 0)) > len(listed(answer.get("linkRoutes"))),
            relay=_relay(mapping(answer["relay"])) if answer.get("relay") is not None else None,
            policy_denials=_total(answer.get("policyDenials") or {}),
        )
    except FAILURES as error:
        raise malformed("a router's status", error) from None


def _ordinal(value: object) -> int | None:
    return optional_count(value, MAX_ORDINAL)


def _total(counts: object) -> int:
    return total(map(count, mapping(counts).values()))


def _profile(item: Mapping[str, Any]) -> ProfileReport:
    counts = {
        count(int(name(ordinal)), MAX_ORDINAL): count(number)
        for ordinal, number in mapping(item.get("connections") or {}).items()
    }
    used = frozenset(ordinal for ordinal, number in counts.items() if number)
    return ProfileReport(count(item["ordinal"], MAX_ORDINAL), used, counts)


def _auto_link(item: Mapping[str, Any]) -> AutoLinkReport:
    return AutoLinkReport(
        connector=optional_name(item["connection"]),
        address=_address(item["address"]),
        direction=text(item["direction"], 8),
        external_address=_address(item["externalAddress"]),
        phase=optional_count(item["phase"], 9),
        state=text(item["state"], 64),
        message=text(item["message"]),
    )


def _address(value: object) -> str | None:
    return None if value is None else text(value)


def _link_route(item: Mapping[str, Any], now: datetime) -> LinkRouteReport:
    refusal = item["lastRefusal"]
    return LinkRouteReport(
        direction=text(item["direction"], 8),
        prefix=_address(item["prefix"]),
        pattern=_address(item["pattern"]),
        connection=optional_name(item["connection"]),
        container_id=optional_name(item["containerId"]),
        destinations=count(item["destinations"]),
        elsewhere=count(item["remote"]) > 0,
        links=count(item["links"]),
        refusals=count(item["refusals"]),
        last_refusal=_refusal(mapping(refusal), now) if refusal is not None else None,
    )


def _relay(relay: Mapping[str, Any]) -> RelayReport:
    # The list in the status has the id as its key, and the API server refuses one that is there twice.
    members = {
        text(item["id"], 36): MemberReport(text(item["id"], 36), name(item["name"]), flag(item["relay"]))
        for item in objects(relay["members"])
    }
    return RelayReport(
        group=name(relay["group"]),
        site=text(relay["site"], 63),
        view=count(relay["view"], MAX_VIEW),
        members=tuple(members.values()),
        remotes=tuple(_remote(item) for item in objects(relay["remotes"])),
        problems=tuple(text(item) for item in listed(relay["problems"])),
        accepts=flag(relay["accepts"]),
    )


def _remote(item: Mapping[str, Any]) -> RemoteReport:
    state = text(item["state"], 64)
    return RemoteReport(
        site=text(item["site"], 63),
        state=state if state in get_args(RemoteState) else "unknown",
        members=tuple(name(member) for member in listed(item["members"])),
        problem=text(item["problem"]),
        dropped=count(item["droppedMessages"]),
        gaps=count(item["gapMessages"]),
        lag_messages=count(item["lagMessages"]),
        lag_bytes=count(item["lagBytes"]),
        lag_milliseconds=round(seconds(item["lagSeconds"]) * 1000),
        replayed=count(item["replayedMessages"]),
        duplicates=count(item["duplicateMessages"]),
    )


def _refusal(item: Mapping[str, Any], now: datetime) -> RefusalReport:
    at = now - timedelta(seconds=seconds(item["secondsAgo"]))
    return RefusalReport(text(item["address"]), text(item["description"]), at)


def _edge(edge: Mapping[str, Any]) -> EdgeReport:
    active = edge["active"]
    return EdgeReport(
        active=_uplink(mapping(active)) if active is not None else None,
        standbys=tuple(_uplink(item) for item in objects(edge["standbys"])),
        proxied_addresses=count(edge["proxiedAddresses"]),
    )


def _uplink(uplink: Mapping[str, Any]) -> UplinkReport:
    return UplinkReport(name(uplink["connector"]), name(uplink["container"]), _ordinal(uplink["tlsOrdinal"]))


def _neighbors(answer: Mapping[str, Any]) -> set[str]:
    """Interior routers with a link to this one; for an edge router the one that its uplink goes to."""
    attached = (
        item
        for item in objects(answer.get("connectors"))
        if (item.get("role"), item["state"]) == ("edge", "open") and item.get("active") is not False
    )
    return {name(item["id"]) for item in objects(answer.get("neighbors"))} | {
        name(item["container"]) for item in attached if item.get("container")
    }
