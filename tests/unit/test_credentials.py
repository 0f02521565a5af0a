"""Names that a certificate is for."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from isthmus_router.amqp.tls import TlsDomain, TlsError
from isthmus_router.ciphers import cipher_list
from isthmus_router.config.model import SslProfileConfig
from isthmus_router.credentials import CredentialsError, TlsFiles, certificate_names


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


@pytest.mark.parametrize("protocol", [ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT])
def test_members_bridges_and_gossip_routers_use_tls_1_2_or_newer(protocol: ssl._SSLMethod) -> None:
    """At level 2 OpenSSL refuses older versions as well."""
    context = TlsFiles(None, None, None).read().context(protocol)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.security_level == 2


@pytest.mark.parametrize("label", [b"PRIVATE KEY", b"DSA PRIVATE KEY", b"CERTIFICATE-X PRIVATE KEY"])
@pytest.mark.parametrize("wrong", ["authority", "revocations"])
def test_private_keys_beside_authorities_or_revocation_lists_are_refused(
    tmp_path: Path, wrong: str, label: bytes
) -> None:
    """OpenSSL would decode them, which takes hours for some."""
    authority = trustme.CA()
    issued = authority.issue_cert("west.example")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(issued.cert_chain_pems[0].bytes())
    key.write_bytes(issued.private_key_pem.bytes())
    good, bad = tmp_path / "ca.crt", tmp_path / "bad.pem"
    good.write_bytes(authority.cert_pem.bytes())
    bad.write_bytes(good.read_bytes() + b"-----BEGIN %b-----\nAAAA\n-----END %b-----\n" % (label, label))
    files = TlsFiles(str(certificate), str(key), str(good))
    assert files.read().context(ssl.PROTOCOL_TLS_SERVER).verify_mode == ssl.CERT_REQUIRED
    with pytest.raises(
        CredentialsError, match=r"bad\.pem.*neither a certificate nor a certificate revocation list"
    ):
        files._replace(**{wrong: str(bad)}).read()
    profile = SslProfileConfig(
        name="own",
        ciphers=None,
        protocols=None,
        ca_cert_file=str(bad),
        crl_file=None,
        cert_file=str(certificate),
        private_key_file=str(key),
        password=None,
        uid_format=None,
        uid_name_mapping_file=None,
        ordinal=0,
        oldest_valid_ordinal=0,
    )
    with pytest.raises(TlsError, match=r"bad\.pem.*neither a certificate nor"):
        TlsDomain(profile, server=True, verify_peer=1)
