"""The network as a drawing: routers in circles by site, connections as wide as what they carry."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from isthmus_flows.report import formats

MOST_ROUTERS = 60
_SIZE = 560
_MIDDLE = _SIZE / 2


def network(edges: Sequence[Mapping[str, Any]], sites: Mapping[str, str | None]) -> str:
    """An SVG of rows of `topology_edges`; `sites` says where each router is. Empty without any."""
    routers = sorted({name for edge in edges for name in (edge["router"], edge["peer"]) if name})
    if not routers:
        return ""
    left_out = max(0, len(routers) - MOST_ROUTERS)
    routers = routers[:MOST_ROUTERS]
    places = _places(routers, sites)
    most = max((_octets(edge) for edge in edges), default=0)
    drawn = [
        _edge(edge, places, most) for edge in edges if edge["router"] in places and edge["peer"] in places
    ]
    drawn += [_node(name, place, sites.get(name)) for name, place in places.items()]
    note = f'<text x="8" y="{_SIZE - 8}" class="note">and {left_out} more routers</text>' if left_out else ""
    title = f"{len(routers)} routers and {len(edges)} connections between them"
    return (
        f'<svg role="img" aria-label="{title}" viewBox="-70 0 {_SIZE + 140} {_SIZE}" class="network">'
        + "".join(drawn)
        + note
        + "</svg>"
    )


def _octets(edge: Mapping[str, Any]) -> int:
    return int(edge.get("octets_out") or 0) + int(edge.get("octets_in") or 0)


def _places(routers: Sequence[str], sites: Mapping[str, str | None]) -> dict[str, tuple[float, float]]:
    """Sites on a circle, the routers of a site on a smaller one; the same each time."""
    groups: dict[str, list[str]] = {}
    for name in routers:
        groups.setdefault(sites.get(name) or "", []).append(name)
    if len(groups) == 1:
        return dict(zip(routers, _circle(len(routers), _MIDDLE, _MIDDLE, _SIZE * 0.36), strict=True))
    places: dict[str, tuple[float, float]] = {}
    centres = _circle(len(groups), _MIDDLE, _MIDDLE, _SIZE * 0.33)
    room = _SIZE * 0.33 * math.sin(math.pi / len(groups)) * 0.62
    for (x, y), names in zip(centres, (groups[key] for key in sorted(groups)), strict=True):
        radius = min(room, 14.0 * len(names)) if len(names) > 1 else 0.0
        places.update(zip(names, _circle(len(names), x, y, radius), strict=True))
    return places


def _circle(count: int, x: float, y: float, radius: float) -> list[tuple[float, float]]:
    if count == 1:
        radius = 0.0
    angles = (2 * math.pi * number / count - math.pi / 2 for number in range(count))
    return [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles]


def _edge(edge: Mapping[str, Any], places: Mapping[str, tuple[float, float]], most: int) -> str:
    (x1, y1), (x2, y2) = places[edge["router"]], places[edge["peer"]]
    octets = _octets(edge)
    width = 1.0 + 6.0 * math.log1p(octets) / math.log1p(most) if most else 1.0
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


def _node(name: str, place: tuple[float, float], site: str | None) -> str:
    x, y = place
    where = f"{name}, site {site}" if site else name
    side, dx = ("start", 9) if x >= _MIDDLE - 1 else ("end", -9)
    shown = formats.short(name, 22)
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{escape(where)}</title></circle>'
        f'<text x="{x + dx:.1f}" y="{y + 3.5:.1f}" text-anchor="{side}">{escape(shown)}</text>'
    )
