"""Key material that cannot be used is named, and does not take the place of what works."""

from __future__ import annotations

import contextlib
import ssl
import time
from base64 import b64decode, encodebytes
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtensionOID
from tests.unit.operator.support import authority, connector, model, opaque_secret, router, tls_data

from isthmus_operator.certificates import described, examine, fitness
from isthmus_operator.facts import block, complaint
from isthmus_operator.model import NamespaceModel, SecretView
from isthmus_operator.render import Rendered, RenderSettings, render

NOW = datetime.now(UTC)
GOOD, OTHER = tls_data(1), tls_data(2)
INDENTED = {name: content.replace(b"\n", b"\n  ") for name, content in GOOD.items()}


def expired() -> Mapping[str, bytes]:
    return _valid_until(NOW - timedelta(hours=1))


def _valid_until(moment: datetime) -> Mapping[str, bytes]:
    issued = authority().issue_cert("late.example", not_before=NOW - timedelta(days=9), not_after=moment)
    return {
        "ca.crt": GOOD["ca.crt"],
        "tls.crt": issued.cert_chain_pems[0].bytes(),
        "tls.key": issued.private_key_pem.bytes(),
    }


def problem(data: Mapping[str, bytes], now: datetime = NOW) -> str | None:
    return examine(data.get("ca.crt"), data.get("tls.crt"), data.get("tls.key")).problem_at(now)


def test_good_material_has_no_problem() -> None:
    assert problem(GOOD) is None
    assert problem({"ca.crt": GOOD["ca.crt"]}) is None
    assert problem({**GOOD, "ca.crt": GOOD["ca.crt"] + trustme.CA().cert_pem.bytes()}) is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tls.key": OTHER["tls.key"]}, "tls.key is not the private key of the certificate in tls.crt"),
        ({"tls.key": b"garbage"}, "tls.key is not a private key in PEM format"),
        ({"tls.key": GOOD["tls.crt"]}, "tls.key is not a private key in PEM format"),
        ({"tls.crt": b"garbage"}, "tls.crt is not a certificate in PEM format"),
        ({"tls.crt": GOOD["tls.key"]}, "tls.crt has a PEM block other than CERTIFICATE; remove it"),
        ({"tls.crt": GOOD["tls.crt"][:200]}, "tls.crt is not a certificate in PEM format"),
        ({"ca.crt": b"garbage"}, "ca.crt is not a certificate in PEM format"),
        (INDENTED, "tls.key is not a private key in PEM format"),
    ],
)
def test_what_is_wrong_is_named(changes: Mapping[str, bytes], text: str) -> None:
    assert problem({**GOOD, **changes}) == text


def slow_key(bits: int = 24_000) -> bytes:
    """A private key for DSA whose parameters have so many bits, without its public key."""
    numbers = ((1 << bits) | 12345678901, (1 << (bits - 1000)) | 7, (1 << (bits - 10)) | 3)
    parameters = _der(0x30, b"".join(map(_integer, numbers)))
    algorithm = _der(0x30, bytes.fromhex("06072a8648ce380401") + parameters)
    return _der(0x30, _integer(0) + algorithm + _der(4, _integer((1 << (bits - 1010)) | 99)))


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(octets)]) + octets + content


def _integer(number: int) -> bytes:
    return _der(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _block(label: bytes, content: bytes) -> bytes:
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label, encodebytes(content), label)


@pytest.mark.parametrize("label", [b"PRIVATE KEY", b"DSA PRIVATE KEY", b"CERTIFICATE-X PRIVATE KEY"])
@pytest.mark.parametrize("key", ["ca.crt", "tls.crt"])
def test_private_keys_beside_certificates_are_refused_and_not_decoded(key: str, label: bytes) -> None:
    block = _block(label, slow_key())
    began = time.thread_time()
    for content in (GOOD[key] + block, block + GOOD[key], GOOD[key] + b"x" * 254 + block):
        said = problem({**GOOD, key: content})
        assert said == f"{key} has a PEM block other than CERTIFICATE; remove it"
    assert time.thread_time() - began < 0.5


def test_a_bundle_has_a_bounded_length_and_number_of_certificates() -> None:
    assert "ca.crt has more than 524288 bytes" in str(problem({"ca.crt": GOOD["ca.crt"] + b"\n" * 524_288}))
    assert "ca.crt has more than 512 certificates" in str(problem({"ca.crt": GOOD["ca.crt"] * 513}))


def test_routers_get_authorities_that_were_parsed_and_encoded_again() -> None:
    found = network({**GOOD, "ca.crt": b"text\n" + INDENTED["ca.crt"] + GOOD["ca.crt"]})
    assert files(found)["id-ca.crt"] == GOOD["ca.crt"]


@pytest.mark.parametrize("between", [b"text\n", b"Bag Attributes\n  localKeyID: 01\n", b"\xef\xbb\xbf"])
def test_routers_get_a_chain_that_was_parsed_and_encoded_again(between: bytes) -> None:
    chain = GOOD["tls.crt"] + GOOD["ca.crt"]
    for stated in (
        between + GOOD["tls.crt"] + between + GOOD["ca.crt"],
        INDENTED["tls.crt"] + GOOD["ca.crt"],
    ):
        assert files(network({**GOOD, "tls.crt": stated}))["id-tls.crt"] == chain


def test_routers_present_the_certificate_that_was_examined(tmp_path: Path) -> None:
    """OpenSSL finds no block that does not begin a line: it would present the second certificate of this chain."""
    key = trustme.CA().issue_cert("a.example")
    examined, other = key.cert_chain_pems[0].bytes(), _certificate_with_key_of(key, "b.example")
    secret = {"tls.crt": b"x" + examined + other, "tls.key": key.private_key_pem.bytes()}
    assert examine(None, secret["tls.crt"], secret["tls.key"]).problem is None
    assert described(secret["tls.crt"]).fingerprint == described(examined).fingerprint
    delivered = files(network(secret))
    assert delivered["id-tls.crt"] == examined + other
    presented = []
    for chain in (secret["tls.crt"], delivered["id-tls.crt"]):
        names = tmp_path / "tls.crt", tmp_path / "tls.key"
        for file, content in zip(names, (chain, secret["tls.key"]), strict=True):
            file.write_bytes(content)
        presented.append(_presented(*names))
    assert presented == [_der_of(other), _der_of(examined)]


def _certificate_with_key_of(issued: trustme.LeafCert, name: str) -> bytes:
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    built = x509.CertificateBuilder(subject, subject, key.public_key(), 7, NOW, NOW + timedelta(days=9))
    return built.sign(key, SHA256()).public_bytes(Encoding.PEM)


def _presented(chain: Path, key: Path) -> bytes | None:
    """The certificate, in DER, that a server with these files shows."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    server.load_cert_chain(chain, key)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    one, other = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
    for end in (one, other, one):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return one.getpeercert(True)


def _der_of(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


def test_half_a_pair_is_of_no_use() -> None:
    said = '"{}" is of no use, as there is no key "{}"; put both into it'
    assert problem({"tls.crt": GOOD["tls.crt"]}) == said.format("tls.crt", "tls.key")
    assert problem({"tls.key": GOOD["tls.key"]}) == said.format("tls.key", "tls.crt")


def test_periods_of_validity() -> None:
    assert "tls.crt expired at" in str(problem(expired()))
    late = expired()
    assert examine(None, late["tls.crt"], late["tls.key"]).problem_at(None) is None
    assert "is not valid before" in str(problem(GOOD, datetime(1990, 1, 1, tzinfo=UTC)))
    assert "ca.crt expired" in str(problem({"ca.crt": GOOD["ca.crt"]}, datetime.max.replace(tzinfo=UTC)))


def test_forms_of_private_keys() -> None:
    key = load_pem_private_key(GOOD["tls.key"], password=None)
    assert isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    for form in (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL):
        pem = key.private_bytes(Encoding.PEM, form, NoEncryption())
        assert problem({**GOOD, "tls.key": pem}) is None
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    assert problem({**GOOD, "tls.key": locked}) == "tls.key is encrypted"
    parameters = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    attributes = b"Bag Attributes\n    friendlyName: x\nKey Attributes: <No Attributes>\n"
    for pem in (
        parameters + GOOD["tls.key"],
        attributes + GOOD["tls.key"],
        GOOD["tls.key"] + GOOD["tls.crt"],
    ):
        assert problem({**GOOD, "tls.key": pem}) is None
    assert problem({**GOOD, "tls.key": GOOD["tls.key"].replace(b"\n", b"\r\n")}) is None


@pytest.mark.parametrize(
    "other",
    [
        b"x %b" + GOOD["tls.key"],
        GOOD["tls.key"] + b"%b",
        GOOD["tls.key"].replace(b"-----BEGIN", b"%b-----BEGIN", 1),
        b"-----begin private key-----\nAAAA\n-----end private key-----\n%b",
        b"-----BEGIN DH PARAMETERS-----\nAAAA\n-----END DH PARAMETERS-----\n%b",
        GOOD["tls.key"].replace(b"KEY-----\n", b"KEY-----\nX-Y: z\n\n", 1),
        GOOD["tls.key"].replace(b"-----BEGIN", b"x -----BEGIN", 1),
        GOOD["tls.key"].replace(b"\n-----END", b"=A=\n-----END", 1),
    ],
    ids=["before", "after", "both", "lower case", "parameters", "header", "middle of a line", "padding"],
)
def test_a_key_that_parsers_read_differently_is_refused(other: bytes) -> None:
    """One parser takes the first block in the middle of a line, and another one the first at the beginning of one. Both
    skip headers, behind which there can be a key that takes minutes to read."""
    pem = other.replace(b"%b", GOOD["tls.key"])
    assert problem({**GOOD, "tls.key": pem}) == "tls.key is not a private key in PEM format"


def test_a_key_too_short_for_tls_is_refused_before_routers_do() -> None:
    key, name = rsa.generate_private_key(65537, 1024), x509.Name([])
    unsigned = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + timedelta(days=1))
    short = {
        "tls.crt": unsigned.sign(key, SHA256()).public_bytes(Encoding.PEM),
        "tls.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    }
    assert problem(short) == "the key of the certificate in tls.crt is too short for TLS"


def test_nothing_is_said_of_extensions_that_cannot_be_read() -> None:
    """OpenSSL takes such certificates, and so do routers."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    plain = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + timedelta(days=1))
    broken = {
        ExtensionOID.CERTIFICATE_POLICIES: b"garbage",
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME: bytes.fromhex("30058703010203"),  # an address of three bytes
    }
    for identifier, content in broken.items():
        extended = plain.add_extension(x509.UnrecognizedExtension(identifier, content), critical=False)
        certificate = extended.sign(key, SHA256()).public_bytes(Encoding.PEM)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        assert problem({"tls.crt": certificate, "tls.key": pem}) is None
        found = fitness(certificate)
        assert found.server
        assert found.client
        assert found.names_host("west.example")


def network(
    data: Mapping[str, bytes] | None, delivered: Mapping[str, bytes] | None = None, now: datetime = NOW
) -> Rendered:
    """A Router with a TLS listener and a Connector, both of which use the Secret `id`, if there is one."""
    listeners = [
        {"name": "amqp", "port": 5672},
        {"name": "amqps", "port": 5671, "tls": {"secretName": "id"}},
    ]
    manifests = [
        router("west", listeners=listeners),
        connector("out", "west", ("peer.example", 5671), "inter-router", tls={"secretName": "id"}),
    ]
    built = model(*manifests, secrets=[SecretView("id", data)] if data is not None else [])
    return render(built.at(now, {"west": delivered} if delivered else {}), RenderSettings("router:1"))


def files(result: Rendered) -> dict[str, bytes]:
    secret: dict[str, Any] = next(item for item in result.routers["west"].objects if item["kind"] == "Secret")
    return {name: b64decode(value) for name, value in secret["data"].items()}


def messages(result: Rendered) -> dict[str, tuple[str, str]]:
    return {item.kind: (item.reason, item.message) for item in result.findings}


BROKEN = [
    {**GOOD, "tls.key": OTHER["tls.key"]},
    {**GOOD, "tls.crt": b"garbage"},
    {**GOOD, "ca.crt": b"garbage"},
    {"ca.crt": GOOD["ca.crt"], "tls.crt": GOOD["tls.crt"]},
    {"tls.crt": GOOD["tls.crt"], "tls.key": GOOD["tls.key"]},
    expired(),
    {**GOOD, "ca.crt": GOOD["ca.crt"] + GOOD["tls.key"]},
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_rotation_is_told_and_changes_nothing_in_the_routers(broken: Mapping[str, bytes]) -> None:
    before = network(GOOD)
    assert before.findings == ()
    after = network(broken, files(before))
    assert files(after) == files(before)
    told = messages(after)
    for kind in ("Router", "Connector") if broken.keys() != {"tls.crt", "tls.key"} else ("Connector",):
        assert told[kind][0] == "SecretInvalid"
        assert 'Secret "id"' in told[kind][1]
        assert "keep the earlier certificates" in told[kind][1]
    link = model(connector("out", "west", ("h", 1), "normal")).connectors["out"]
    assert block(link, after) is None, "the connector is in effect"
    assert complaint(link, after) is not None
    assert not any("PRIVATE" in text or "BEGIN" in text for _, text in told.values())
    again = network(broken, files(after))
    assert files(again) == files(before), "however often one looks"
    assert files(network(OTHER, files(after))) == files(network(OTHER)), "a good one replaces it"


def test_a_deleted_secret_is_told_and_takes_nothing_down() -> None:
    before = network(GOOD)
    after = network(None, files(before))
    assert files(after) == files(before)
    assert after.plan.expiries == before.plan.expiries
    kept = 'Secret "id" does not exist; the routers keep the earlier certificates'
    assert messages(after) == {
        "Router": ("SecretNotFound", f'listener "amqps": {kept}'),
        "Connector": ("SecretNotFound", kept),
    }
    link = model(connector("out", "west", ("h", 1), "normal")).connectors["out"]
    assert block(link, after) is None, "the connector is in effect"
    assert complaint(link, after) is not None
    assert files(network(None, files(after))) == files(before), "however often one looks"
    back = network(OTHER, files(after))
    assert (files(back), back.findings) == (files(network(OTHER)), ())
    never = network(None)
    assert {item.reason for item in never.findings} == {"SecretNotFound"}
    assert "id-tls.crt" not in files(never)


def passwords(*names: str, login: str = "login", delivered: Mapping[str, bytes] | None = None) -> Rendered:
    """A Router with users in `users` and a Connector with a password in `login`; Secrets with `names` exist."""
    sasl = {"mechanisms": ["SCRAM-SHA-256"], "usersSecretRef": {"name": "users"}}
    manifests = [
        router("west", listeners=[{"name": "amqp", "port": 5672, "sasl": sasl}]),
        connector(
            "out",
            "west",
            ("peer.example", 5672),
            "normal",
            sasl={"username": "guest", "passwordSecretRef": {"name": login}},
        ),
    ]
    built = model(*manifests, secrets=[opaque_secret(name, "sasldb", "password") for name in names])
    return render(built.at(NOW, {"west": delivered} if delivered else {}), RenderSettings("router:1"))


def test_deleted_users_and_passwords_are_kept() -> None:
    before = passwords("users", "login")
    assert before.findings == ()
    after = passwords(delivered=files(before))
    assert files(after) == files(before)
    assert messages(after) == {
        "Router": (
            "SecretNotFound",
            'listener "amqp": Secret "users" does not exist; the routers keep the earlier users',
        ),
        "Connector": (
            "SecretNotFound",
            'Secret "login" does not exist; the routers keep the earlier password',
        ),
    }


def login(data: Mapping[str, bytes] | None, delivered: Mapping[str, bytes] | None = None) -> Rendered:
    """A Router with a Connector that takes user and password from one Secret."""
    sasl = {"credentialsSecretRef": {"name": "login"}}
    manifests = [router("west"), connector("out", "west", ("peer.example", 5672), "normal", sasl=sasl)]
    built = model(*manifests, secrets=[SecretView("login", data)] if data is not None else [])
    return render(built.at(NOW, {"west": delivered} if delivered else {}), RenderSettings("router:1"))


@pytest.mark.parametrize("broken", [None, {}, {"username": b"new"}, {"password": b"new"}])
def test_user_and_password_are_kept_together(broken: Mapping[str, bytes] | None) -> None:
    before = login({"username": b"app", "password": b"old"})
    assert before.findings == ()
    after = login(broken, files(before))
    assert files(after) == files(before)
    ((reason, text),) = messages(after).values()
    assert reason == ("SecretNotFound" if broken is None else "SecretInvalid")
    assert text.endswith("; the routers keep the earlier user name and password")
    assert files(login(broken, files(after))) == files(before), "however often one looks"
    changed = {"username": b"new", "password": b"new"}
    assert files(login(changed, files(after))) == files(login(changed))


def test_a_password_of_one_secret_is_not_kept_for_another() -> None:
    before = passwords("users", "login")
    after = passwords("users", login="other", delivered=files(before))
    assert messages(after) == {"Connector": ("SecretNotFound", 'Secret "other" does not exist')}
    assert not any(b"login password" in content for content in files(after).values())


@pytest.mark.parametrize("broken", BROKEN[:4] + BROKEN[5:])
def test_what_never_worked_is_left_out(broken: Mapping[str, bytes]) -> None:
    for delivered in (None, {f"id-{key}": value for key, value in BROKEN[0].items()}):
        result = network(broken, delivered)
        assert {item.reason for item in result.findings} == {"SecretInvalid"}
        (instance,) = result.plan.instances["west"]
        assert "amqps" not in [item.name for item in instance.listeners]
        assert "amqp" in [item.name for item in instance.listeners]


def test_a_certificate_that_expires_in_use_is_told_and_stays() -> None:
    soon = NOW + timedelta(hours=1)
    data = _valid_until(soon)
    before = network(data)
    assert before.findings == ()
    assert before.plan.expiries == {("west", "id"): soon.replace(microsecond=0)}
    after = network(data, files(before), soon + timedelta(minutes=1))
    assert "expired at" in messages(after)["Router"][1]
    assert files(after) == files(before)


def test_the_times_of_certificates_do_not_matter_without_a_time() -> None:
    listeners = [{"name": "amqps", "port": 5671, "tls": {"secretName": "id"}}]
    built: NamespaceModel = model(
        router("west", listeners=listeners),
        secrets=[SecretView("id", expired()), opaque_secret("unrelated", "x")],
    )
    assert render(built, RenderSettings("router:1")).findings == ()
