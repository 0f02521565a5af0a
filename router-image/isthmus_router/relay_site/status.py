"""What `/status` says of a router that is a member of a site, under `relay`; docs/status.md describes it.

The names in the document are those of the fields in camelCase.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member of the own site's view."""

    id: str
    """UUID, 32 hexadecimal digits."""
    name: str
    relay: bool


@dataclass(frozen=True, slots=True)
class RemoteStatus:
    """Another site. What is counted starts with this member and is of this member: what was dropped every holder tells
    for itself, the rest the relays; they also tell the lag."""

    site: str
    state: str
    """`up`, `suspect`, `unreachable`, `left` or `unknown`."""
    members: tuple[str, ...]
    """Logical names, the coordinator first."""
    problem: str
    """Why it was refused or could not be dialled, at a relay; empty: nothing is wrong."""
    lag_messages: int
    lag_bytes: int
    lag_seconds: float
    """Age of the oldest message that it has not acknowledged."""
    dropped_messages: int
    replayed_messages: int
    duplicate_messages: int
    gap_messages: int
    """Of that site, lost on the way here."""
    round_trip_seconds: float | None


@dataclass(frozen=True, slots=True)
class RelayStatus:
    """A member, its site and what it knows of the others."""

    group: str
    site: str
    id: str
    """Its own UUID, 32 hexadecimal digits."""
    view: int
    """Number of the view; 0: there is none yet."""
    members: tuple[MemberStatus, ...]
    """Of the view, the coordinator first."""
    remotes: tuple[RemoteStatus, ...]
    buffered_messages: int
    buffered_bytes: int
    problems: tuple[str, ...]
    """What keeps the site from forming, as `who: why`: members that are refused, a site of the same name, ports in use,
    names where members should be that cannot be resolved (`host <name>: ...`)."""
    holder: bool = False
    """This member keeps what is for other sites: a relay, or one that follows it."""
    holder_ready: bool = False
    """It has all that it would have to send, were it the relay from now on."""
    plain_text: tuple[str, ...] = ()
    """Connections without TLS, which `plainText: yes` allows: `members`, `bridge`, `gossip`."""
    accepts: bool = False
    """Members or sites that are there can hold a message as often as `copies` says; otherwise its sender waits."""


def relay_document(status: RelayStatus) -> Mapping[str, object]:
    """The value of `relay`; plain JSON."""
    return {_camel_case(item.name): _plain(getattr(status, item.name)) for item in fields(status)}


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {_camel_case(item.name): _plain(getattr(value, item.name)) for item in fields(value)}
    return value


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
