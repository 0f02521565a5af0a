"""Status of an SslProfile, from its ledger, its Secret and the routers that use it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ..certificates import Certificate, count, described, examine
from ..resources.sslprofile import MAX_ORDINAL_STATUSES, MAX_POD_STATUSES
from ..rotation.ledger import TLS_KEYS, Ledger
from ..untrusted import total
from .conditions import MAX_MESSAGE, Verdict, conditions, joined, no, ready, yes
from .remarks import questionable
from .usage import PodUsage, ProfileFacts, Usage

STUCK_SECONDS = 120.0
"""A rotation that takes longer needs a person's attention."""
_LISTED = 64
"""RelaySites, and GossipRouters, that are named."""
_NAMED = 8
"""What is behind, listed before it is only counted."""


def sslprofile_status(
    facts: ProfileFacts, previous: Mapping[str, Any] | None, now: datetime
) -> dict[str, Any]:
    """The complete `status` of an SslProfile."""
    profile, ledger, usage = facts.profile, facts.ledger, facts.usage
    generation = profile.metadata.generation
    valid, degraded = _valid(facts, now), _degraded(facts)
    verdicts = {
        "Valid": valid,
        "Rotating": _rotating(ledger, usage, now),
        "Expiring": _expiring(facts, now),
        "Questionable": questionable(facts),
        "Degraded": degraded,
        "Ready": ready([valid, no(degraded.reason, degraded.message) if degraded.holds else yes("Ready")]),
    }
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": conditions(verdicts, previous, generation, _text(now)),
        "connections": total(usage.connections.values()),
        "users": [_user(pod) for pod in usage.pods[:MAX_POD_STATUSES]],
        "relaySites": list(usage.relay_sites[:_LISTED]),
        "gossipRouters": list(usage.gossip_routers[:_LISTED]),
    }
    return status if ledger is None else {**status, **_in_service(ledger, usage)}


def is_under_way(ledger: Ledger | None, now: datetime) -> bool:
    """Whether a rotation has begun that may come to its end soon."""
    if ledger is None or ledger.current.settled is not None:
        return False
    return now - ledger.current.since < timedelta(seconds=STUCK_SECONDS)


def stuck(ledger: Ledger | None, usage: Usage, now: datetime) -> bool:
    """Whether a rotation has been under way for too long."""
    return (
        ledger is not None
        and ledger.current.settled is None
        and bool(usage.behind)
        and not is_under_way(ledger, now)
    )


def next_change(facts: ProfileFacts, now: datetime) -> datetime | None:
    """When the status changes next though nothing happens: a certificate expires, a rotation takes too long."""
    ledger = facts.ledger
    if ledger is None:
        return None
    moments = []
    if ledger.current.settled is None:
        moments.append(ledger.current.since + timedelta(seconds=STUCK_SECONDS))
    if ledger.certificate is not None:
        about = described(ledger.certificate)
        moments += [about.not_after - _margin(facts, about), about.not_after]
    return min((moment for moment in moments if moment > now), default=None)


# -- conditions


def _valid(facts: ProfileFacts, now: datetime) -> Verdict:
    ledger = facts.ledger
    if ledger is None:
        found = facts.refusal or facts.problem
        if found is None:
            return no("Pending", "the operator has not examined the Secret yet")
        return no(found.reason, found.message)
    problem = examine(*(ledger.material.get(key) for key in TLS_KEYS)).problem_at(now)
    if problem is not None:
        return no("CertificateExpired", f"in service under ordinal {ledger.ordinal}: {problem}")
    return yes("InService", f"ordinal {ledger.ordinal} is in service")


def _degraded(facts: ProfileFacts) -> Verdict:
    found, ledger = facts.refusal or facts.problem, facts.ledger
    if found is None:
        return no("AsSpecified", "what the Secret holds is in service")
    kept = f"; ordinal {ledger.ordinal} stays in service" if ledger is not None else ""
    waiting = ledger is not None and facts.profile.spec.rotation.request > ledger.handled_request
    return yes(
        found.reason, joined(f"{found.message}{kept}" + ("; the requested rotation waits" if waiting else ""))
    )


def _rotating(ledger: Ledger | None, usage: Usage, now: datetime) -> Verdict:
    if ledger is None:
        return no("NoCertificate", "no certificate is in service yet")
    current = ledger.current
    if current.settled is not None:
        return no("Settled", f"ordinal {current.ordinal} is in use everywhere")
    if not usage.behind:
        return yes("Rotating", f"ordinal {current.ordinal} since {_text(current.since)}")
    more = len(usage.behind) - _NAMED
    named = "; ".join(usage.behind[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
    text = (
        f"ordinal {current.ordinal} since {_text(current.since)}, {len(usage.behind)} not on it yet: {named}"
    )
    return yes("RotationStuck" if stuck(ledger, usage, now) else "Rotating", joined(text))


def _expiring(facts: ProfileFacts, now: datetime) -> Verdict:
    ledger = facts.ledger
    if ledger is None or ledger.certificate is None:
        return no("NoCertificate", "no certificate is in service yet")
    about = described(ledger.certificate)
    text = f"the certificate expires at {_text(about.not_after)}"
    if now > about.not_after:
        return yes("CertificateExpired", f"the certificate expired at {_text(about.not_after)}")
    return yes("ExpiresSoon", text) if about.not_after - now <= _margin(facts, about) else no("NotYet", text)


def _margin(facts: ProfileFacts, about: Certificate) -> timedelta:
    """How long before its end a certificate is told to expire."""
    return min(timedelta(days=facts.profile.spec.expiring_days), (about.not_after - about.not_before) / 3)


# -- the rest


def _in_service(ledger: Ledger, usage: Usage) -> dict[str, Any]:
    authorities = ledger.material.get("ca.crt")
    out: dict[str, Any] = {
        "ordinal": ledger.ordinal,
        "oldestValidOrdinal": ledger.oldest_valid,
        "handledRequest": ledger.handled_request,
        "authorities": count(authorities) if authorities is not None else 0,
        "ordinals": _ordinals(ledger, usage),
    }
    if ledger.certificate is not None:
        about = described(ledger.certificate)
        out |= {
            "fingerprint": about.fingerprint,
            "issuer": about.issuer[:MAX_MESSAGE],
            "notBefore": _text(about.not_before),
            "notAfter": _text(about.not_after),
        }
    return out


def _ordinals(ledger: Ledger, usage: Usage) -> list[dict[str, Any]]:
    known = {item.ordinal: item for item in ledger.generations}
    out = []
    for ordinal in sorted({*known, *usage.connections})[-MAX_ORDINAL_STATUSES:]:
        entry: dict[str, Any] = {"ordinal": ordinal, "connections": usage.connections.get(ordinal, 0)}
        item = known.get(ordinal)
        if item is not None:
            entry["since"] = _text(item.since)
            if item.not_after is not None:
                entry |= {"fingerprint": item.fingerprint, "notAfter": _text(item.not_after)}
        out.append(entry)
    return out


def _user(pod: PodUsage) -> dict[str, Any]:
    out: dict[str, Any] = {"pod": pod.pod, "router": pod.router}
    if pod.listeners:
        out["listeners"] = list(pod.listeners[:16])
    if pod.connectors:
        out["connectors"] = list(pod.connectors[:64])
    out["connections"] = [
        {"ordinal": ordinal, "connections": number}
        for ordinal, number in list(pod.connections.items())[-MAX_ORDINAL_STATUSES:]
    ]
    if pod.behind:
        out["message"] = joined(pod.behind)
    return out


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
