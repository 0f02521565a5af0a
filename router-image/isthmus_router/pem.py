"""PEM files of certificates and certificate revocation lists: read once, checked, and encoded again for OpenSSL.

OpenSSL decodes more than it is asked for: private keys beside authorities and lists, of which it computes the public
key of one for DSA, whose parameters have any length, for hours. It also finds blocks where other parsers find none,
such as after 254 characters of a line, and decrypts blocks with headers. So it gets only what was checked here, from a
file in memory.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
from collections.abc import Iterator
from hashlib import sha256

MOST_BYTES = 1024 * 1024
"""Of a file of certificates or of a private key, as many as a Secret has at most."""
MOST_LIST_BYTES = 64 * 1024 * 1024
"""Of a file of certificate revocation lists."""

CERTIFICATE, LIST = b"CERTIFICATE", b"X509 CRL"
_CERTIFICATES = (CERTIFICATE, b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE")
"""The labels that OpenSSL reads as certificates."""
_BEGIN = b"-----BEGIN "
_BLOCK = re.compile(
    rb"^-----BEGIN ([A-Z0-9 ]+)-----[ \t\r]*\n([A-Za-z0-9+/=\s]*+)^-----END \1-----[ \t\r]*$", re.MULTILINE
)
_LINE = 64
"""Characters in a line of a block."""


def has_others(pem: bytes, *labels: bytes) -> bool:
    """Return whether `pem` has a block with none of these labels, also where only some parsers find one."""
    _, *blocks = pem.split(_BEGIN)
    begins = tuple(label + b"-----" for label in labels)
    return not all(block.startswith(begins) for block in blocks)


def digest(authorities: bytes | None, chain: bytes | None, revocations: bytes | None) -> str:
    """Return by what one process recognises that another has loaded the same certificates; empty without any.

    The private key is not part of it: it belongs to the certificate, and the digest is no secret.
    """
    contents = (authorities, chain, revocations)
    if not any(contents):
        return ""
    return sha256(b"".join(sha256(content or b"").digest() for content in contents)).hexdigest()


def chain(pem: bytes) -> bytes:
    """Return the certificates of `pem` alone, encoded again: a private key may be beside them. Raises ValueError."""
    return _encoded(pem, _CERTIFICATES)


def authorities(pem: bytes) -> bytes:
    """Return the certificates and certificate revocation lists of `pem`, encoded again. Raises ValueError if it has
    another block."""
    _check_labels(pem)
    return _encoded(pem, (*_CERTIFICATES, LIST))


def lists(pem: bytes) -> bytes:
    """Return the certificate revocation lists of `pem` alone, encoded again. Certificates may be beside them, and must
    not be trusted: lists are signed, and so may come from anywhere. Raises ValueError if it has another block."""
    _check_labels(pem)
    return _encoded(pem, (LIST,))


def _check_labels(pem: bytes) -> None:
    if has_others(pem, *_CERTIFICATES, LIST):
        raise ValueError(
            "a PEM block in it is neither a certificate nor a certificate revocation list; remove it"
        )


def _encoded(pem: bytes, labels: tuple[bytes, ...]) -> bytes:
    found = [match.groups() for match in _BLOCK.finditer(pem) if match[1] in labels]
    if len(found) != sum(pem.count(b"%b%b-----" % (_BEGIN, label)) for label in labels):
        raise ValueError("a PEM block in it is malformed; encode its certificates and lists again")
    return b"".join(_block(label, text) for label, text in found)


def _block(label: bytes, text: bytes) -> bytes:
    try:
        content = base64.b64encode(base64.b64decode(b"".join(text.split()), validate=True))
    except ValueError:
        raise ValueError("a PEM block in it is not base64; encode its certificates and lists again") from None
    lines = (content[begin : begin + _LINE] for begin in range(0, len(content), _LINE))
    return b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (label, b"\n".join(lines), label)


@contextlib.contextmanager
def in_memory(content: bytes) -> Iterator[str]:
    """The path of a file in memory, for functions that read files only."""
    descriptor = os.memfd_create("pem")
    with open(descriptor, "wb", buffering=0) as file:
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]
        yield f"/proc/self/fd/{descriptor}"
