"""The network as a drawing: routers on a circle by site, connections as wide as what they carry."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from isthmus_flows import formats

MOST_ROUTERS = 60
_NAME = 22
"""Characters of a name that are shown."""
_CHARACTER = 6.6
"""Width of one, about."""
_SLOT = 13
"""Height of a line of text."""
_FEW = 12
"""So many names need not be turned to have room."""
Slots = Sequence[tuple[str, str] | None]
"""Around the circle: ("site", name) and ("router", name), or a gap."""


def network(edges: Sequence[Mapping[str, Any]], sites: Mapping[str, str | None], count: int) -> str:
    """An SVG of the first rows of `topology_edges`, which has `count`; `sites` says where each router is. Empty without
    any. Of too many routers those are drawn whose connections carry most."""
    edges = [edge for edge in edges if edge["router"] and edge["peer"]]
    carried: dict[str, int] = {}
    for edge in edges:
        for name in (edge["router"], edge["peer"]):
            carried[name] = carried.get(name, 0) + _octets(edge)
    if not carried:
        return ""
    slots = _slots(sorted(carried, key=lambda name: (-carried[name], name))[:MOST_ROUTERS], sites)
    radius = max(130.0, len(slots) * _SLOT / (2 * math.pi))
    angles = {
        slot: 2 * math.pi * at / len(slots) - math.pi / 2 for at, slot in enumerate(slots) if slot is not None
    }
    places = {name: _at(angle, radius) for (kind, name), angle in angles.items() if kind == "router"}
    drawn = [edge for edge in edges if edge["router"] in places and edge["peer"] in places]
    most = max((_octets(edge) for edge in edges), default=0)
    left_out = count - len(drawn)
    longest = max(min(_NAME, len(slot[1])) for slot in angles)
    half = radius + 24 + longest * _CHARACTER
    note = f"{left_out} connections are not drawn" if left_out > 0 else ""
    return (
        f'<svg role="img" aria-label="{len(places)} routers and {len(drawn)} connections between them" '
        f'viewBox="{-half:.0f} {-half:.0f} {2 * half:.0f} {2 * half:.0f}" class="network" '
        f'style="max-width: {2 * half:.0f}px">'
        + "".join(_edge(edge, places, most) for edge in drawn)
        + "".join(_label(*slot, angle, radius, len(slots) > _FEW, sites) for slot, angle in angles.items())
        + f'<text x="{8 - half:.0f}" y="{half - 8:.0f}" class="note">{note}</text></svg>'
    )


def _octets(edge: Mapping[str, Any]) -> int:
    return int(edge.get("octets_out") or 0) + int(edge.get("octets_in") or 0)


def _slots(routers: Sequence[str], sites: Mapping[str, str | None]) -> Slots:
    """The same each time; sites are named if there are several."""
    groups: dict[str, list[str]] = {}
    for name in sorted(routers):
        groups.setdefault(sites.get(name) or "", []).append(name)
    if len(groups) == 1:
        return [("router", name) for name in sorted(routers)]
    return list(_grouped(groups))


def _grouped(groups: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str] | None]:
    for site in sorted(groups):
        if site:
            yield "site", site
        for name in groups[site]:
            yield "router", name
        yield None


def _at(angle: float, radius: float) -> tuple[float, float]:
    return radius * math.cos(angle), radius * math.sin(angle)


def _edge(edge: Mapping[str, Any], places: Mapping[str, tuple[float, float]], most: int) -> str:
    (x1, y1), (x2, y2) = places[edge["router"]], places[edge["peer"]]
    width = 1.0 + 7.0 * _octets(edge) / most if most else 1.0
    kinds = [
        "edge" if edge.get("role") == "edge" else "interior",
        "down" if edge.get("status") == "down" else "up",
    ]
    told = (
        f"{edge['router']} to {edge['peer']}: {formats.size(edge.get('octets_out'))}, "
        f"back: {formats.size(edge.get('octets_in'))}"
    )
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{" ".join(kinds)}" '
        f'stroke-width="{width:.1f}"><title>{escape(told)}</title></line>'
    )


def _label(
    kind: str, name: str, angle: float, radius: float, turned: bool, sites: Mapping[str, str | None]
) -> str:
    x, y = _at(angle, radius + 10)
    left = x < -1
    degrees = math.degrees(angle) + (180 if left else 0)
    turn = f' transform="rotate({degrees:.1f} {x:.1f} {y:.1f})"' if turned else ""
    anchor = "end" if left else "start" if turned or x > 1 else "middle"
    lower = 3.5 if turned or abs(x) > 1 else 9.0 if y > 0 else -1.0
    text = (
        f'<text x="{x:.1f}" y="{y + lower:.1f}" text-anchor="{anchor}" class="{kind}"{turn}>'
        f"{escape(formats.short(name, _NAME))}<title>{escape(name)}</title></text>"
    )
    if kind == "site":
        return text
    x, y = _at(angle, radius)
    where = f"{name}, site {sites[name]}" if sites.get(name) else name
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{escape(where)}</title></circle>{text}'
