"""The rotation of SslProfiles on this machine: the operator's decisions, with ledgers in the network's folder.

`up`, `rotate` and the supervisor go through the same steps: `adopted`, what the Secrets offer; `used`, what the
routers make of it; `retired`, what follows from that. `keep` writes the ledgers before anything else follows.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from isthmus_cli.view import Manifest
from isthmus_operator.authority import is_own, offer
from isthmus_operator.model import NamespaceModel
from isthmus_operator.render.material import Delivered
from isthmus_operator.resources import SslProfile
from isthmus_operator.rotation import Adoption, Ledger, Past, Wish, adopt, retire
from isthmus_operator.status import (
    CertificateUser,
    ProfileFacts,
    RouterFacts,
    Users,
    is_under_way,
    sslprofile_status,
    usage,
)

from .ports import LOOPBACK_NAME
from .state import NetworkState

Facts = Mapping[str, ProfileFacts]
"""By profile."""

_UNDER_WAY_SECONDS = 0.3
_STUCK_SECONDS = 3.0


def adopted(
    state: NetworkState, model: NamespaceModel, now: datetime, asked: Mapping[str, bool] | None = None
) -> Facts:
    """With what the Secrets of `model` offer taken over. `asked` are profiles whose ordinal is to be raised in
    any case, and whether earlier ones are to be revoked."""
    found = {}
    delivered = Delivered.of(model.delivered.values())
    for name, profile in model.profiles.items():
        before = read(state, name)
        wish = Wish.of(profile.spec, staged=model.has_listeners_with(name))
        handled = before.handled_request if before is not None else 0
        if asked is not None and name in asked:
            raised = replace(wish, request=handled + 1, revoke=asked[name])
            result, renewal = _look(profile, model, delivered, before, raised, now)
        else:
            result, renewal = _look(profile, model, delivered, before, wish, now)
        ledger = result.ledger
        if ledger is not None and result.refusal is None:
            # Numbers of requests are those of the files.
            ledger = replace(ledger, handled_request=max(handled, wish.request))
        due = result.refusal.until if result.refusal is not None else renewal
        found[name] = ProfileFacts(profile, ledger, result.refusal, due=due, changes=result.changes)
    return found


def standing(state: NetworkState, model: NamespaceModel, now: datetime) -> Facts:
    """As written, with what is wrong with the Secrets of `model`."""
    return {
        name: replace(item, ledger=read(state, name)) for name, item in adopted(state, model, now).items()
    }


def used(
    facts: Facts,
    routers: Collection[RouterFacts],
    others: Collection[CertificateUser],
    model: NamespaceModel,
) -> Facts:
    """With the use that the routers, and `others`, make of the newest ordinals."""
    by_name = {item.router.name: item for item in routers}
    plan = {name: item.instances for name, item in by_name.items()}
    users = Users(model, plan, lambda *_: LOOPBACK_NAME)
    found = {}
    for name, item in facts.items():
        ordinal = item.ledger.ordinal if item.ledger is not None else 0
        found[name] = replace(item, usage=usage(name, ordinal, by_name, users, others))
    return found


def retired(facts: Facts, now: datetime) -> Facts:
    """With what follows from the use that is made of them."""
    found = {}
    for name, item in facts.items():
        if item.ledger is not None:
            seen = item.usage.seen(item.ledger.ordinal)
            result = retire(item.ledger, seen, item.profile.spec.retention, now)
            moments = [moment for moment in (item.due, result.due) if moment is not None]
            item = replace(item, ledger=result.ledger, due=min(moments, default=None))
        found[name] = item
    return found


def ledgers(facts: Facts) -> Mapping[str, Ledger]:
    return {name: item.ledger for name, item in facts.items() if item.ledger is not None}


def keep(state: NetworkState, facts: Facts) -> None:
    """Writes the ledgers, and forgets those of profiles that are gone."""
    for name, ledger in ledgers(facts).items():
        encoded = ledger.encoded().items()
        state.write_profile(name, {key: base64.b64encode(data).decode() for key, data in encoded})
    state.retain_profiles(facts)


def pause(facts: Facts, now: datetime) -> float | None:
    """In how many seconds to look again; None when nothing is to come."""
    waits = [max(0.0, (item.due - now).total_seconds()) for item in facts.values() if item.due is not None]
    for ledger in ledgers(facts).values():
        if ledger.current.settled is None:
            waits.append(_UNDER_WAY_SECONDS if is_under_way(ledger, now) else _STUCK_SECONDS)
    return min(waits, default=None)


def manifests(facts: Facts, now: datetime) -> Mapping[str, Manifest]:
    """The profiles as they would be on Kubernetes: with the operator's status. Implicit ones are left out."""
    return {
        name: {"metadata": {"name": name}, "status": sslprofile_status(item, None, now)}
        for name, item in facts.items()
        if not is_own(name)
    }


def read(state: NetworkState, name: str) -> Ledger | None:
    """The ledger of a profile as it was written last."""
    document = state.profile(name)
    if document is None:
        return None
    return Ledger.decoded({key: base64.b64decode(data) for key, data in document.items()})


def _look(
    profile: SslProfile,
    model: NamespaceModel,
    delivered: Delivered,
    before: Ledger | None,
    wish: Wish,
    now: datetime,
) -> tuple[Adoption, datetime | None]:
    """What becomes of a profile, and when its certificate is to be renewed if the network's own authority signs it."""
    known = Past() if before is not None else delivered.past(profile.name)
    own, renewal = model.own.get(profile.name), None
    if own is not None:
        offered, renewal = offer(model.authority, own.names, before, now)
    else:
        secret = model.secrets.get(profile.spec.secret_name)
        offered = secret.data if secret is not None else None
    return adopt(before, profile.spec.secret_name, offered, wish, known, now), renewal
