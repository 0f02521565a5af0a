"""One object that cannot be used, or with which the operator fails, does not stop the others of its namespace."""

from __future__ import annotations

import re
import sys
from base64 import b64decode, encodebytes
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.unit.operator.certificates import NOW, issued
from tests.unit.operator.support import flow_log, gossip_router, model, router, ssl_profile
from tests.unit.operator.test_keeper import Api, keeper
from tests.unit.operator.test_revocations import revoking

from isthmus_operator.authority import Authority
from isthmus_operator.authority.issue import renewed
from isthmus_operator.certificates import examine, identities, revocations_expiry, revocations_problem
from isthmus_operator.model import NamespaceModel, SecretView
from isthmus_operator.render import RenderSettings, kubernetes, plan, render
from isthmus_operator.render.material import Delivered, sections_of
from isthmus_operator.rotation import keeper as keeping
from isthmus_operator.rotation.ledger import Past


@cache
def certified() -> tuple[bytes, bytes]:
    """A certificate in DER that is valid until 2090, and its key in PEM."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=x.example")
    built = x509.CertificateBuilder(
        name, name, key.public_key(), 12345, NOW, datetime(2090, 1, 1, tzinfo=UTC)
    )
    signed = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return signed.sign(key, SHA256()).public_bytes(Encoding.DER), pem


def odd(before: bytes, after: bytes) -> bytes:
    """The certificate in PEM with these bytes changed."""
    der = certified()[0]
    assert der.count(before) >= 1
    return _pem(b"CERTIFICATE", der.replace(before, after, 1))


def _pem(label: bytes, der: bytes) -> bytes:
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label, encodebytes(der), label)


VERSION = (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x03")
YEAR = (b"\x18\x0f2090", b"\x18\x0f0000")
ISSUER = (b"\x0c\x09x.example", b"\x0d\x09x.example")
ODD = [(VERSION, "version"), (YEAR, "notAfter"), (ISSUER, "issuer")]


@pytest.mark.parametrize(("change", "field"), ODD)
def test_odd_certificates_are_refused_with_the_name_of_their_field(
    change: tuple[bytes, bytes], field: str
) -> None:
    pem, key = odd(*change), certified()[1]
    for name, arguments in {"ca.crt": (pem, None, None), "tls.crt": (None, pem, key)}.items():
        said = str(examine(*arguments).problem)
        assert said.startswith(name)
        assert field in said
        assert "issue" in said


@pytest.mark.parametrize(("change", "field"), ODD)
async def test_a_profile_with_an_odd_certificate_leaves_the_others(
    change: tuple[bytes, bytes], field: str
) -> None:
    offers = {"bad": {"ca.crt": odd(*change)}, "good": issued(1)}
    found = await adopted(offers)
    assert found == {"bad": ("SecretInvalid", 0), "good": (None, 1)}


async def test_an_error_about_a_profile_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = keeping.adopt

    def fail(ledger: Any, secret: str, *arguments: Any) -> Any:
        if secret == "bad":
            raise ArithmeticError("what is in the Secret")
        return original(ledger, secret, *arguments)

    monkeypatch.setattr(keeping, "adopt", fail)
    found = await adopted({"bad": issued(2), "good": issued(1)})
    assert found == {"bad": ("ApplyFailed", 0), "good": (None, 1)}
    assert "SslProfile bad: the operator failed to examine it" in caplog.text


async def adopted(offers: Mapping[str, Mapping[str, bytes]]) -> dict[str, tuple[str | None, int]]:
    """Profile to why it is not in service, and its ordinal."""
    profiles = [ssl_profile(name, name) for name in offers]
    views = [SecretView(name, offer) for name, offer in offers.items()]
    built = NamespaceModel.from_manifests("net", profiles, views).at(NOW)
    one = keeper(Api())
    ledgers = await one.adopt(built, {}, profiles, NOW)
    found = {}
    for name, item in one.facts.items():
        why = item.refusal or item.problem
        assert why is None or "what is in the Secret" not in why.message
        found[name] = (
            why.reason if why is not None else None,
            ledgers[name].ordinal if name in ledgers else 0,
        )
    return found


@pytest.mark.parametrize(("change", "field"), ODD)
def test_a_router_with_an_odd_certificate_leaves_the_others(change: tuple[bytes, bytes], field: str) -> None:
    data = {"tls.crt": odd(*change), "tls.key": certified()[1]}
    listener = {"name": "amqps", "port": 5671, "tls": {"secretName": "id"}}
    built = model(router("bad", listeners=[listener]), router("good"), secrets=[SecretView("id", data)])
    found = render(built.at(NOW), RenderSettings("router:1"))
    assert "good" in found.routers
    assert {(item.name, item.reason) for item in found.findings} == {("bad", "SecretInvalid")}


@pytest.mark.parametrize("where", ["_RouterPlan", "_router", "render_gossip", "render_log"])
def test_an_error_about_one_resource_leaves_the_others(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    holder: Any = sys.modules[plan.__module__] if where == "_RouterPlan" else kubernetes
    original: Callable[..., Any] = getattr(holder, where)

    def fail(*arguments: Any) -> Any:
        if any(getattr(item, "name", None) == "bad" for item in arguments):
            raise ArithmeticError("what is in the Secret")
        return original(*arguments)

    monkeypatch.setattr(holder, where, fail)
    make = {"render_gossip": gossip_router, "render_log": flow_log}.get(where, router)
    around = [router("hub"), make("bad"), make("good")]
    found = render(model(*around), RenderSettings("router:1", collector_image="collector:1"))
    made = {owner.name for owner, _ in found.owners()}
    assert made == {"hub", "good"}
    (finding,) = [item for item in found.findings if item.name == "bad"]
    assert (finding.reason, finding.blocking) == ("ApplyFailed", True)
    assert finding.message == "the operator failed with ArithmeticError; its log has the details"


def test_odd_revocation_lists_are_refused_with_the_name_of_their_field() -> None:
    der = b64decode(b"".join(revoking(5).splitlines()[1:-1]))
    version = der.replace(b"\x02\x01\x01\x30", b"\x02\x01\x05\x30", 1)
    assert "unknown version" in str(revocations_problem(_pem(b"X509 CRL", version)))
    late = revoking(5, days=30_000)
    der = b64decode(b"".join(late.splitlines()[1:-1]))
    year = _pem(b"X509 CRL", re.sub(rb"\x18\x0f2...", b"\x18\x0f0000", der))
    assert year != late
    assert revocations_problem(late) is None
    assert "nextUpdate cannot be read" in str(revocations_problem(year))
    assert revocations_expiry(year) is None


def test_an_odd_delivered_certificate_is_not_a_past() -> None:
    files = {"net_3-tls.crt": odd(*VERSION)}
    assert Delivered.of([files]).past("net") == Past(3, 0, "")


def test_an_authority_that_ends_in_the_first_year_is_replaced() -> None:
    der = certified()[0].replace(YEAR[0], b"\x18\x0f0001", 1)
    pem = _pem(b"CERTIFICATE", der)
    found = renewed(Authority(pem, certified()[1], pem), "Isthmus net", NOW)
    assert found.certificate != pem


@pytest.mark.parametrize(
    "content", [b"[" * 200_000, b"[1]", b'[["listener", 3]]', b'{"a": Infinity}', b"\xff"]
)
def test_a_delivered_configuration_that_cannot_be_read_is_none(content: bytes) -> None:
    good = b'[["router", {"id": "west-0"}]]'
    assert sections_of({"bad.json": content, "west-0.json": good}) == [("router", {"id": "west-0"})]


def test_a_certificate_has_a_bounded_number_of_names() -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW)
    names = x509.SubjectAlternativeName([x509.DNSName(f"n{number}") for number in range(1000)])
    signed = built.add_extension(names, critical=False).sign(key, SHA256())
    assert len(identities(signed.public_bytes(Encoding.PEM))) == 256
