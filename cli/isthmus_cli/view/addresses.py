"""Addresses of a whole network, from what each router says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .report import RouterReport

_OWN = ("$", "_", "mc/sfe.", "sfe.")
"""What names of addresses begin with that routers use themselves; the last two are those of flow records."""
_MOBILE = "M"
"""Class of the addresses that clients use, in `/status`."""


@dataclass(frozen=True)
class AddressAt:
    """One address at one router."""

    router: str
    consumers: int
    """Consumers attached to this very router."""
    deliveries_in: int
    """Deliveries that were routed to the address here."""
    deliveries_out: int
    """Deliveries to consumers here; at an interior router also to edge routers."""


@dataclass(frozen=True)
class AddressRow:
    """One address."""

    name: str
    distribution: str
    consumers: int
    """Consumers in the whole network, as far as the routers shown know of them."""
    at: tuple[AddressAt, ...]
    """The routers that know the address."""


def address_rows(reports: Sequence[RouterReport]) -> tuple[tuple[AddressRow, ...], int]:
    """Addresses by name, and how many the routers left out of their documents.

    Routers' own and temporary addresses are left out. An edge router subscribes at its interior router
    to what its clients consume; those subscriptions are not counted a second time.
    """
    proxied = _proxied(reports)
    found: dict[str, list[AddressAt]] = {}
    distributions: dict[str, str] = {}
    hidden = 0
    for report in reports:
        entries = report.entries("addresses")
        hidden += max(0, int((report.status or {}).get("addressesTotal", 0)) - len(entries))
        for item in entries:
            name = _name(item)
            if item["class"] != _MOBILE or name.startswith(_OWN):
                continue
            own = max(0, int(item["local"]) - proxied[report.id, name])
            found.setdefault(name, []).append(
                AddressAt(report.id, own, int(item["deliveriesIn"]), int(item["deliveriesOut"]))
            )
            distribution = str(item["distribution"])
            if distribution == "relayed":  # other routers, which only pass messages to a member, do not know
                distributions[name] = distribution
            distributions.setdefault(name, distribution)
    rows = (
        AddressRow(name, distributions[name], sum(item.consumers for item in at), tuple(at))
        for name, at in sorted(found.items())
    )
    return tuple(rows), hidden


def _name(item: Mapping[str, Any]) -> str:
    """What an address is shown as: one that has a waypoint is shown once for each phase."""
    name, phase = str(item["name"]), int(item.get("phase", 0))
    return f"{name} (phase {phase})" if phase else name


def _proxied(reports: Iterable[RouterReport]) -> Counter[tuple[str, str]]:
    """For interior router and address: how many edge routers subscribe there for their clients."""
    counted: Counter[tuple[str, str]] = Counter()
    for report in reports:
        uplinks = {
            item["container"]
            for item in report.entries("connections")
            if item["role"] == "edge" and item["dir"] == "out" and item["active"]
        }
        consumed = {_name(item) for item in report.entries("addresses") if int(item["local"])}
        counted.update((uplink, name) for uplink in uplinks for name in consumed)
    return counted
