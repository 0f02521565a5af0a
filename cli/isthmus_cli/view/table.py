"""The view as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from .addresses import AddressRow
from .columns import Column, Columns
from .flows import FlowAnalysisRow, FlowLogRow
from .linkroutes import AutoLinkRow, LinkRouteRow
from .model import LinkRow, NetworkView, RouterRow
from .profiles import ProfileRow
from .sites import GossipRouterRow, RelaySiteRow, RemoteSiteRow

SHOWN = 20
"""Most rows of a table that grows with what clients and brokers do."""
_RELAYED = "relay/"
"""Addresses of groups: several for each member, of which few have consumers."""
_COLOURS = {
    **dict.fromkeys(("ready", "open", "active", "up"), "green"),
    **dict.fromkeys(
        ("starting", "connecting", "attaching", "rotating", "expiring", "questionable", "suspect"), "yellow"
    ),
}

_DENIED = "denied"
"""Only where a policy has refused something."""
_HTTP = "http"
"""Only where there are such addresses."""
_ROUTER_COLUMNS = (
    Column("id"),
    Column("mode", leaves=6),
    Column("site", leaves=5),
    Column("state"),
    Column("where", leaves=3),
    Column("up", number=True, leaves=4),
    Column("restarts", number=True, leaves=1),
    Column("neighbors", breaks=True, leaves=8),
    Column("reaches", number=True, leaves=2),
    Column("clients", number=True, leaves=7),
    Column("proxied", number=True, leaves=0),
    Column(_DENIED, number=True, leaves=2),
    Column("address", breaks=True),
    Column(_HTTP, leaves=0),
)
_LINK_COLUMNS = (
    Column("from"),
    Column("connector", leaves=4),
    Column("role", leaves=3),
    Column("to", breaks=True),
    Column("state"),
    Column("cost", number=True, leaves=1),
    Column("certificate", number=True, leaves=2),
    Column("message", breaks=True, leaves=1),
)
_PROFILE_COLUMNS = (
    Column("profile"),
    Column("state"),
    Column("ordinal", number=True),
    Column("oldest valid", number=True, leaves=2),
    Column("expires", leaves=3),
    Column("connections", breaks=True, leaves=4),
    Column("message", breaks=True, leaves=1),
)
_LINK_ROUTE_COLUMNS = (
    Column("link route"),
    Column("addresses"),
    Column("direction", leaves=4),
    Column("container", leaves=3),
    Column("state"),
    Column("destinations", number=True, leaves=5),
    Column("links", number=True),
    Column("refusals", number=True, leaves=2),
    Column("last refusal", breaks=True, leaves=1),
)
_SITE_COLUMNS = (
    Column("relay site"),
    Column("group", leaves=5),
    Column("site"),
    Column("state"),
    Column("members", number=True),
    Column("coordinator", leaves=4),
    Column("relays", leaves=1),
    Column("view", leaves=0),
    Column("global", number=True, leaves=1),
    Column("remote site"),
    Column("remote state"),
    Column("there", number=True, leaves=2),
    Column("lag", number=True),
    Column("lag ms", number=True, leaves=3),
    Column("dropped", number=True, leaves=6),
    Column("buffer", number=True, leaves=2),
    Column("replayed", number=True, leaves=1),
    Column("duplicates", number=True, leaves=0),
    Column("gaps", number=True, leaves=1),
)
_GOSSIP_COLUMNS = (
    Column("gossip router"),
    Column("state"),
    Column("ready", number=True, leaves=3),
    Column("address", breaks=True),
    Column("where", leaves=2),
)
_FLOW_LOG_COLUMNS = (
    Column("flow log"),
    Column("state"),
    Column("routers", number=True, leaves=4),
    Column("rows", number=True, leaves=3),
    Column("missed", number=True, leaves=1),
    Column("location", breaks=True),
    Column("where", leaves=2),
)
_FLOW_ANALYSIS_COLUMNS = (
    Column("flow analysis"),
    Column("log", leaves=2),
    Column("schedule", leaves=3),
    Column("state"),
    Column("done", number=True, leaves=4),
    Column("last run", leaves=1),
    Column("headline", breaks=True),
)
_AUTO_LINK_COLUMNS = (
    Column("router"),
    Column("container", leaves=3),
    Column("direction"),
    Column("address"),
    Column("there", leaves=2),
    Column("phase", number=True, leaves=1),
    Column("state"),
    Column("message", breaks=True, leaves=4),
)
_ADDRESS_COLUMNS = (
    Column("name"),
    Column("treatment", leaves=1),
    Column("consumers", number=True),
    Column("at", breaks=True, leaves=2),
)


def render(view: NetworkView, width: int | None = None) -> RenderableType:
    """The whole screen: headline, problems, routers, links, link routes, sites, gossip routers, flow logs and analyses,
    auto-links, certificates, addresses.

    Columns that matter less are left out until the tables fit `width` columns; None shows them all.
    """
    parts: list[RenderableType] = [_headline(view)]
    if view.problems:
        parts += ["", _problems(view.problems)]
    if view.routers:
        parts += ["", _routers(view.routers).drawn(width)]
    if view.links:
        parts += ["", _links(view.links).drawn(width)]
    if view.link_routes:
        parts += ["", _link_routes(view.link_routes).drawn(width)]
    if view.sites:
        parts += ["", _sites(view.sites).drawn(width)]
    if view.gossip_routers:
        parts += ["", _gossip_routers(view.gossip_routers).drawn(width)]
    if view.flow_logs:
        parts += ["", _flow_logs(view.flow_logs).drawn(width)]
    if view.flow_analyses:
        parts += ["", _flow_analyses(view.flow_analyses).drawn(width)]
    if view.auto_links:
        parts += ["", _auto_links(view.auto_links).drawn(width)]
    if view.profiles:
        parts += ["", _profiles(view.profiles).drawn(width)]
    if view.insecure:
        parts += ["", Text("Insecure", "bold")]
        parts += [Text(f"  {line}") for line in view.insecure]
    if view.addresses:
        parts += ["", _addresses(view.addresses, view.addresses_not_shown).drawn(width)]
    return Group(*parts)


def natural_width(view: NetworkView) -> int:
    """Columns at which `render` has no cell in more than one line."""
    lines = [len(line) + 2 for line in (*view.problems, *view.insecure)]
    tables = (
        _routers(view.routers),
        _links(view.links),
        _link_routes(view.link_routes),
        _sites(view.sites),
        _gossip_routers(view.gossip_routers),
        _flow_logs(view.flow_logs),
        _flow_analyses(view.flow_analyses),
        _auto_links(view.auto_links),
        _profiles(view.profiles),
        _addresses(view.addresses, 0),
    )
    return max(80, *lines, *(table.natural_width() for table in tables))


def _headline(view: NetworkView) -> Text:
    ready = sum(row.state == "ready" for row in view.routers)
    opened = sum(row.state == "open" for row in view.links)
    text = Text.assemble((view.network, "bold"), f" on {view.platform}: ")
    text.append(f"{ready} of {_count(len(view.routers), 'router')} ready, ")
    if view.asked:
        text.append(f"{opened} of {_count(len(view.links), 'link')} open, ")
        text.append(_count(len(view.addresses), "address", "addresses"))
        if view.link_routes:
            routes = sum(row.state == "ready" for row in view.link_routes)
            text.append(f", {routes} of {_count(len(view.link_routes), 'link route')} ready")
    else:
        text.append("links and addresses unknown")
    if view.problems:
        text.append(f", {_count(len(view.problems), 'problem')}", style="red")
    return text


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _state(state: str) -> Text:
    return Text(state, style=_COLOURS.get(state, "red"))


def _routers(rows: Iterable[RouterRow]) -> Columns:
    rows = list(rows)
    denied = any(row.denied for row in rows)
    http = any(row.http for row in rows)
    absent = {name for name, there in ((_DENIED, denied), (_HTTP, http)) if not there}
    table = Columns("Routers", tuple(column for column in _ROUTER_COLUMNS if column.name not in absent))
    for row in rows:
        table.add(
            row.id,
            row.mode,
            row.site or "-",
            _state(row.state),
            row.where,
            _duration(row.uptime_seconds),
            str(row.restarts),
            ", ".join(row.neighbors) or "-",
            _number(row.reaches),
            _number(row.clients),
            _number(row.proxied),
            *([_number(row.denied)] if denied else []),
            " ".join(row.endpoints) or "-",
            *([row.http or "-"] if http else []),
        )
    return table


def _links(rows: Iterable[LinkRow]) -> Columns:
    table = Columns("Links", _LINK_COLUMNS)
    for row in rows:
        ordinal = "-" if row.tls_ordinal is None else f"ordinal {row.tls_ordinal}"
        state, message = _state(row.state), row.message or ""
        if row.standby:
            state.append(", standby", style="dim")
        cost = _number(row.cost)
        table.add(row.router, row.connector, row.role, row.destination, state, cost, ordinal, message)
    return table


def _link_routes(rows: tuple[LinkRouteRow, ...]) -> Columns:
    table = Columns("Link routes", _LINK_ROUTE_COLUMNS)
    table.caption = _more(len(rows) - SHOWN)
    for row in sorted(rows, key=lambda row: row.state == "ready")[:SHOWN]:
        table.add(
            row.name,
            row.addresses,
            row.direction,
            row.connector or row.container or "-",
            _state(row.state),
            str(row.destinations),
            str(row.links),
            str(row.refusals),
            row.last_refusal or "-",
        )
    return table


def _sites(rows: Iterable[RelaySiteRow]) -> Columns:
    """A row for each remote site; one without any has one."""
    table = Columns("Relay sites", _SITE_COLUMNS)
    for row in rows:
        own = (
            *(row.name, row.group, row.site, _state(row.state), row.formed, row.coordinator or "-"),
            *(", ".join(row.relays) or "-", row.view or "-", str(row.global_members)),
        )
        for number, remote in enumerate(row.remotes or (None,)):
            first = own if number == 0 else ("",) * len(own)
            table.add(*first, *_remote(remote))
    return table


def _remote(row: RemoteSiteRow | None) -> tuple[str | Text, ...]:
    if row is None:
        return ("-",) * 10
    numbers = (row.members, row.lag_messages, row.lag_milliseconds, row.dropped)
    wide = (f"{row.buffer_percent}%", *map(str, (row.replayed, row.duplicates, row.gaps)))
    return (row.site, _state(row.state), *map(str, numbers), *wide)


def _gossip_routers(rows: Iterable[GossipRouterRow]) -> Columns:
    table = Columns("Gossip routers", _GOSSIP_COLUMNS)
    for row in rows:
        table.add(row.name, _state(row.state), row.ready, row.address or "-", row.where)
    return table


def _flow_logs(rows: Iterable[FlowLogRow]) -> Columns:
    table = Columns("Flow logs", _FLOW_LOG_COLUMNS)
    for row in rows:
        numbers = (str(row.routers), str(row.rows), str(row.missed))
        table.add(row.name, _state(row.state), *numbers, row.location, row.where)
    return table


def _flow_analyses(rows: Iterable[FlowAnalysisRow]) -> Columns:
    table = Columns("Flow analyses", _FLOW_ANALYSIS_COLUMNS)
    for row in rows:
        done = f"{row.percent}%" if row.percent is not None else "-"
        when = (row.name, row.flow_log, row.schedule or "-")
        table.add(*when, _state(row.state), done, row.last_run_at or "-", row.headline or "-")
    return table


def _auto_links(rows: tuple[AutoLinkRow, ...]) -> Columns:
    table = Columns("Auto-links", _AUTO_LINK_COLUMNS)
    table.caption = _more(len(rows) - SHOWN)
    for row in sorted(rows, key=lambda row: row.state == "active")[:SHOWN]:
        table.add(
            row.router,
            row.connector or row.container or "-",
            row.direction,
            row.address or "-",
            row.external_address or row.address or "-",
            _number(row.phase),
            _state(row.state),
            row.message or "",
        )
    return table


def _profiles(rows: Iterable[ProfileRow]) -> Columns:
    table = Columns("Certificates", _PROFILE_COLUMNS)
    for row in rows:
        used = [f"{item.connections} on {item.ordinal}" for item in row.connections if item.connections]
        table.add(
            row.name,
            _state(row.state),
            _number(row.ordinal),
            _number(row.oldest_valid),
            row.expires or "-",
            ", ".join(used) or "-",
            row.message or "",
        )
    return table


def _addresses(rows: tuple[AddressRow, ...], hidden: int) -> Columns:
    table = Columns("Addresses", _ADDRESS_COLUMNS)
    idle = {row.name for row in rows if row.name.startswith(_RELAYED) and not row.consumers}
    shown = [row for row in rows if row.name not in idle]
    for row in shown[:SHOWN]:
        at = [f"{item.router} ({item.consumers})" for item in row.at if item.consumers]
        table.add(row.name, row.distribution, str(row.consumers), ", ".join(at) or "-")
    more = _more(hidden + max(0, len(shown) - SHOWN))
    folded = f"{len(idle)} relay/... without consumers are not shown" if idle else None
    table.caption = "; ".join(filter(None, (more, folded))) or None
    return table


def _more(number: int) -> str | None:
    return f"and {number} more" if number > 0 else None


def _problems(problems: Iterable[str]) -> Group:
    return Group(
        Text("Problems", style="bold red"), *(Padding(Text(problem), (0, 0, 0, 2)) for problem in problems)
    )


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _duration(seconds: float | None) -> str:
    """The two greatest units: `3d 4h`, `12m 5s`, `8s`."""
    if seconds is None:
        return "-"
    left = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        amount, left = divmod(left, size)
        if amount or parts or unit == "s":
            parts.append(f"{amount}{unit}")
    return " ".join(parts[:2])
