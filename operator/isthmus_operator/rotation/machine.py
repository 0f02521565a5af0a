"""What becomes of a profile's ledger. Pure: no I/O, no clock; the same question has the same answer.

`adopt` compares what the Secret offers with what is in service, `retire` what is in service with what routers
use. Whoever calls them writes the ledger before anything else follows from it. Ordinals never fall, and each
new certificate or request raises the ordinal once, however often and in whatever order they are called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from ..certificates import described, examine, identities, revocations_problem
from ..resources.sslprofile import Retention, SslProfileSpec
from .ledger import MAX_GENERATIONS, TLS_KEYS, Generation, Ledger, Past, identity

DIAL_SECONDS = 8.0
"""Routers connect anew after this long, though some listener may not present the new certificate yet."""

Offer = Mapping[str, bytes]
"""The data of a Secret."""


@dataclass(frozen=True)
class Wish:
    """What the specification of a profile asks for."""

    request: int = 0
    revoke: bool = False
    oldest_valid: int = 0
    staged: bool = False
    """There are listeners, which come before connectors."""
    crl_key: str | None = None
    """Of the Secret, with certificate revocation lists."""

    @classmethod
    def of(cls, spec: SslProfileSpec, *, staged: bool) -> Wish:
        return cls(
            spec.rotation.request, spec.rotation.revoke, spec.oldest_valid_ordinal, staged, spec.crl_key
        )


@dataclass(frozen=True)
class Seen:
    """What routers were seen to do with an ordinal."""

    ordinal: int
    served: bool
    """All listeners present its certificate."""
    used: bool
    """So they do, and all connections between routers were made with it."""


@dataclass(frozen=True)
class Refusal:
    """Why what the Secret offers is not taken; what is in service stays."""

    reason: Literal["SecretNotFound", "SecretNotAllowed", "SecretInvalid", "TooLarge"]
    message: str
    until: datetime | None = None
    """When it can be used, if that is only a matter of time."""


@dataclass(frozen=True)
class Change:
    """Something that happened to a ledger, as a reason for machines and a sentence for people."""

    reason: Literal[
        "OrdinalRaised",
        "AuthoritiesChanged",
        "RevocationsChanged",
        "RotationCompleted",
        "OrdinalRetired",
        "Revoked",
    ]
    message: str


@dataclass(frozen=True)
class Adoption:
    """The result of `adopt`."""

    ledger: Ledger | None
    """None when nothing usable was ever offered."""
    refusal: Refusal | None
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Retirement:
    """The result of `retire`."""

    ledger: Ledger
    changes: tuple[Change, ...]
    due: datetime | None
    """When something will be to do, if nothing else happens."""


def adopt(
    ledger: Ledger | None, secret: str, offer: Offer | None, wish: Wish, past: Past, now: datetime
) -> Adoption:
    """The ledger after a look at the Secret called `secret`; `offer` is its data, None when there is none.

    `past` counts where there is no ledger.
    """
    usable = {key: content for key in TLS_KEYS if (content := (offer or {}).get(key))}
    lists = (offer or {}).get(wish.crl_key) if wish.crl_key is not None else None
    refusal = _missing(secret) if offer is None else _judged(secret, usable, ledger, now)
    if refusal is None and wish.crl_key is not None:
        refusal = _judged_lists(secret, wish.crl_key, lists, usable)
    changes: list[Change] = []
    if refusal is None:
        ledger = _taken(ledger, usable, wish, past, now, changes)
        if lists != ledger.revocations:
            changes.append(Change("RevocationsChanged", _how_changed(lists, ledger.ordinal)))
            ledger = replace(ledger, revocations=lists)
    if ledger is not None:
        ledger = _retired_to(ledger, min(wish.oldest_valid, ledger.ordinal), "Revoked", changes)
    return Adoption(ledger, refusal, tuple(changes))


def retire(ledger: Ledger, seen: Seen | None, retention: Retention, now: datetime) -> Retirement:
    """The ledger after a look at the users; None when not all are known."""
    changes: list[Change] = []
    due = None
    if seen is not None and seen.ordinal != ledger.ordinal:
        seen = None
    if ledger.dialled < ledger.ordinal:
        due = ledger.current.since + timedelta(seconds=DIAL_SECONDS)
        if now >= due or (seen is not None and seen.served):
            ledger, due = replace(ledger, dialled=ledger.ordinal), None
    elif seen is not None and seen.used and ledger.current.settled is None:
        settled = replace(ledger.current, settled=now)
        ledger = replace(ledger, generations=(*ledger.generations[:-1], settled))
        changes.append(Change("RotationCompleted", f"ordinal {ledger.ordinal} is in use everywhere"))
    if retention.policy == "Manual":
        return Retirement(ledger, tuple(changes), due)
    delay = timedelta(seconds=retention.delay_seconds)
    for item in ledger.generations:
        target = item.ordinal - retention.old_ordinals
        if item.settled is None or target <= ledger.oldest_valid:
            continue
        if item.settled + delay > now:
            due = min(due or item.settled + delay, item.settled + delay)
            break
        ledger = _retired_to(ledger, target, "OrdinalRetired", changes)
    return Retirement(ledger, tuple(changes), due)


def _missing(secret: str) -> Refusal:
    return Refusal("SecretNotFound", f'Secret "{secret}" does not exist')


def _judged(secret: str, usable: Offer, ledger: Ledger | None, now: datetime) -> Refusal | None:
    examined = examine(*(usable.get(key) for key in TLS_KEYS))
    problem = next(_lacking(usable, ledger), None)
    if problem is None and (found := examined.problem_at(now)) is not None:
        problem = f": {found}"
    if problem is None:
        return None
    early = examined.problem is None and examined.not_before is not None and now < examined.not_before
    return Refusal(
        "SecretInvalid", f'Secret "{secret}"{problem}', until=examined.not_before if early else None
    )


def _judged_lists(secret: str, key: str, lists: bytes | None, usable: Offer) -> Refusal | None:
    problem = None
    if not lists:
        problem = f' has no key "{key}" (spec.crlKey); put certificate revocation lists there'
    elif "ca.crt" not in usable:
        problem = ' has no key "ca.crt", which spec.crlKey needs; put it there'
    elif (found := revocations_problem(lists)) is not None:
        problem = f": {key} {found}"
    return Refusal("SecretInvalid", f'Secret "{secret}"{problem}') if problem is not None else None


def _how_changed(lists: bytes | None, ordinal: int) -> str:
    what = "are not checked any more" if lists is None else "changed"
    return f"certificate revocation lists {what} under ordinal {ordinal}"


def _lacking(usable: Offer, ledger: Ledger | None) -> Iterator[str]:
    if not usable:
        yield ' has neither a certificate ("tls.crt" and "tls.key") nor authorities ("ca.crt")'
    material = ledger.material if ledger is not None else ()
    for key in material:
        if key not in usable:
            together = ", ".join(material)
            yield f' has no key "{key}", which what is in service has; put {together} into it together'


def _taken(
    ledger: Ledger | None, usable: Offer, wish: Wish, past: Past, now: datetime, changes: list[Change]
) -> Ledger:
    """The ledger with the usable offer in service: under the next ordinal if the certificate is a new one
    or a request is open, else under the present one."""
    certificate, authorities = usable.get("tls.crt"), usable.get("ca.crt")
    same = ledger is not None and ledger.current.identity == identity(certificate)
    requested = ledger is not None and wish.request > ledger.handled_request
    if ledger is not None and same and not requested:
        return _with_authorities(ledger, authorities, changes)
    ordinal = _next_ordinal(ledger, certificate, past)
    about = described(certificate) if certificate is not None else None
    generation = Generation(
        ordinal,
        identity(certificate),
        now,
        fingerprint=about.fingerprint if about is not None else "",
        not_after=about.not_after if about is not None else None,
        authorities=authorities,
        names=identities(certificate) if certificate is not None else (),
    )
    why = "requested" if same else f"new certificate {generation.fingerprint[:16] or 'authorities'}"
    changes.append(Change("OrdinalRaised", f"ordinal {ordinal}: {why}"))
    raised = Ledger(
        (*(ledger.generations if ledger is not None else ()), generation)[-MAX_GENERATIONS:],
        ledger.oldest_valid if ledger is not None else min(past.oldest_valid or ordinal, ordinal),
        max(wish.request, ledger.handled_request if ledger is not None else 0),
        ledger.dialled if ledger is not None and wish.staged else ordinal,
        certificate,
        usable.get("tls.key"),
        ledger.revocations if ledger is not None else None,
    )
    return _retired_to(raised, ordinal, "Revoked", changes) if requested and wish.revoke else raised


def _next_ordinal(ledger: Ledger | None, certificate: bytes | None, past: Past) -> int:
    if ledger is not None:
        return ledger.ordinal + 1
    fingerprint = described(certificate).fingerprint if certificate is not None else ""
    return past.ordinal if past.ordinal and fingerprint == past.fingerprint else past.ordinal + 1


def _with_authorities(ledger: Ledger, authorities: bytes | None, changes: list[Change]) -> Ledger:
    if authorities == ledger.current.authorities:
        return ledger
    changes.append(Change("AuthoritiesChanged", f"ca.crt changed under ordinal {ledger.ordinal}"))
    current = replace(ledger.current, authorities=authorities)
    return replace(ledger, generations=(*ledger.generations[:-1], current))


def _retired_to(
    ledger: Ledger, oldest: int, reason: Literal["OrdinalRetired", "Revoked"], changes: list[Change]
) -> Ledger:
    """The ledger with `oldest` as the oldest valid ordinal, if that is more than now."""
    if oldest <= ledger.oldest_valid:
        return ledger
    changes.append(Change(reason, f"ordinals before {oldest} are not valid any more"))
    valid = tuple(item for item in ledger.generations if item.ordinal >= oldest)
    return replace(ledger, generations=valid, oldest_valid=oldest, dialled=max(oldest, ledger.dialled))
