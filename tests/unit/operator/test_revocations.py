"""Certificate revocation lists of an SslProfile: from a key of its Secret to `crlFile` of the routers."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from tests.unit.operator.sslprofiles import NOW, issued
from tests.unit.operator.support import authority, flow_log, gossip_router, model, router, ssl_profile
from tests.unit.operator.test_sslprofile import NETWORK, files, rendered, sections

from isthmus_operator.certificates import MOST_REVOCATIONS, revocations_expiry, revocations_problem
from isthmus_operator.metrics import PROFILE_REVOCATIONS_EXPIRY
from isthmus_operator.publishing import Publisher
from isthmus_operator.render import RenderedGossip, RenderSettings, render
from isthmus_operator.render.restrictions import Restrictions
from isthmus_operator.rotation.ledger import Ledger, Past
from isthmus_operator.rotation.machine import Adoption, Wish, adopt
from isthmus_operator.workers import profile_series

LISTENER = {"name": "amqps", "port": 5671, "tls": {"sslProfile": "net"}}
CHECKED = Wish(crl_key="revoked.pem")


def revoking(*serials: int, days: int = 1, by: trustme.CA | None = None) -> bytes:
    """A list of an authority, or else of that of the tests, in PEM, which expires after so many days."""
    by = by or authority()
    issuer = x509.load_pem_x509_certificate(by.cert_pem.bytes())
    key = load_pem_private_key(by.private_key_pem.bytes(), password=None)
    assert isinstance(key, EllipticCurvePrivateKey)
    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
    builder = builder.last_update(now - timedelta(days=1)).next_update(now + timedelta(days=days))
    for serial in serials:
        revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = builder.add_revoked_certificate(revoked)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


def adopted(ledger: Ledger | None, lists: bytes | None, wish: Wish = CHECKED) -> Adoption:
    """After a look at a Secret with these lists."""
    offer = {**issued(1), **({"revoked.pem": lists} if lists is not None else {})}
    return adopt(ledger, "server", offer, wish, Past(), NOW)


def first(lists: bytes) -> Ledger:
    found = adopted(None, lists).ledger
    assert found is not None
    return found


def profiles(
    ledger: Ledger | None, delivered: Mapping[str, Mapping[str, bytes]] | None = None
) -> list[object]:
    """`crlFile` of the sections of the Router `west`."""
    resources = (*NETWORK, ssl_profile("net", "server", crlKey="revoked.pem"))
    found = rendered(ledger, *resources, delivered=delivered)
    return [section.get("crlFile") for section in sections(found, "west", "sslProfile")]


def test_lists_become_a_file_beside_the_certificates() -> None:
    lists = revoking(5)
    ledger = first(lists)
    assert profiles(ledger) == ["/etc/isthmus/net_1-ca.crl"] * 2
    assert files(rendered(ledger), "west")["net_1-ca.crl"] == lists
    assert profiles(adopted(None, None, Wish()).ledger) == [None, None]


def test_a_collector_gets_the_lists() -> None:
    lists = revoking(5)
    own = flow_log("flows", "west", image="isthmus:1", tls={"sslProfile": "net"})
    built = model(router("west", listeners=[LISTENER]), own, ssl_profile("net", "server"))
    settings = RenderSettings("router:1", restrictions=Restrictions(allowed_images=("isthmus",)))
    found = render(built.serving({**built.ledgers, "net": first(lists)}), settings)
    (secret,) = (item for item in found.flow_logs["flows"].objects if item["kind"] == "Secret")
    assert b64decode(secret["data"]["ca.crl"]) == lists
    document = json.loads(b64decode(secret["data"]["collector.json"]))
    assert document["tls"]["crl"] == "/etc/isthmus/ca.crl"


def test_a_gossip_router_gets_the_lists_if_it_asks_for_certificates() -> None:
    members: dict[str, Any] = {"sslProfile": "net"}
    anybody = {**members, "requireClientCertificate": False}
    manifests = [gossip_router("one", tls=members), gossip_router("two", tls=anybody)]
    lists = revoking(5)
    found = rendered(first(lists), *manifests, ssl_profile("net", "server", crlKey="revoked.pem"))
    data, arguments = gossip(found.gossip_routers["one"])
    assert b64decode(data["ca.crl"]) == lists
    assert "--tls-crl=/etc/isthmus/ca.crl" in arguments
    data, arguments = gossip(found.gossip_routers["two"])
    assert sorted(data) == ["tls.crt", "tls.key"]
    assert not [item for item in arguments if item.startswith("--tls-crl")]
    assert "--anonymous-members" in arguments


def test_a_gossip_router_gets_the_oldest_version_of_tls() -> None:
    members = {"sslProfile": "net", "minimumVersion": "TLSv1.3"}
    found = rendered(first(revoking(5)), gossip_router("one", tls=members), ssl_profile("net", "server"))
    _, arguments = gossip(found.gossip_routers["one"])
    assert "--tls-minimum-version=TLSv1.3" in arguments


def gossip(found: RenderedGossip) -> tuple[dict[str, str], list[str]]:
    """Data of its Secret, and the arguments of its container."""
    (data,) = [item["data"] for item in found.objects if item["kind"] == "Secret"]
    (workload,) = [item for item in found.objects if item["kind"] == "StatefulSet"]
    return data, workload["spec"]["template"]["spec"]["containers"][0]["args"]


def test_a_changed_list_keeps_the_ordinal() -> None:
    ledger = first(revoking(5))
    found = adopted(ledger, after := revoking(5, 6))
    assert found.ledger is not None
    assert (found.ledger.ordinal, found.ledger.revocations) == (1, after)
    assert [item.reason for item in found.changes] == ["RevocationsChanged"]
    assert adopted(found.ledger, after).changes == ()


def test_the_ledger_remembers_the_lists() -> None:
    ledger = first(revoking(5))
    assert Ledger.decoded(ledger.encoded()) == ledger


@pytest.mark.parametrize(
    ("lists", "problem"),
    [
        (None, 'has no key "revoked.pem" (spec.crlKey)'),
        (b"", 'has no key "revoked.pem" (spec.crlKey)'),
        (b"garbage", "revoked.pem has no certificate revocation list in PEM format"),
        (
            b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
            "revoked.pem has no certificate revocation list in PEM format",
        ),
        (issued(1)["ca.crt"], "revoked.pem has a PEM block other than X509 CRL"),
        (revoking(5) + issued(1)["tls.key"], "revoked.pem has a PEM block other than X509 CRL"),
        (b" " * (MOST_REVOCATIONS + 1), "revoked.pem has more than 262144 bytes"),
    ],
)
def test_lists_that_cannot_be_used_leave_the_ones_in_service(lists: bytes | None, problem: str) -> None:
    ledger = first(revoking(5))
    found = adopted(ledger, lists)
    assert found.ledger == ledger
    assert found.refusal is not None
    assert problem in found.refusal.message
    assert adopted(None, lists).ledger is None, "without a list nothing is in service"


def test_a_ledger_whose_lists_somebody_else_has_changed_is_not_used() -> None:
    lists = first(revoking(5)).encoded() | {"ca.crl": revoking(5) + issued(1)["tls.key"]}
    assert Ledger.decoded(lists) is None


def test_lists_without_an_end_are_judged_in_linear_time() -> None:
    begun = time.process_time()
    assert revocations_problem(b"-----BEGIN X509 CRL-----" * 10_000) is not None
    assert time.process_time() - begun < 2


def test_lists_need_authorities() -> None:
    offer = {key: value for key, value in issued(1).items() if key != "ca.crt"} | {"revoked.pem": revoking()}
    found = adopt(None, "server", offer, CHECKED, Past(), NOW)
    assert found.refusal is not None
    assert "ca.crt" in found.refusal.message


def test_lists_are_checked_until_the_profile_states_otherwise() -> None:
    ledger = first(revoking(5))
    found = adopted(ledger, revoking(5), Wish())
    assert found.ledger is not None
    assert found.ledger.revocations is None
    assert [item.message for item in found.changes] == [
        "certificate revocation lists are not checked any more under ordinal 1"
    ]


def test_lists_stay_while_the_profile_is_gone() -> None:
    delivered = {name: files(rendered(first(revoking(5))), name) for name in ("west", "east")}
    gone = rendered(None, *NETWORK, delivered=delivered)
    found = [section.get("crlFile") for section in sections(gone, "west", "sslProfile")]
    assert found == ["/etc/isthmus/net_1-ca.crl"] * 2
    assert files(gone, "west")["net_1-ca.crl"] == delivered["west"]["net_1-ca.crl"]


def test_when_the_first_list_expires_is_a_metric() -> None:
    lists = revoking(5, days=3) + revoking(6, days=2) + revoking(7, days=4)
    expiry = revocations_expiry(lists)
    assert expiry is not None
    assert timedelta(days=1) < expiry - datetime.now(UTC) < timedelta(days=2, hours=1)
    series = profile_series("net", "with", first(lists))
    series |= profile_series("net", "without", adopted(None, None, Wish()).ledger)
    Publisher().publish("net", Counter(), series)
    shown = {
        sample.labels["profile"]: sample.value
        for metric in PROFILE_REVOCATIONS_EXPIRY.collect()
        for sample in metric.samples
        if sample.labels["namespace"] == "net"
    }
    assert shown == {"with": expiry.timestamp()}


@pytest.mark.parametrize("lists", [b"", b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"])
def test_lists_that_cannot_be_read_have_no_expiry(lists: bytes) -> None:
    assert revocations_expiry(lists) is None
