"""How far a rotation is, from the status of its SslProfile, and following it to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import CliError
from .view import Manifest, condition

_POLL_SECONDS = 0.5

Say = Callable[[str], None]


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


def refusal(manifest: Manifest, *, revoke: bool) -> str | None:
    """Why the ordinal should not be raised now."""
    degraded, questionable = condition(manifest, "Degraded"), condition(manifest, "Questionable")
    if degraded.get("status") == "True":
        return f"not rotated: {degraded['reason']}: {degraded['message']}"
    if (manifest.get("status") or {}).get("ordinal") is None:
        return "not rotated: the operator has not reconciled this SslProfile yet; is it running?"
    if revoke and questionable.get("status") == "True" and questionable["reason"] == "CertificateUnfit":
        return (
            "not revoked, as routers could not make all closed connections anew: "
            f"{questionable['message']} (spec.oldestValidOrdinal revokes all the same)"
        )
    return None


def wanted(manifest: Manifest, *, revoke: bool) -> dict[str, Any]:
    """What `spec.rotation` is to be so that the ordinal is raised. A revocation that somebody else has asked for, and
    that is not carried out yet, stays asked for."""
    rotation = manifest["spec"].get("rotation") or {}
    asked, handled = int(rotation.get("request", 0)), int(manifest["status"].get("handledRequest") or 0)
    waiting = asked > handled and bool(rotation.get("revoke"))
    return {"request": max(asked, handled) + 1, "revoke": revoke or waiting}


def progress(manifest: Manifest, request: int, *, revoked: int | None) -> Progress:
    """How far the rotation is that was asked for with `request`. `revoked` is the newest ordinal whose connections
    it shall close; None when it revokes nothing."""
    status = manifest.get("status") or {}
    if status.get("observedGeneration", 0) < manifest["metadata"].get("generation", 0):
        return Progress(None, False, (), "the operator has not reconciled it yet; is it running?")
    if int(status.get("handledRequest") or 0) < request:
        degraded = condition(manifest, "Degraded")
        refused = degraded.get("message") if degraded.get("status") == "True" else None
        return Progress(None, False, (), "the operator has not raised the ordinal yet", refused)
    ordinal, oldest = int(status["ordinal"]), int(status["oldestValidOrdinal"])
    rotating = condition(manifest, "Rotating")
    if revoked is not None and oldest <= revoked:
        overtaken = "another request without revocation came before this one was carried out; ask again"
        return Progress(ordinal, False, (), "", f"ordinal {oldest} is still valid: {overtaken}")
    left = [text for text in _left(status, oldest) if revoked is not None]
    waiting = [str(rotating.get("message", ""))] if rotating.get("status") != "False" else []
    return Progress(
        ordinal,
        not waiting and not left,
        tuple(_moved(status, ordinal)),
        "; ".join((*waiting, *left)),
    )


async def follow(
    look: Callable[[], Awaitable[Manifest]], request: int, *, revoked: int | None, seconds: float, say: Say
) -> None:
    """Says how the rotation asked for with `request` goes on, until it is done. `look` gets the SslProfile as it
    is now; `revoked` is as for `progress`. Raises CliError when it is refused, or not done after `seconds`."""
    begun = time.monotonic()
    told: set[str] = set()
    while True:
        found = progress(await look(), request, revoked=revoked)
        _tell(found, told, say)
        passed = time.monotonic() - begun
        if found.refused is not None:
            raise CliError(f"not {'rotated' if found.ordinal is None else 'revoked'}: {found.refused}")
        if found.done:
            say(f"done after {passed:.1f} s: ordinal {found.ordinal} is in use everywhere")
            return
        if passed >= seconds:
            raise CliError(f"not done after {seconds:g} s, it goes on: {found.waiting}")
        await asyncio.sleep(_POLL_SECONDS)


def _tell(found: Progress, told: set[str], say: Say) -> None:
    """Says what is new: the ordinal, and each router that has followed."""
    lines = [f"the ordinal is {found.ordinal}"] if found.ordinal is not None else []
    for line in (*lines, *found.moved):
        # Connections come and go; that a router has followed is said once.
        subject = line.partition(":")[0]
        if subject not in told:
            told.add(subject)
            say(line)


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
