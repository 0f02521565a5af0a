"""The serial number and the issuer of a certificate in DER."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from isthmus_router.der import serial_and_issuer


def issued(serial: int, common_name: str) -> x509.Certificate:
    key, now = generate_private_key(SECP256R1()), datetime.datetime.now(datetime.UTC)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)] * 20)
    builder = x509.CertificateBuilder(issuer, x509.Name([]), key.public_key(), serial)
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    return builder.sign(key, SHA256())


def element(tag: int, content: bytes) -> bytes:
    """With a length of one byte."""
    return bytes([tag, len(content)]) + content


SMALL = element(0x02, b"\5") + element(0x30, b"algorithm") + element(0x30, b"issuer")
"""The beginning of a certificate of version 1, which does not state its version."""


@pytest.mark.parametrize("serial", [1, 127, 128, 2**159 - 1])
@pytest.mark.parametrize("name", ["a", "a" * 60])
def test_they_are_as_the_certificate_has_them(serial: int, name: str) -> None:
    certificate = issued(serial, name)
    text, issuer = serial_and_issuer(certificate.public_bytes(Encoding.DER))
    assert (text[0], int.from_bytes(text[2:], "big", signed=True)) == (0x02, serial)
    assert issuer == certificate.issuer.public_bytes()


def test_a_certificate_of_version_1() -> None:
    certificate = element(0x30, element(0x30, SMALL))
    assert serial_and_issuer(certificate) == (element(0x02, b"\5"), element(0x30, b"issuer"))


def test_a_certificate_that_is_cut_off_is_refused() -> None:
    certificate = element(0x30, element(0x30, SMALL))
    for length in range(len(certificate)):
        with pytest.raises(ValueError, match="certificate"):
            serial_and_issuer(certificate[:length])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x31\x80" + SMALL,
        b"\x30\x80" + SMALL,
        b"\x30\x85\0\0\0\0\x05" + SMALL,
        b"\x30\x84\xff\xff\xff\xff" + SMALL,
        element(0x30, element(0x04, b"\5") + SMALL),
    ],
)
def test_what_is_no_certificate_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="certificate"):
        serial_and_issuer(element(0x30, content))
