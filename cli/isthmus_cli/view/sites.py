"""RelaySites as their status tells."""

from __future__ import annotations

from dataclasses import dataclass

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
    members: tuple[str, ...]
    """Logical names."""
    formed: str
    """Members of the view, of those wanted."""
    remotes: tuple[RemoteSiteRow, ...]
    message: str | None


def relay_site_row(manifest: Manifest) -> RelaySiteRow:
    """What a RelaySite and its status say."""
    spec, status = manifest["spec"], manifest.get("status") or {}
    ready = condition(manifest, "Ready")
    well = ready.get("status") == "True"
    told = condition(manifest, "Bridged") if well else ready
    return RelaySiteRow(
        name=manifest["metadata"]["name"],
        group=spec["group"],
        site=spec["site"],
        router=spec["routerRef"]["name"],
        state="ready" if well else str(ready.get("reason", "unknown")),
        coordinator=status.get("coordinator"),
        members=tuple(item["name"] for item in status.get("members") or ()),
        formed=str(status.get("formed", "-")),
        remotes=tuple(
            RemoteSiteRow(
                site=item["site"],
                state=item["state"],
                members=len(item.get("members") or ()),
                lag_messages=item.get("lagMessages", 0),
                lag_milliseconds=item.get("lagMilliseconds", 0),
                dropped=item.get("dropped", 0),
            )
            for item in status.get("remoteSites") or ()
        ),
        message=told.get("message") or None,
    )
