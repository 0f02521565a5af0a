"""The view as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .addresses import AddressRow
from .model import LinkRow, NetworkView, RouterRow

SHOWN_ADDRESSES = 20
_COLOURS = {"ready": "green", "open": "green", "starting": "yellow", "connecting": "yellow"}


def render(view: NetworkView) -> RenderableType:
    """The whole screen: headline, routers, links, addresses, problems."""
    parts: list[RenderableType] = [_headline(view)]
    if view.routers:
        parts.append(_routers(view.routers))
    if view.links:
        parts.append(_links(view.links))
    if view.addresses:
        parts.append(_addresses(view.addresses, view.addresses_not_shown))
    if view.problems:
        parts.append(_problems(view.problems))
    return Group(*parts)


def _headline(view: NetworkView) -> Text:
    ready = sum(row.state == "ready" for row in view.routers)
    opened = sum(row.state == "open" for row in view.links)
    text = Text.assemble((view.network, "bold"), f" on {view.platform}: ")
    text.append(f"{ready} of {_count(len(view.routers), 'router')} ready, ")
    text.append(f"{opened} of {_count(len(view.links), 'link')} open, ")
    text.append(_count(len(view.addresses), "address", "addresses"))
    return text


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _table(title: str, columns: str) -> Table:
    """`columns` are names separated by spaces, with `>` in front of a number's."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns.split():
        number = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if number else "left", overflow="fold")
    return table


def _state(state: str) -> Text:
    return Text(state, style=_COLOURS.get(state, "red"))


_ROUTER_COLUMNS = "id mode site state where >up >restarts neighbors >reaches >clients address"
_LINK_COLUMNS = "from connector role to state >certificate message"
_ADDRESS_COLUMNS = "name treatment >consumers at"


def _routers(rows: Iterable[RouterRow]) -> Table:
    table = _table("Routers", _ROUTER_COLUMNS)
    for row in rows:
        table.add_row(
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
            "\n".join(row.endpoints) or "-",
        )
    return table


def _links(rows: Iterable[LinkRow]) -> Table:
    table = _table("Links", _LINK_COLUMNS)
    for row in rows:
        ordinal = "-" if row.tls_ordinal is None else f"ordinal {row.tls_ordinal}"
        state, message = _state(row.state), row.message or ""
        table.add_row(row.router, row.connector, row.role, row.destination, state, ordinal, message)
    return table


def _addresses(rows: tuple[AddressRow, ...], hidden: int) -> Table:
    table = _table("Addresses", _ADDRESS_COLUMNS)
    for row in rows[:SHOWN_ADDRESSES]:
        at = [f"{item.router} ({item.consumers})" for item in row.at if item.consumers]
        table.add_row(row.name, row.distribution, str(row.consumers), ", ".join(at) or "-")
    more = hidden + max(0, len(rows) - SHOWN_ADDRESSES)
    if more:
        table.caption = f"and {more} more"
    return table


def _problems(problems: Iterable[str]) -> Group:
    return Group(Text("Problems", style="bold red"), *(Text(f"  {problem}") for problem in problems))


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
