"""Which certificates the listeners of a Router accept: demanded at all, and with which names.

The names come from one place, `expected_names`: those of the certificates that the namespace's own Routers present to
a listener. A listener adds others with `peerNames`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..authority import peer_names
from ..certificates import examine, identities
from ..model import NamespaceModel
from ..resources import Listener, Router
from ..resources.listener import ANY_PEER
from ..resources.tls import ConnectorTls, ListenerTls
from ..rotation.ledger import TLS_KEYS
from .material import sections_of

_BETWEEN_ROUTERS = ("inter-router", "edge")


def certificate_attributes(
    model: NamespaceModel, router: Router, listener: Listener
) -> dict[str, str | int | bool]:
    """The attributes of a `listener` section that say which client certificates it demands."""
    if listener.tls is None or not listener.tls.require_client_certificate:
        return {}
    found: dict[str, str | int | bool] = {"requireClientCertificate": True}
    names = _accepted_names(model, router, listener)
    if names:
        found["peerNames"] = ", ".join(names)
    return found


def own_certificate_attributes(
    model: NamespaceModel, router: Router, listener: Listener
) -> dict[str, str | int | bool]:
    """The same of a listener whose certificates are of the namespace's own authority."""
    found: dict[str, str | int | bool] = {"requireClientCertificate": True}
    given = listener.peer_names or []
    if ANY_PEER not in given:
        connectors = model.connectors_to.get(router.name, ())
        names = peer_names(router, connectors, model.router_names, listener.role)
        found["peerNames"] = ", ".join(sorted({*given, *names}))
    return found


def _accepted_names(model: NamespaceModel, router: Router, listener: Listener) -> list[str]:
    given = listener.peer_names or []
    if ANY_PEER in given or (listener.role not in _BETWEEN_ROUTERS and not given):
        return []
    return sorted({*given, *expected_names(model, router, listener)})


def expected_names(model: NamespaceModel, router: Router, listener: Listener) -> set[str]:
    """The names of the certificates of the Router's own replicas and of Connectors that lead to it.

    While some of these certificates cannot be used, the names that the routers have now stay.
    """
    found: set[str] = set()
    for tls in _presented(model, router, listener):
        names = _names(model, tls)
        found |= names or _delivered(model, router, listener)
    return found


def _presented(
    model: NamespaceModel, router: Router, listener: Listener
) -> Iterator[ListenerTls | ConnectorTls]:
    if listener.role == "inter-router" and listener.tls is not None:
        yield listener.tls
    for connector in model.connectors_to.get(router.name, ()):
        tls = connector.spec.tls
        if tls is None:
            continue
        if listener.role not in _BETWEEN_ROUTERS or connector.spec.role == listener.role:
            yield tls


def _names(model: NamespaceModel, tls: ListenerTls | ConnectorTls) -> set[str]:
    """Of all valid generations of a certificate; empty when it cannot be used."""
    if tls.ssl_profile is not None:
        ledger = model.ledgers.get(tls.ssl_profile)
        if ledger is None or ledger.certificate is None:
            return set()
        earlier = {name for generation in ledger.generations for name in generation.names}
        return earlier | set(identities(ledger.certificate))
    view = model.secrets.get(tls.secret_name or "")
    if view is None or "tls.crt" not in view.data:
        return set()
    if examine(*map(view.data.get, TLS_KEYS)).problem_at(model.now) is not None:
        return set()  # the routers keep the earlier certificate
    return set(identities(view.data["tls.crt"]))


def _delivered(model: NamespaceModel, router: Router, listener: Listener) -> set[str]:
    return {
        name
        for kind, attributes in sections_of(model.delivered.get(router.name, {}))
        if kind == "listener" and attributes.get("name") == listener.name
        for name in str(attributes.get("peerNames", "")).split(", ")
        if name
    }
