"""LinkRoutes as their status tells, and auto-links as routers do: whose links a broker takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .profiles import Manifest, condition
from .report import RouterReport


@dataclass(frozen=True)
class LinkRouteRow:
    """One LinkRoute."""

    name: str
    addresses: str
    """Its prefix or pattern."""
    direction: str
    connector: str | None
    container: str | None
    """Container id, where it names no connector."""
    state: str
    """`ready`, or a reason why not."""
    destinations: int
    """Containers that take its links."""
    links: int
    refusals: int
    last_refusal: str | None
    message: str | None
    """Why it is not ready; otherwise where the containers are."""


@dataclass(frozen=True)
class AutoLinkRow:
    """An auto-link of one router."""

    router: str
    connector: str | None
    """Or listener; None where it names a container."""
    container: str | None
    direction: str
    address: str | None
    """None: an anonymous link."""
    external_address: str | None
    phase: int | None
    state: str
    message: str | None


def link_route_row(manifest: Manifest) -> LinkRouteRow:
    """What a LinkRoute and its status say."""
    spec, status = manifest["spec"], manifest.get("status") or {}
    ready, refusal = condition(manifest, "Ready"), status.get("lastRefusal")
    well = ready.get("status") == "True"
    told = condition(manifest, "Matched") if well else ready
    return LinkRouteRow(
        name=manifest["metadata"]["name"],
        addresses=str(spec.get("prefix") or spec.get("pattern")),
        direction=spec.get("direction", "both"),
        connector=spec.get("connector"),
        container=spec.get("containerId"),
        state="ready" if well else str(ready.get("reason", "unknown")),
        destinations=status.get("activeDestinations", 0),
        links=status.get("attachedLinks", 0),
        refusals=status.get("refusals", 0),
        last_refusal=(
            f"{refusal['address']} at {refusal['router']}, {refusal['time']}: {refusal['description']}"
            if refusal
            else None
        ),
        message=told.get("message") or None,
    )


def auto_link_rows(reports: Iterable[RouterReport]) -> Iterator[AutoLinkRow]:
    """What each router says of its auto-links."""
    for report in reports:
        for item in report.entries("autoLinks"):
            yield AutoLinkRow(
                router=report.id,
                connector=item.get("connection"),
                container=item.get("containerId"),
                direction=str(item["direction"]),
                address=item["address"],
                external_address=item.get("externalAddress"),
                phase=item.get("phase"),
                state=str(item["state"]),
                message=item["message"] or None,
            )
