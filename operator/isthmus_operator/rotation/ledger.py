"""What is remembered of an SslProfile: its valid ordinals, and the certificates in service.

All of it is written at once and read back as it was, so that whoever acts next goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

from ..certificates import described, examine, merged, revocations_expiry, revocations_problem
from ..names import digest
from ..resources.sslprofile import MAX_ORDINAL
from ..untrusted import FAILURES, count, document, listed, objects, text

TLS_KEYS = ("ca.crt", "tls.crt", "tls.key")
REVOCATIONS = "ca.crl"
"""Beside `TLS_KEYS`, whatever the key of the Secret is."""
MAX_GENERATIONS = 64
"""Generations remembered; ordinals that are older stay valid, but are told and trusted no more."""
_STATE = "ledger.json"
_FIRST_YEAR, _LAST_YEAR = 1970, 9000
"""Of moments to which delays are added."""


@dataclass(frozen=True)
class Generation:
    """What was adopted under one ordinal. The private key of an old one is of no use, and not kept."""

    ordinal: int
    identity: str
    """Of the certificate and its chain; empty without a certificate."""
    since: datetime
    """When it was adopted."""
    settled: datetime | None = None
    """When all users were seen to use this ordinal or a newer one."""
    fingerprint: str = ""
    not_after: datetime | None = None
    authorities: bytes | None = field(default=None, repr=False)
    """Its `ca.crt`."""
    names: tuple[str, ...] = ()
    """By which the certificate is recognised; connections made with it stay while its ordinal is valid."""


@dataclass(frozen=True)
class Past:
    """What is known of a profile whose ledger is lost or was never written."""

    ordinal: int = 0
    oldest_valid: int = 0
    fingerprint: str = ""
    """Of the certificate that was in service under `ordinal`."""


@dataclass(frozen=True)
class Ledger:
    """The memory of one profile."""

    generations: tuple[Generation, ...]
    """The valid ones, oldest first; at least one, as the last one is in service."""
    oldest_valid: int
    handled_request: int
    dialled: int
    """The ordinal of connections that routers make. It follows once all listeners present the newest one, so
    that both ends of a connection count it under the same one."""
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    revocations: bytes | None = field(default=None, repr=False)
    """Certificate revocation lists, for peers of all valid ordinals."""

    @property
    def current(self) -> Generation:
        return self.generations[-1]

    @property
    def ordinal(self) -> int:
        return self.current.ordinal

    @cached_property
    def material(self) -> Mapping[str, bytes]:
        """What routers are given, by key of a Secret: trusted are the authorities of all valid ordinals."""
        bundles = [item.authorities for item in reversed(self.generations) if item.authorities is not None]
        authorities = merged(*bundles) if self.current.authorities is not None else None
        found = dict(zip(TLS_KEYS, (authorities, self.certificate, self.key), strict=True))
        return {key: content for key, content in found.items() if content is not None}

    @cached_property
    def revocations_expiry(self) -> datetime | None:
        """When the first revocation list expires; None without one that states it."""
        return revocations_expiry(self.revocations) if self.revocations is not None else None

    @property
    def past(self) -> Past:
        """What another ledger of the profile must not go behind."""
        return Past(self.ordinal, self.oldest_valid, self.current.fingerprint)

    def without_content(self) -> Ledger:
        """Its ordinals and moments alone."""
        generations = tuple(replace(item, authorities=None) for item in self.generations)
        return replace(self, generations=generations, certificate=None, key=None, revocations=None)

    @cached_property
    def size(self) -> int:
        """Bytes of certificates, keys and revocation lists."""
        bundles = {item.authorities for item in self.generations}
        return sum(len(item or b"") for item in (self.certificate, self.key, self.revocations, *bundles))

    def encoded(self) -> dict[str, bytes]:
        """The ledger as the data of a Secret."""
        current = {"tls.crt": self.certificate, "tls.key": self.key}
        files: dict[str, bytes | None] = {
            f"{self.ordinal}.{key}": content for key, content in current.items()
        }
        # Most generations have the same authorities, and a Secret is limited in size.
        bundles = [item.authorities for item in self.generations if item.authorities is not None]
        files |= {_bundle_name(content): content for content in bundles}
        state = {
            "oldestValidOrdinal": self.oldest_valid,
            "handledRequest": self.handled_request,
            "dialledOrdinal": self.dialled,
            "generations": [
                {
                    "ordinal": item.ordinal,
                    "identity": item.identity,
                    "since": item.since.isoformat(),
                    "settled": _text(item.settled),
                    "fingerprint": item.fingerprint,
                    "notAfter": _text(item.not_after),
                    "authorities": _bundle_name(item.authorities) if item.authorities is not None else None,
                    "names": list(item.names),
                }
                for item in self.generations
            ],
        }
        files[REVOCATIONS] = self.revocations
        present = {name: content for name, content in files.items() if content is not None}
        return {_STATE: json.dumps(state).encode(), **present}

    @classmethod
    def decoded(cls, data: Mapping[str, bytes]) -> Ledger | None:
        """The ledger in the data of a Secret; None when there is none that can be used."""
        try:
            state = document(data[_STATE])
            generations = tuple(_generation(item, data) for item in objects(state["generations"]))
            ordinal = generations[-1].ordinal
            certificate, key = (data.get(f"{ordinal}.{name}") for name in ("tls.crt", "tls.key"))
            found = cls(
                generations,
                count(state["oldestValidOrdinal"], MAX_ORDINAL),
                count(state["handledRequest"], MAX_ORDINAL),
                count(state["dialledOrdinal"], MAX_ORDINAL),
                certificate,
                key,
                data.get(REVOCATIONS),
            )
            return found if found._is_sound() else None
        except (*FAILURES, IndexError):
            return None

    def _is_sound(self) -> bool:
        """Whether it is what `encoded` could have written: somebody may have edited it. Raises ValueError."""
        ordinals = [item.ordinal for item in self.generations]
        bundles = {item.authorities for item in self.generations}
        return (
            0 < self.oldest_valid <= min(ordinals[0], self.dialled)
            and self.dialled <= self.ordinal
            and all(earlier < later for earlier, later in pairwise(ordinals))
            and examine(self.current.authorities, self.certificate, self.key).problem is None
            and all(examine(bundle, None, None).problem is None for bundle in bundles)
            and (self.revocations is None or revocations_problem(self.revocations) is None)
            and self.current.identity == identity(self.certificate)
        )


def identity(certificate: bytes | None) -> str:
    """By what a new certificate is told from the old one. Raises ValueError when it is none."""
    return described(certificate).identity if certificate is not None else ""


def _generation(item: Mapping[str, Any], data: Mapping[str, bytes]) -> Generation:
    return Generation(
        ordinal=count(item["ordinal"], MAX_ORDINAL),
        identity=str(item["identity"]),
        since=_recent(item["since"]),
        settled=_recent(item["settled"]) if item["settled"] is not None else None,
        fingerprint=str(item["fingerprint"]),
        not_after=_moment(item["notAfter"]),
        authorities=data[item["authorities"]] if item["authorities"] is not None else None,
        names=tuple(map(text, listed(item.get("names")))),
    )


def _bundle_name(authorities: bytes) -> str:
    return f"{digest(authorities)[:16]}.ca.crt"


def _recent(text: str) -> datetime:
    """A moment to which the operator can add the delays of a profile. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise ValueError("a time without a zone, or out of range")
    return moment


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None


def _moment(text: str | None) -> datetime | None:
    """Raises ValueError."""
    moment = datetime.fromisoformat(text) if text is not None else None
    if moment is not None and moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return moment
