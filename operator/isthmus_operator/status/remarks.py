"""What is probably not as it was meant, though it is carried out: sentences about an SslProfile. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..certificates import fitness, is_signed
from ..resources.sslprofile import SslProfileSpec
from ..rotation import Ledger
from .conditions import Verdict, no, yes
from .usage import ProfileFacts, Usage

_NAMED = 4
"""Hosts that a sentence names."""


def questionable(facts: ProfileFacts) -> Verdict:
    """The condition `Questionable`."""
    if facts.ledger is None:
        return no("NoCertificate", "nothing has been adopted yet")
    found = [
        *(("NumberIgnored", text) for text in _numbers(facts.profile.spec, facts.ledger)),
        *(("CertificateUnfit", text) for text in _certificate(facts.ledger, facts.usage)),
    ]
    if not found:
        return no("AsExpected", "")
    return yes(found[0][0], "; ".join(text for _, text in found))


def _numbers(spec: SslProfileSpec, ledger: Ledger) -> Iterator[str]:
    asked, ordinal = spec.oldest_valid_ordinal, ledger.ordinal
    if asked > ordinal:
        yield (
            f"spec.oldestValidOrdinal is {asked}, but the newest ordinal is {ordinal}: it counts as {ordinal}, and "
            f"each new certificate closes all older connections at once; set it to {ordinal} or less"
        )
    request, handled = spec.rotation.request, ledger.handled_request
    if 0 < request < handled:
        yield (
            f"spec.rotation.request is {request}, but {handled} was carried out before: nothing is rotated; set it "
            f"to {handled}, or to more to rotate"
        )


def _certificate(ledger: Ledger, usage: Usage) -> Iterator[str]:
    if ledger.certificate is None:
        return
    found = fitness(ledger.certificate)
    listeners = any(pod.listeners for pod in usage.pods)
    connectors = any(pod.connectors for pod in usage.pods)
    if listeners and connectors and not is_signed(ledger.certificate, ledger.current.authorities):
        yield (
            "tls.crt is not signed by an authority in its own ca.crt, so routers with this profile refuse each other: "
            "put the authority that has signed it into ca.crt"
        )
    if listeners and not found.server:
        yield "tls.crt is not for servers, but listeners present it: issue it with the usage server auth"
    if connectors and not found.client:
        yield "tls.crt is not for clients, but connectors present it: issue it with the usage client auth"
    missing = [host for host in usage.hosts if not found.names_host(host)]
    if missing:
        more = len(missing) - _NAMED
        named = ", ".join(missing[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        yield (
            f"tls.crt does not name {named}, which connectors expect: issue it with such subject alternative names, "
            "or set tls.verifyHostname of the Connectors to false"
        )
