"""Versions and ciphers of TLS that routers, members, gossip routers and collectors use."""

from __future__ import annotations

from collections.abc import Sequence

DEFAULT_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
"""Versions of TLS where a profile names none."""
_LEGACY_PROTOCOLS = frozenset({"TLSv1", "TLSv1.1"})
_CIPHERS = "HIGH:!PSK:!SRP:!MD5:!RC4:!3DES:!DHE"
"""Without Diffie-Hellman in finite fields: a server may choose parameters with which a handshake takes 0.2 s."""
_NEVER = "!aNULL:!eNULL:!EXPORT"
"""Ciphers without authentication (anonymous Diffie-Hellman), without encryption, or with weakened keys."""


def cipher_list(stated: str | None = None, protocols: Sequence[str] | None = None) -> str:
    """The OpenSSL cipher list of a profile whose `ciphers` and `protocols` are these.

    Ciphers without authentication or encryption are never in it. The security level is 2 (keys of at least 112 bits)
    unless `stated` has another one, or `protocols` names versions whose signatures need level 0.
    """
    level = 0 if _LEGACY_PROTOCOLS.intersection(protocols or ()) else 2
    parts = [stated or _CIPHERS, _NEVER]
    if stated is None or "@SECLEVEL" not in stated:
        parts.append(f"@SECLEVEL={level}")
    return ":".join(parts)
