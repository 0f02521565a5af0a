"""The ordinals of SslProfiles on this machine: the operator's decisions, kept in the network's folder."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime

from isthmus_operator.model import NamespaceModel
from isthmus_operator.render.material import past
from isthmus_operator.resources import SslProfile
from isthmus_operator.rotation import Ledger, Past, Seen, Wish, adopt, retire

from .state import NetworkState


def advance(
    state: NetworkState, model: NamespaceModel, now: datetime, *, settled: bool
) -> tuple[Mapping[str, Ledger], tuple[str, ...]]:
    """Takes over what the Secrets of `model` offer. Returns the ledgers in force, by profile, as they are
    written, and a sentence for everything that was refused. Nothing is retired unless the network is `settled`:
    every connection that should be is there."""
    ledgers: dict[str, Ledger] = {}
    findings = []
    for name, profile in model.profiles.items():
        secret = model.secrets.get(profile.spec.secret_name)
        before = read(state, name)
        if settled:
            before = _retired(profile, before, now)
        known = Past() if before is not None else past(model.delivered.values(), name)
        offer = secret.data if secret is not None else None
        result = adopt(
            before, profile.spec.secret_name, offer, Wish.of(profile.spec, staged=False), known, now
        )
        if result.ledger is not None:
            ledgers[name] = result.ledger
            encoded = result.ledger.encoded().items()
            state.write_profile(name, {key: base64.b64encode(data).decode() for key, data in encoded})
        if result.refusal is not None:
            kept = f"; ordinal {result.ledger.ordinal} stays in service" if result.ledger is not None else ""
            findings.append(f"SslProfile {name}: {result.refusal.reason}: {result.refusal.message}{kept}")
    state.retain_profiles(model.profiles)
    return ledgers, tuple(findings)


def read(state: NetworkState, name: str) -> Ledger | None:
    """The ledger of a profile as it was written last."""
    document = state.profile(name)
    if document is None:
        return None
    return Ledger.decoded({key: base64.b64decode(data) for key, data in document.items()})


def _retired(profile: SslProfile, ledger: Ledger | None, now: datetime) -> Ledger | None:
    """Nobody watches the routers between two `up`s: they have used the newest ordinal ever since there was one."""
    if ledger is None:
        return None
    retention = profile.spec.retention
    seen = Seen(ledger.ordinal, served=True, used=True)
    settled = retire(ledger, seen, retention, ledger.current.since).ledger
    return retire(settled, None, retention, now).ledger
