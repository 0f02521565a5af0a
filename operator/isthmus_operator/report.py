"""What a router says of itself at `/status`, as far as decisions depend on it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from .flow_reports import CollectorReport, ProgressReport

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


Report = RouterReport | CollectorReport | ProgressReport


@dataclass(frozen=True)
class Observation:
    """The last report of a pod; without one, why there is none."""

    report: Report | None
    error: str = ""
    """A predicate whose subject is the pod: "does not answer ..."."""


def parse_report(answer: Mapping[str, Any], now: datetime) -> RouterReport:
    """The report in an answer of `/status` that came at `now`. Raises ValueError when it is not one."""
    try:
        router = answer["router"]
        return RouterReport(
            id=str(router["id"]),
            version=str(router.get("version", "")),
            ready=bool(router.get("ready", False)),
            config_hash=str(router.get("configHash", "")),
            neighbors=tuple(sorted(_neighbors(answer))),
            nodes=frozenset(str(item["id"]) for item in answer.get("nodes") or ()),
            connectors={
                str(item["name"]): ConnectorReport(
                    str(item["state"]), str(item.get("message") or ""), item.get("tlsOrdinal")
                )
                for item in answer.get("connectors") or ()
            },
            failed_listeners={
                str(item["name"]): str(item.get("message") or item["state"])
                for item in answer.get("listeners") or ()
                if item.get("state") == "failed"
            },
            config_error=answer.get("lastConfigError") or None,
            edge=_edge(answer["edge"]) if answer.get("edge") is not None else None,
            profiles={str(item["name"]): _profile(item) for item in answer.get("sslProfiles") or ()},
            auto_links=tuple(_auto_link(item) for item in answer.get("autoLinks") or ()),
            link_routes=(
                {str(item["name"]): _link_route(item, now) for item in answer["linkRoutes"] if item["name"]}
                if "linkRoutes" in answer
                else None
            ),
            more_link_routes=int(answer.get("linkRoutesTotal", 0)) > len(answer.get("linkRoutes") or ()),
            relay=_relay(answer["relay"]) if answer.get("relay") is not None else None,
            policy_denials=sum(map(int, (answer.get("policyDenials") or {}).values())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"not a router's status: {error!r}") from None


def _profile(item: Mapping[str, Any]) -> ProfileReport:
    counts = {int(ordinal): int(number) for ordinal, number in (item.get("connections") or {}).items()}
    used = frozenset(ordinal for ordinal, number in counts.items() if number)
    return ProfileReport(int(item["ordinal"]), used, counts)


def _auto_link(item: Mapping[str, Any]) -> AutoLinkReport:
    return AutoLinkReport(
        connector=item["connection"],
        address=item["address"],
        direction=str(item["direction"]),
        external_address=item["externalAddress"],
        phase=item["phase"],
        state=str(item["state"]),
        message=str(item["message"]),
    )


def _link_route(item: Mapping[str, Any], now: datetime) -> LinkRouteReport:
    refusal = item["lastRefusal"]
    return LinkRouteReport(
        direction=str(item["direction"]),
        prefix=item["prefix"],
        pattern=item["pattern"],
        connection=item["connection"],
        container_id=item["containerId"],
        destinations=int(item["destinations"]),
        elsewhere=int(item["remote"]) > 0,
        links=int(item["links"]),
        refusals=int(item["refusals"]),
        last_refusal=_refusal(refusal, now) if refusal is not None else None,
    )


def _relay(relay: Mapping[str, Any]) -> RelayReport:
    return RelayReport(
        group=str(relay["group"]),
        site=str(relay["site"]),
        view=int(relay["view"]),
        members=tuple(
            MemberReport(str(item["id"]), str(item["name"]), bool(item["relay"])) for item in relay["members"]
        ),
        remotes=tuple(_remote(item) for item in relay["remotes"]),
        problems=tuple(str(item) for item in relay["problems"]),
        accepts=bool(relay["accepts"]),
    )


def _remote(item: Mapping[str, Any]) -> RemoteReport:
    return RemoteReport(
        site=str(item["site"]),
        state=str(item["state"]),
        members=tuple(str(name) for name in item["members"]),
        problem=str(item["problem"]),
        dropped=int(item["droppedMessages"]),
        gaps=int(item["gapMessages"]),
        lag_messages=int(item["lagMessages"]),
        lag_bytes=int(item["lagBytes"]),
        lag_milliseconds=round(float(item["lagSeconds"]) * 1000),
        replayed=int(item["replayedMessages"]),
        duplicates=int(item["duplicateMessages"]),
    )


def _refusal(item: Mapping[str, Any], now: datetime) -> RefusalReport:
    at = now - timedelta(seconds=float(item["secondsAgo"]))
    return RefusalReport(str(item["address"]), str(item["description"]), at)


def _edge(edge: Mapping[str, Any]) -> EdgeReport:
    active = edge["active"]
    return EdgeReport(
        active=_uplink(active) if active is not None else None,
        standbys=tuple(_uplink(item) for item in edge["standbys"]),
        proxied_addresses=int(edge["proxiedAddresses"]),
    )


def _uplink(uplink: Mapping[str, Any]) -> UplinkReport:
    return UplinkReport(str(uplink["connector"]), str(uplink["container"]), uplink["tlsOrdinal"])


def _neighbors(answer: Mapping[str, Any]) -> set[str]:
    """Interior routers with a link to this one; for an edge router the one that its uplink goes to."""
    attached = (
        item
        for item in answer.get("connectors") or ()
        if (item.get("role"), item["state"]) == ("edge", "open") and item.get("active") is not False
    )
    return {str(item["id"]) for item in answer.get("neighbors") or ()} | {
        str(item["container"]) for item in attached if item.get("container")
    }
