"""How far a rotation is, from the status of its SslProfile. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Progress:
    """The state of a request."""

    ordinal: int | None
    """The ordinal that the request has led to; None while the operator has not taken it up."""
    done: bool
    moved: tuple[str, ...]
    """Routers whose connections use that ordinal, with their number."""
    waiting: str
    """What is not done yet."""
    refused: str | None = None
    """Why it will not be done unless something changes."""


def progress(manifest: Manifest, request: int, *, revoke: bool) -> Progress:
    """How far the rotation is that was asked for with `request`."""
    status = manifest.get("status") or {}
    if status.get("observedGeneration", 0) < manifest["metadata"].get("generation", 0):
        return Progress(None, False, (), "the operator has not looked at it yet; is it running?")
    if int(status.get("handledRequest") or 0) < request:
        degraded = condition(manifest, "Degraded")
        refused = degraded.get("message") if degraded.get("status") == "True" else None
        return Progress(None, False, (), "the operator has not raised the ordinal yet", refused)
    ordinal, oldest = int(status["ordinal"]), int(status["oldestValidOrdinal"])
    rotating = condition(manifest, "Rotating")
    left = [text for text in _left(status, oldest) if revoke]
    waiting = [str(rotating.get("message", ""))] if rotating.get("status") != "False" else []
    return Progress(
        ordinal,
        not waiting and not left,
        tuple(_moved(status, ordinal)),
        "; ".join((*waiting, *left)),
    )


def condition(manifest: Manifest, kind: str) -> Mapping[str, Any]:
    """A condition, or nothing when there is none."""
    found = (manifest.get("status") or {}).get("conditions") or ()
    return next((item for item in found if item.get("type") == kind), {})


def _moved(status: Mapping[str, Any], ordinal: int) -> Iterator[str]:
    for user in status.get("users") or ():
        if user.get("message"):
            continue
        number = sum(
            item["connections"] for item in user.get("connections") or () if item["ordinal"] == ordinal
        )
        count = f"{number} connection{'' if number == 1 else 's'}"
        yield f"{user['pod']}: {count if number else 'ready for connections'} on ordinal {ordinal}"


def _left(status: Mapping[str, Any], oldest: int) -> Iterator[str]:
    for item in status.get("ordinals") or ():
        if item["ordinal"] < oldest and item["connections"]:
            yield f"{item['connections']} connections on ordinal {item['ordinal']} are not closed yet"
