"""Names that a certificate is for."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from isthmus_router.credentials import certificate_names, cipher_list


@pytest.mark.parametrize(
    ("certificate", "names"),
    [
        (None, ()),
        ({}, ()),
        ({"subject": ((("organizationName", "o"),), (("commonName", "sfo"),))}, ("sfo",)),
        (
            {
                "subject": ((("commonName", "a.example"),),),
                "subjectAltName": (("DNS", "b.example"), ("IP Address", "10.0.0.1"), ("DNS", "a.example")),
            },
            ("b.example", "a.example"),
        ),
    ],
)
def test_names(certificate: dict[str, Any] | None, names: tuple[str, ...]) -> None:
    assert certificate_names(certificate) == names


@pytest.mark.parametrize(
    ("stated", "protocols", "level"),
    [
        (None, None, 2),
        (None, ["TLSv1.2", "TLSv1.3"], 2),
        ("DEFAULT", None, 2),
        ("DEFAULT:@SECLEVEL=1", None, 1),
        (None, ["TLSv1", "TLSv1.2"], 0),
        (None, ["TLSv1.1"], 0),
        ("DEFAULT:@SECLEVEL=3", ["TLSv1.1"], 3),
    ],
)
def test_the_security_level_is_two_unless_stated_otherwise(
    stated: str | None, protocols: list[str] | None, level: int
) -> None:
    """Old versions of TLS have signatures that need level 0."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(cipher_list(stated, protocols))
    assert context.security_level == level


@pytest.mark.parametrize("stated", [None, "ALL:COMPLEMENTOFALL:@SECLEVEL=0", "aNULL:eNULL:AES256-SHA"])
def test_ciphers_without_authentication_or_encryption_are_never_negotiated(stated: str | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(cipher_list(stated, None))
    found = context.get_ciphers()
    assert found
    assert not [
        cipher["name"] for cipher in found if cipher["auth"] == "auth-null" or cipher["strength_bits"] < 112
    ]
