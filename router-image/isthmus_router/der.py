"""What a certificate in DER says of its issuer and its serial number.

OpenSSL decodes a whole certificate at once, and takes half a millisecond for its public key.

Source: RFC 5280, 4.1 (Certificate); ITU-T X.690, 8.1 and 10.1 (identifiers and lengths).
"""

from __future__ import annotations

_INTEGER, _SEQUENCE, _VERSION = 0x02, 0x30, 0xA0
_LONG = 0x80
_MOST_LENGTH_BYTES = 4


def serial_and_issuer(certificate: bytes) -> tuple[bytes, bytes]:
    """The serial number and the name of the issuer, each in DER. Raises ValueError."""
    at, _ = _element(certificate, 0, _SEQUENCE)
    at, _ = _element(certificate, at, _SEQUENCE)
    if certificate[at : at + 1] == bytes([_VERSION]):
        _, at = _element(certificate, at, _VERSION)
    _, serial_end = _element(certificate, at, _INTEGER)
    _, issuer = _element(certificate, serial_end, _SEQUENCE)  # the algorithm of the signature is before it
    _, issuer_end = _element(certificate, issuer, _SEQUENCE)
    return certificate[at:serial_end], certificate[issuer:issuer_end]


def _element(data: bytes, at: int, tag: int) -> tuple[int, int]:
    """Where the content of the element at `at` begins and ends."""
    begin = at + 2
    if len(data) < begin or data[at] != tag:
        raise ValueError("not a certificate in DER")
    length = data[at + 1]
    if length >= _LONG:
        size = length - _LONG
        if not 1 <= size <= _MOST_LENGTH_BYTES:
            raise ValueError("a length in the certificate is not DER")
        length = int.from_bytes(data[begin : begin + size], "big")
        begin += size
    if begin + length > len(data):
        raise ValueError("the certificate is not complete")
    return begin, begin + length
