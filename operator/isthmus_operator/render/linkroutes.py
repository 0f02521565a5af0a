"""LinkRoutes become sections of the routers that are to know them. Pure and deterministic.

Every router of the network gets them, so that a client is refused wherever it attaches while the container is away;
only where the connection to the container is do they become active.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..model import NamespaceModel
from ..names import Hints
from ..resources import Connector, LinkRoute
from ..resources.autolink import LinkDirection
from ..resources.linkroute import Direction
from .instances import Finding, LinkRouteInstance

_DIRECTIONS: Mapping[Direction, tuple[LinkDirection, ...]] = {
    "in": ("in",),
    "out": ("out",),
    "both": ("in", "out"),
}
MAX_SECTIONS = 1_000_000
"""Of all Routers of a namespace, for LinkRoutes. The operator holds each of them, and renders it."""
_TOO_MANY = (
    f"the LinkRoutes of the namespace make more than {MAX_SECTIONS} sections in the configurations of its Routers; "
    "name fewer Routers in spec.routers, or have fewer LinkRoutes"
)
_BETWEEN_ROUTERS = frozenset({"inter-router", "edge"})


@dataclass(frozen=True)
class LinkRoutePlan:
    """What becomes of the LinkRoutes of a namespace."""

    sections: Mapping[str, Mapping[str, LinkRouteInstance]]
    """By LinkRoute and Router."""
    findings: tuple[Finding, ...]
    """At most one for each LinkRoute."""

    @property
    def by_router(self) -> Mapping[str, tuple[LinkRouteInstance, ...]]:
        """The sections of each Router, in the order of their names."""
        found: dict[str, list[LinkRouteInstance]] = {}
        for _, routers in sorted(self.sections.items()):
            for name, section in routers.items():
                found.setdefault(name, []).append(section)
        return {name: tuple(sections) for name, sections in found.items()}


@dataclass
class _Claim:
    """What a LinkRoute asks for, as far as it can be had."""

    route: LinkRoute
    routers: frozenset[str]
    source: str | None
    """The connector's Router."""
    problems: list[tuple[str, str]]
    """Reason and message."""
    waits: bool = False
    """There is no such connector (yet), or it is not one for link routes. The routers know of the LinkRoute all the
    same, and refuse links."""


def plan_link_routes(model: NamespaceModel) -> LinkRoutePlan:
    """The sections for the Routers of `model`. The older of two LinkRoutes that say the same comes first."""
    sections: dict[str, Mapping[str, LinkRouteInstance]] = {}
    findings: list[Finding] = []
    networks, everywhere, total = _networks(model), frozenset(model.routers), 0
    listeners = {
        name: frozenset(item.name for item in router.spec.effective_listeners())
        for name, router in model.routers.items()
    }
    taken: dict[tuple[object, ...], list[_Claim]] = {}
    oldest_first = sorted(
        model.link_routes.values(), key=lambda item: (item.metadata.creation_timestamp, item.name)
    )
    for route in oldest_first:
        claim = _claim(route, model, networks, everywhere)
        if total + len(claim.routers) > MAX_SECTIONS:
            claim.problems.insert(0, ("TooLarge", _TOO_MANY))
        elif claim.routers:
            directions = _free_directions(claim, taken)
            if directions:
                direction = "both" if len(directions) > 1 else directions[0]
                sections[route.name] = _sections(claim, direction, model, listeners)
                total += len(claim.routers)
        if claim.problems:
            reason, message = claim.problems[0][0], "; ".join(text for _, text in claim.problems)
            in_effect = route.name in sections and not claim.waits
            findings.append(Finding("LinkRoute", route.name, reason, message, in_effect=in_effect))
    return LinkRoutePlan(sections, tuple(findings))


def _free_directions(claim: _Claim, taken: dict[tuple[object, ...], list[_Claim]]) -> list[LinkDirection]:
    """The directions that no older LinkRoute has; it has them from now on."""
    free: list[LinkDirection] = []
    conflicts: dict[str, list[str]] = {}
    for direction in _DIRECTIONS[claim.route.spec.direction]:
        others = taken.setdefault(_subject(claim.route, direction), [])
        other = next((item for item in others if not item.routers.isdisjoint(claim.routers)), None)
        if other is None:
            others.append(claim)
            free.append(direction)
        else:
            conflicts.setdefault(other.route.name, []).append(direction)
    claim.problems += [
        ("LinkRouteConflict", _conflict(name, claim.route, directions))
        for name, directions in conflicts.items()
    ]
    return free


def _claim(
    route: LinkRoute,
    model: NamespaceModel,
    networks: Mapping[str, frozenset[str]],
    everywhere: frozenset[str],
) -> _Claim:
    spec, problems = route.spec, list[tuple[str, str]]()
    source = None
    if spec.connector is not None:
        connector = model.connectors.get(spec.connector)
        problem = _unfit(spec.connector, connector, model)
        if problem is not None:
            return _Claim(route, _chosen(route, everywhere), None, [problem], waits=True)
        assert connector is not None
        source = connector.spec.from_.router_ref.name
    if spec.routers is None:
        return _Claim(route, networks[source] if source is not None else everywhere, source, problems)
    for name in spec.routers:
        if name not in model.routers:
            problems.append(
                ("Pending", f'Router "{name}" (spec.routers) {_absent(name, model.routers, model.hints)}')
            )
    return _Claim(route, _chosen(route, everywhere) | ({source} if source else set()), source, problems)


def _chosen(route: LinkRoute, everywhere: frozenset[str]) -> frozenset[str]:
    """The Routers that it names, or all."""
    names = route.spec.routers
    return everywhere if names is None else everywhere.intersection(names)


def _unfit(name: str, connector: Connector | None, model: NamespaceModel) -> tuple[str, str] | None:
    """Why the connector cannot be that of a LinkRoute."""
    if connector is None:
        return (
            "Pending",
            f'Connector "{name}" (spec.connector) {_absent(name, model.connectors, model.hints)}',
        )
    role, source = connector.spec.role, connector.spec.from_.router_ref.name
    if role != "route-container":
        return (
            "RoleMismatch",
            f'Connector "{name}" (spec.connector) has role {role}; a LinkRoute needs one of role route-container',
        )
    if source not in model.routers:
        return "Pending", f'Router "{source}" of Connector "{name}" (spec.connector) does not exist'
    return None


def _absent(name: str, known: Iterable[str], hints: Hints) -> str:
    close = hints.nearest(name, known)
    return "does not exist" + (f' (did you mean "{close}"?)' if close is not None else "")


def _networks(model: NamespaceModel) -> Mapping[str, frozenset[str]]:
    """Router to the Routers that Connectors between Routers join it to, itself among them."""
    found = {name: {name} for name in model.routers}
    for connector in model.connectors.values():
        target = connector.spec.to.router_ref
        ends = [connector.spec.from_.router_ref.name, *([target.name] if target is not None else [])]
        if connector.spec.role in _BETWEEN_ROUTERS and len(ends) > 1 and all(name in found for name in ends):
            small, large = sorted((found[name] for name in ends), key=len)
            if small is not large:
                large |= small
                found.update(dict.fromkeys(small, large))
    frozen = {id(members): frozenset(members) for members in found.values()}
    return {name: frozen[id(members)] for name, members in found.items()}


def _subject(route: LinkRoute, direction: str) -> tuple[object, ...]:
    """What no two LinkRoutes of a Router may have in common."""
    spec = route.spec
    return direction, tuple(_tokens(route)), spec.connector, spec.container_id


def _tokens(route: LinkRoute) -> Iterator[str]:
    """The pattern, in one form for all that match the same: a prefix is a pattern that ends with `#`."""
    spec = route.spec
    text = spec.pattern if spec.pattern is not None else f"{spec.prefix}.#"
    wildcards: list[str] = []
    for token in (*text.replace("/", ".").split("."), None):
        if token in {"*", "#"}:
            wildcards.append(token)
        elif token != "":
            yield from (item for item in wildcards if item == "*")
            yield from ["#"] if "#" in wildcards else []
            wildcards.clear()
            if token is not None:
                yield token


def _conflict(other: str, route: LinkRoute, directions: Sequence[str]) -> str:
    spec = route.spec
    subject = f"prefix {spec.prefix}" if spec.prefix is not None else f"pattern {spec.pattern}"
    return (
        f'LinkRoute "{other}" already routes links with direction {" and ".join(directions)} of {subject} to the same '
        "container; change or delete one of the two"
    )


def _sections(
    claim: _Claim, direction: Direction, model: NamespaceModel, listeners: Mapping[str, frozenset[str]]
) -> Mapping[str, LinkRouteInstance]:
    """By Router. Those that are alike are one object, as there may be thousands of Routers and of LinkRoutes."""
    name, made = claim.route.spec.connector, dict[str | None, LinkRouteInstance]()
    found: dict[str, LinkRouteInstance] = {}
    for router in sorted(claim.routers):
        connection = name
        if claim.waits and name in model.connectors:
            connection = f"/{name}"  # of another role: nothing there is called so
        elif router != claim.source and name in listeners[router]:
            connection = f"{claim.source or ''}/{name}"  # the listener has the name there
        if connection not in made:
            made[connection] = _section(claim.route, direction, connection)
        found[router] = made[connection]
    return found


def _section(route: LinkRoute, direction: Direction, connection: str | None) -> LinkRouteInstance:
    spec = route.spec
    return LinkRouteInstance(
        name=route.name,
        direction=direction,
        prefix=spec.prefix,
        pattern=spec.pattern,
        connection=connection,
        container_id=spec.container_id,
        add_external_prefix=spec.add_external_prefix,
        del_external_prefix=spec.del_external_prefix,
    )
