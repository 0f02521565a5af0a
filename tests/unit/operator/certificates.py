"""Certificates for tests, in the form that a Secret has them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache

import trustme

NOW = datetime(2030, 1, 1, tzinfo=UTC)
"""All certificates of `issued` are valid then."""


@cache
def authority(name: str) -> trustme.CA:
    return trustme.CA(organization_name=name)


def authorities(*names: str) -> bytes:
    """A bundle for `ca.crt`."""
    return b"".join(authority(name).cert_pem.bytes() for name in names)


@cache
def issued(
    number: int, by: str = "first", begin: timedelta = timedelta(days=-1), end: timedelta = timedelta(days=90)
) -> Mapping[str, bytes]:
    """A certificate with its key and authority; another one for each `number`. Times are from `NOW`."""
    made = authority(by).issue_cert(f"host-{number}.example", not_before=NOW + begin, not_after=NOW + end)
    return {
        "ca.crt": authorities(by),
        "tls.crt": b"".join(blob.bytes() for blob in made.cert_chain_pems),
        "tls.key": made.private_key_pem.bytes(),
    }
