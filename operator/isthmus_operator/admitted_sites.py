"""Which RelaySites count: a Router is in one site, and a site of a group has one Router. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .names import Hints
from .resources import RelaySite, Router


def admitted_sites(
    relay_sites: Iterable[RelaySite], routers: Mapping[str, Router], hints: Hints | None = None
) -> tuple[list[RelaySite], Mapping[str, tuple[str, str]]]:
    """The RelaySites whose Routers can have the members, the oldest first, and by name of each other one the reason and
    the message. Of two RelaySites in conflict the older one counts. `routers` are by name."""
    admitted: list[RelaySite] = []
    refused: dict[str, tuple[str, str]] = {}
    of_site: dict[tuple[str, str], str] = {}
    of_router: dict[str, str] = {}
    for site in sorted(relay_sites, key=lambda item: (item.metadata.creation_timestamp, item.name)):
        spec = site.spec
        problem = _unfit(site, routers, hints)
        if problem is None and (other := of_site.get((spec.group, spec.site))) is not None:
            message = (
                f'RelaySite "{other}" is site "{spec.site}" of group "{spec.group}" already; change spec.site'
            )
            problem = "SiteConflict", message
        if problem is None and (other := of_router.get(spec.router_ref.name)) is not None:
            message = (
                f'Router "{spec.router_ref.name}" is in RelaySite "{other}" already; name another one in '
                "spec.routerRef"
            )
            problem = "RouterInUse", message
        if problem is not None:
            refused[site.name] = problem
            continue
        of_site[spec.group, spec.site] = of_router[spec.router_ref.name] = site.name
        admitted.append(site)
    return admitted, refused


def _unfit(site: RelaySite, routers: Mapping[str, Router], hints: Hints | None) -> tuple[str, str] | None:
    """Why the Router cannot have the members: reason and message."""
    name = site.spec.router_ref.name
    router = routers.get(name)
    if router is None:
        close = hints.nearest(name, routers) if hints is not None else None
        hint = f' (did you mean "{close}"?)' if close is not None else ""
        return "Pending", f'Router "{name}" (spec.routerRef) does not exist{hint}'
    if router.spec.mode != "interior":
        return "RoleMismatch", f'spec.routerRef needs an interior Router, "{name}" is {router.spec.mode}'
    taken = {item.port: f'listener "{item.name}"' for item in router.spec.effective_listeners()}
    taken[router.spec.health_port] = "the health port"
    for port, field in ((site.spec.member_port, "memberPort"), (site.spec.bridge.port, "bridge.port")):
        if port in taken:
            return (
                "PortConflict",
                f'spec.{field} {port} is {taken[port]} of Router "{name}"; choose another one',
            )
    return None
