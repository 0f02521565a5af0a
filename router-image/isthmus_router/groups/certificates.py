"""Names that a peer's certificate must have."""

from __future__ import annotations

import re
from collections.abc import Iterable

_REPLICA = re.compile(r"-[0-9]+$")


def is_named(names: Iterable[str], wanted: Iterable[str]) -> bool:
    """Whether a certificate with these names has one of those wanted; `*.` in what is wanted stands for one label.

    Case does not matter (RFC 4343).
    """
    has = {name.lower() for name in names}
    has |= {f"*.{rest}" for _, dot, rest in (name.partition(".") for name in has) if dot}
    return not has.isdisjoint(name.lower() for name in wanted)


def misnamed(names: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    """What is wrong with a certificate of these names; empty: nothing, or nothing is wanted."""
    if not wanted or is_named(names, wanted):
        return ""
    return (
        f"certificate is for {', '.join(names) or 'nobody'}, not {', '.join(wanted)}: "
        "issue it for that name, or change peerNames"
    )


def is_of_member(names: Iterable[str], member: str) -> bool:
    """Whether a certificate with these names is for the member of that logical name.

    One of its names is the member's, begins with it as first label (`nyc-0.nyc.example`), or is the name of the Router
    whose replica the member is (`nyc` for `nyc-0`). Case does not matter.
    """
    own = member.lower()
    wanted = {own, _REPLICA.sub("", own)}
    return any(name.lower() in wanted or name.lower().startswith(f"{own}.") for name in names)


def not_of_member(names: tuple[str, ...], member: str) -> str:
    """What is wrong with a certificate of these names for that member; empty: nothing."""
    if is_of_member(names, member):
        return ""
    return (
        f"certificate is for {', '.join(names) or 'nobody'}, not for member {member}: "
        "issue it for that name, or state bindNames: no"
    )
