"""RelaySites and GossipRouters as their status tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .profiles import Manifest, condition


@dataclass(frozen=True)
class RemoteSiteRow:
    """Another site, as a RelaySite sees it."""

    site: str
    state: str
    members: int
    lag_messages: int
    lag_milliseconds: int
    dropped: int
    buffer_percent: int
    """Of the bound of the buffer that is nearest, messages or bytes."""
    replayed: int
    duplicates: int
    gaps: int


@dataclass(frozen=True)
class RelaySiteRow:
    """One RelaySite."""

    name: str
    group: str
    site: str
    router: str
    state: str
    """`ready`, or a reason why not."""
    coordinator: str | None
    view: str | None
    """Number and coordinator."""
    relays: tuple[str, ...]
    """Logical names."""
    members: tuple[str, ...]
    """Logical names."""
    formed: str
    """Members of the view, of those wanted."""
    global_members: int
    """Of all sites, as far as they are known here."""
    remotes: tuple[RemoteSiteRow, ...]
    message: str | None


@dataclass(frozen=True)
class GossipRouterRow:
    """A GossipRouter, or one of its processes."""

    name: str
    state: str
    """`ready`, or a reason why not."""
    ready: str
    """Replicas that are ready, of those wanted."""
    address: str | None
    """Where members reach it."""
    where: str
    """The process, for display; `-` on Kubernetes."""


def gossip_router_row(manifest: Manifest) -> GossipRouterRow:
    """What a GossipRouter and its status say."""
    status, ready = manifest.get("status") or {}, condition(manifest, "Ready")
    return GossipRouterRow(
        name=manifest["metadata"]["name"],
        state="ready" if ready.get("status") == "True" else str(ready.get("reason", "unknown")),
        ready=f"{status.get('readyReplicas', 0)}/{manifest['spec'].get('replicas', 2)}",
        address=status.get("endpoint"),
        where="-",
    )


def relay_site_row(manifest: Manifest) -> RelaySiteRow:
    """What a RelaySite and its status say."""
    spec, status = manifest["spec"], manifest.get("status") or {}
    ready = condition(manifest, "Ready")
    well = ready.get("status") == "True"
    told = condition(manifest, "Bridged") if well else ready
    members, remotes = status.get("members") or (), status.get("remoteSites") or ()
    buffer = spec.get("buffer") or {}
    return RelaySiteRow(
        name=manifest["metadata"]["name"],
        group=spec["group"],
        site=spec["site"],
        router=spec["routerRef"]["name"],
        state="ready" if well else str(ready.get("reason", "unknown")),
        coordinator=status.get("coordinator"),
        view=status.get("view"),
        relays=tuple(item["name"] for item in members if item.get("relay")),
        members=tuple(item["name"] for item in members),
        formed=str(status.get("formed", "-")),
        global_members=len(members) + sum(len(item.get("members") or ()) for item in remotes),
        remotes=tuple(
            RemoteSiteRow(
                site=item["site"],
                state=item["state"],
                members=len(item.get("members") or ()),
                lag_messages=item.get("lagMessages", 0),
                lag_milliseconds=item.get("lagMilliseconds", 0),
                dropped=item.get("dropped", 0),
                buffer_percent=round(100 * _share(item, buffer)),
                replayed=item.get("replayed", 0),
                duplicates=item.get("duplicates", 0),
                gaps=item.get("gaps", 0),
            )
            for item in remotes
        ),
        message=told.get("message") or None,
    )


def _share(remote: Mapping[str, Any], buffer: Mapping[str, Any]) -> float:
    """The part of the buffer that is taken by what waits for a site; 0 where its bounds are not known."""
    pairs = (("lagMessages", "messages"), ("bufferedBytes", "bytes"))
    return max(
        float(remote.get(used, 0) / buffer[bound]) if bound in buffer else 0.0 for used, bound in pairs
    )
