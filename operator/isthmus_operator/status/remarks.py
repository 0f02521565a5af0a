"""What is probably not as it was meant, though it is carried out: sentences about an SslProfile. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..certificates import fitness, is_signed, unlisted
from ..resources.sslprofile import SslProfileSpec
from ..rotation import Ledger
from .conditions import Verdict, no, yes
from .usage import ProfileFacts, Usage

_NAMED = 4
"""Hosts or authorities that a sentence names."""
_LONGEST = 256
"""Characters of each."""


def questionable(facts: ProfileFacts) -> Verdict:
    """The condition `Questionable`."""
    if facts.ledger is None:
        return no("NoCertificate", "no certificate is in service yet")
    found = [
        *(("NumberIgnored", text) for text in _numbers(facts.profile.spec, facts.ledger)),
        *(("CertificateUnfit", text) for text in _certificate(facts.ledger, facts.usage)),
        *(("ListMissing", text) for text in _lists(facts.ledger)),
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
        yield (
            f"tls.crt does not name {_first(missing)}, which connectors expect: issue it with such subject alternative "
            "names, or set tls.verifyHostname of the Connectors to false"
        )


def _lists(ledger: Ledger) -> Iterator[str]:
    authorities = ledger.material.get("ca.crt")
    if ledger.revocations is None or authorities is None:
        return
    missing = unlisted(authorities, ledger.certificate, ledger.revocations)
    if missing:
        yield (
            f"spec.crlKey names no certificate revocation list of {_first(missing)}, so peers whose chain has such an "
            "authority are refused: add the list, or take the authority out of ca.crt"
        )


def _first(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(name[:_LONGEST] for name in names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
