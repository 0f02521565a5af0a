"""SslProfiles as their status tells: the certificates, and how many connections use which ordinal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class OrdinalCount:
    """Open connections on one ordinal."""

    ordinal: int
    connections: int


@dataclass(frozen=True)
class ProfileRow:
    """One SslProfile."""

    name: str
    state: str
    """`ready`, `rotating`, `expiring`, `questionable` or a reason why it is none of these."""
    ordinal: int | None
    oldest_valid: int | None
    expires: str | None
    """ISO 8601."""
    connections: tuple[OrdinalCount, ...]
    message: str | None
    """All that is to be told, not of `state` only."""


def profile_row(manifest: Manifest) -> ProfileRow:
    """What the status of an SslProfile says."""
    status = manifest.get("status") or {}
    ready = condition(manifest, "Ready")
    state, messages = str(ready.get("reason", "unknown")), [ready.get("message")]
    if ready.get("status") == "True":
        found = {kind: condition(manifest, kind) for kind in ("Rotating", "Expiring", "Questionable")}
        holding = {kind: item for kind, item in found.items() if item.get("status") == "True"}
        state = next(iter(holding), "Ready").lower()
        messages = [item.get("message") for item in holding.values()]
    return ProfileRow(
        name=manifest["metadata"]["name"],
        state=state,
        ordinal=status.get("ordinal"),
        oldest_valid=status.get("oldestValidOrdinal"),
        expires=status.get("notAfter"),
        connections=tuple(
            OrdinalCount(item["ordinal"], item.get("connections", 0)) for item in status.get("ordinals") or ()
        ),
        message="; ".join(text for text in messages if text) or None,
    )


UNSEEN = (
    "the operator has not reconciled it yet; if that does not change, see whether an operator runs, and whether its "
    "Helm value watchNamespaces has this namespace"
)


def condition_problems(kind: str, manifest: Manifest) -> Iterable[str]:
    """What the conditions of a resource say is wrong with it, as sentences."""
    name = manifest["metadata"]["name"]
    ready = condition(manifest, "Ready")
    if not ready:
        yield f"{kind} {name}: {UNSEEN}"
    elif ready.get("status") != "True":
        yield f"{kind} {name}: {ready.get('reason')}: {ready.get('message')}"
    stuck = condition(manifest, "Rotating")
    if stuck.get("reason") == "RotationStuck":
        yield f"{kind} {name}: RotationStuck: {stuck.get('message')}"


def insecure_parts(kind: str, manifest: Manifest) -> Iterable[str]:
    """What the condition `Insecure` of a resource says, as sentences."""
    found = condition(manifest, "Insecure")
    if found.get("status") == "True":
        yield f"{kind} {manifest['metadata']['name']}: {found.get('message')}"


def condition(manifest: Manifest, kind: str) -> Manifest:
    """A condition, or nothing when there is none."""
    found = (manifest.get("status") or {}).get("conditions") or ()
    return next((item for item in found if item.get("type") == kind), {})
