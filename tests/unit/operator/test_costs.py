"""What one tenant can create, or one pod can answer, costs the operator little processor time.

All limits are processor time of this process, in seconds, and several times what the work takes.
"""

from __future__ import annotations

import base64
import gc
import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256, SHA512
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID
from tests.unit.operator.support import connector, link_route, model, router, ssl_profile, tls_data

from isthmus_operator.authority import Authority, Names, UnusableAuthorityError
from isthmus_operator.authority.issue import issue
from isthmus_operator.certificates import examine, is_signed, private_key
from isthmus_operator.facts import block, router_facts, status_of_link_route
from isthmus_operator.model import NamespaceModel, SecretView
from isthmus_operator.render import KubernetesResolver, Rendered, RenderSettings, render
from isthmus_operator.render.material import Delivered
from isthmus_operator.report import Observation, parse_report
from isthmus_operator.rotation import Past
from isthmus_operator.status import PodView, RouterFacts, Users, connector_status, router_status, usage
from isthmus_operator.untrusted import MAX_ENTRIES, document

NOW = "2030-01-01T00:00:00Z"
SETTINGS = RenderSettings(router_image="router:1")


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    gc.collect()  # what other tests have left is collected now, and not meanwhile
    begun = time.process_time()
    yield
    assert time.process_time() - begun < seconds


def all_facts(
    built: NamespaceModel, rendered: Rendered, observations: Mapping[str, Observation] | None = None
) -> dict[str, RouterFacts]:
    """With one pod for each observation, which is that of the only Router."""
    pods = [
        PodView(name, name, "10.0.0.1", name.split("-", maxsplit=1)[0], True, True, False, "", "")
        for name in observations or ()
    ]
    return {
        name: router_facts(
            item, rendered, outcome=None, children=(), pods=pods, observations=observations or {}
        )
        for name, item in built.routers.items()
    }


def statuses_of_connectors(
    built: NamespaceModel, rendered: Rendered, facts: Mapping[str, RouterFacts]
) -> list[dict[str, Any]]:
    return [
        connector_status(item, block(item, rendered), facts.get(item.spec.from_.router_ref.name), None, NOW)
        for item in built.connectors.values()
    ]


# -- numbers of resources


def test_connectors_of_a_router_with_many_replicas() -> None:
    """300 of them took 16 s in each reconciliation."""
    built = model(
        router("e", mode="edge", replicas=200),
        *(connector(f"c{number}", "e", ("host", 5672), "normal") for number in range(200)),
    )
    with at_most(1):
        rendered = render(built, SETTINGS)
        facts = all_facts(built, rendered)
        found = statuses_of_connectors(built, rendered, facts)
    assert {item["connections"] for item in found} == {200}


def test_link_routes_beside_routers_without_pods() -> None:
    """1,000 of both took 8.6 s in each reconciliation."""
    built = model(
        *(router(f"r{number}", mode="edge", replicas=0) for number in range(500)),
        *(link_route(f"l{number}", prefix=f"p{number}", containerId="mq") for number in range(500)),
    )
    rendered = render(built, SETTINGS)
    facts = all_facts(built, rendered)
    with at_most(0.15):
        found = [
            status_of_link_route(item, built, rendered, facts, None, NOW)
            for item in built.link_routes.values()
        ]
    assert {item["conditions"][0]["reason"] for item in found} == {"NoReplicaReady"}


def test_findings_of_many_routers() -> None:
    """200 Routers with 16 listeners took 8.5 s."""
    listeners = [
        {"name": f"l{number}", "port": 6000 + number, "tls": {"secretName": f"none-{number}"}}
        for number in range(16)
    ]
    built = model(*(router(f"r{number}", replicas=0, listeners=listeners) for number in range(200)))
    with at_most(0.8):
        rendered = render(built, SETTINGS)
    assert len(rendered.findings) == 3200


def test_names_of_peers_of_many_routers() -> None:
    built = model(
        *(router(f"r{number}", replicas=0) for number in range(300)),
        *(connector(f"c{number}", "none", f"r{number % 300}", "inter-router") for number in range(3000)),
    )
    with at_most(1.2):
        render(built, SETTINGS)


def test_connectors_that_join_all_routers_to_one_network() -> None:
    built = model(
        *(router(f"r{number}", replicas=0) for number in range(400)),
        *(connector(f"c{number}", "r0", f"r{number % 399 + 1}", "inter-router") for number in range(4000)),
        connector("mq", "r0", ("mq", 5672), "route-container"),
        link_route("l", prefix="p", connector="mq"),
    )
    with at_most(1.5):
        rendered = render(built, SETTINGS)
    assert len(rendered.plan.link_routes["l"]) == 400


def test_profiles_of_one_router() -> None:
    number = 300
    secrets = [SecretView(f"s{item}", tls_data()) for item in range(number)]
    built = model(
        router("e", mode="edge", replicas=32),
        *(ssl_profile(f"p{item}", f"s{item}") for item in range(number)),
        *(
            connector(f"c{item}", "e", ("host", 5672), "normal", tls={"sslProfile": f"p{item}"})
            for item in range(number)
        ),
        secrets=secrets,
    )
    ledger = next(iter(built.ledgers.values()))
    built = built.serving({**built.ledgers, **dict.fromkeys(built.profiles, ledger)})
    rendered = render(built, SETTINGS)
    observations = {f"e-{item}": Observation(None, "does not answer") for item in range(32)}
    facts = all_facts(built, rendered, observations)
    resolver = KubernetesResolver("net")
    with at_most(0.25):
        users = Users(
            built, rendered.plan.instances, lambda instance, target: resolver.dial(instance, target)[0]
        )
        found = {name: usage(name, 1, facts, users, ()) for name in built.profiles}
    assert {len(found[f"p{item}"].pods) for item in range(number)} == {32}


def test_profiles_that_have_no_ledger_beside_many_routers() -> None:
    """The file names of each Router were compared with each profile in each reconciliation."""
    files = {f"name-{item}_3-tls.crt": b"" for item in range(20)}
    delivered = Delivered.of({**files, "router.json": b"[]"} for _ in range(500))
    with at_most(0.5):
        found = [delivered.past(f"p{item}") for item in range(1000)]
    assert set(found) == {Past()}
    assert delivered.past("name-7").ordinal == 3


# -- answers of pods


def report(**changes: object) -> Observation:
    body = {"router": {"id": "e", "ready": True, "configHash": "x"}, **changes}
    return Observation(parse_report(document(json.dumps(body).encode()), datetime.now(UTC)))


def auto_link(**changes: object) -> dict[str, object]:
    return {
        **{"connection": None, "address": "a", "direction": "in", "externalAddress": None, "phase": None},
        **{"state": "active", "message": "m"},
        **changes,
    }


@pytest.mark.parametrize("connection", [None, "c0"], ids=["of no connector", "all of one connector"])
def test_many_auto_links_in_an_answer(connection: str | None) -> None:
    """20,000 in the answer of one pod took 1 s for each Connector in each reconciliation."""
    links = [{"address": "a", "direction": "in", "phase": number} for number in range(10)]
    links += [{"address": "a", "direction": "in"}]
    links += [{"address": f"a{number}", "direction": "in"} for number in range(53)]
    built = model(
        router("e", mode="edge"),
        *(
            connector(f"c{number}", "e", ("mq", 5672), "route-container", autoLinks=links)
            for number in range(4)
        ),
    )
    rendered = render(built, SETTINGS)
    answer = report(autoLinks=[auto_link(connection=connection, phase=3)] * MAX_ENTRIES)
    with at_most(0.7):
        facts = all_facts(built, rendered, {"e-0": answer})
        found = statuses_of_connectors(built, rendered, facts)
    attached = [sum(item["attached"] for item in status["autoLinks"]) for status in found]
    assert attached == [2 if connection else 0, 0, 0, 0]


def test_many_nodes_in_answers() -> None:
    built = model(router("e", replicas=32))
    rendered = render(built, SETTINGS)
    nodes = [{"id": f"n{number}"} for number in range(5000)]
    answer = report(nodes=nodes, neighbors=nodes)
    facts = all_facts(built, rendered, {f"e-{number}": answer for number in range(32)})
    with at_most(0.15):
        status = router_status(facts["e"], None, "1", NOW)
    assert status["conditions"][2]["reason"] == "PeersMissing"


# -- certificates and keys


def named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certificate(
    subject: str, issuer: str, key: Any, signer: Any, number: int = 1, algorithm: Any = None
) -> bytes:
    moment = datetime(2029, 12, 31, tzinfo=UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(named(subject))
        .issuer_name(named(issuer))
        .public_key(key)
        .serial_number(number)
        .not_valid_before(moment)
        .not_valid_after(moment + timedelta(days=800))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(signer, algorithm or SHA512())
        .public_bytes(Encoding.PEM)
    )


def test_many_authorities_of_one_name() -> None:
    """A Secret of 55 kB took 8.7 s: each certificate was verified with each authority of the same name."""
    curve = ec.BrainpoolP512R1()
    trusted, other, leaf = (ec.generate_private_key(item) for item in (curve, curve, ec.SECP256R1()))
    bundle = b"".join(certificate("x", "x", trusted.public_key(), trusted, item + 1) for item in range(30))
    chain = b"".join(certificate("m", "x", leaf.public_key(), other, item + 1) for item in range(30))
    with at_most(0.6):
        assert is_signed(chain, bundle)  # that it is not, is not found out


def test_a_certificate_that_no_authority_has_signed() -> None:
    one, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    bundle = certificate("x", "x", one.public_key(), one)
    assert is_signed(certificate("leaf", "x", other.public_key(), one), bundle)
    assert not is_signed(certificate("leaf", "x", one.public_key(), other), bundle)
    assert not is_signed(certificate("leaf", "y", one.public_key(), one), bundle)
    assert is_signed(bundle, bundle)
    assert is_signed(certificate("leaf", "y", one.public_key(), one), None)


def authority_of(key: rsa.RSAPrivateKey) -> dict[str, bytes]:
    return {
        "tls.crt": certificate("ca", "ca", key.public_key(), key, algorithm=SHA256()),
        "tls.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    }


def test_an_authority_with_an_rsa_key_signs_many_certificates() -> None:
    """The primes of the key were checked for each certificate: 0.7 s with 4,096 bits."""
    data = authority_of(rsa.generate_private_key(65537, 3072))
    authority = Authority.of(data)
    with at_most(1.5):
        issued = [
            issue(authority, Names(f"r{number}"), datetime(2030, 1, 1, tzinfo=UTC)) for number in range(20)
        ]
    assert all(examine(item["ca.crt"], item["tls.crt"], item["tls.key"]).problem is None for item in issued)


def der(tag: int, value: bytes) -> bytes:
    size = len(value)
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    if size > 127:
        length = bytes([0x80 | len(length)]) + length
    return bytes([tag]) + length + value


def integer(value: int) -> bytes:
    return der(2, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def pem(label: str, content: bytes) -> bytes:
    text = base64.encodebytes(content).decode()
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n".encode()


def odd(bits: int) -> int:
    """Not prime, which nobody may find out: that takes long."""
    return random.Random(bits).getrandbits(bits) | 1 | 3 << (bits - 2)


def rsa_key(p: int, q: int, d: int, e: int = 65537) -> bytes:
    values = (0, p * q, e, d, p, q, d % (p - 1), d % (q - 1), 1)
    return pem("RSA PRIVATE KEY", der(0x30, b"".join(map(integer, values))))


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (rsa_key(odd(4096), odd(4096), odd(8000)), "has 8192 bits, and at most 4096 are supported"),
        (rsa_key(odd(1024), odd(1024), odd(40_000)), "is not consistent"),
    ],
    ids=["long", "long exponent"],
)
def test_an_authority_whose_key_takes_long_to_use(key: bytes, problem: str) -> None:
    public = private_key(key).public_key()
    signer = ec.generate_private_key(ec.SECP256R1())
    with at_most(2), pytest.raises(UnusableAuthorityError, match=problem):
        Authority.of({"tls.crt": certificate("ca", "x", public, signer), "tls.key": key})


@pytest.mark.parametrize("algorithm", ["2A8648CE380401", "2A864886F70D010301", "2A8648CE3E0201"])
def test_private_keys_that_take_long_to_read(algorithm: str) -> None:
    """A DSA or Diffie-Hellman key of 10 kB took 4 s, and ten times as long a key a thousand times as long."""
    p, q, g, x = odd(12_000), odd(256), odd(11_999), odd(11_998)
    values = (p, q, g) if algorithm == "2A8648CE380401" else (p, g) if algorithm[-4:] == "0301" else (p, g, q)
    parameters = der(0x30, der(6, bytes.fromhex(algorithm)) + der(0x30, b"".join(map(integer, values))))
    key = pem("PRIVATE KEY", der(0x30, integer(0) + parameters + der(4, integer(x))))
    with at_most(0.3):
        problem = examine(None, tls_data()["tls.crt"], key).problem
    assert problem == "tls.key is not an RSA, ECDSA or EdDSA key; use one of these"


def test_a_slow_key_behind_a_header_is_refused() -> None:
    """A DSA key of 60,000 bits behind one line stopped the operator for all namespaces, whose threads wait for it."""
    p, q, g, x = odd(12_000), odd(256), odd(11_999), odd(11_998)
    algorithm = der(6, bytes.fromhex("2A8648CE380401")) + der(0x30, b"".join(map(integer, (p, q, g))))
    key = pem("PRIVATE KEY", der(0x30, integer(0) + der(0x30, algorithm) + der(4, integer(x))))
    with at_most(0.3):
        problem = examine(None, tls_data()["tls.crt"], key.replace(b"\n", b"\nX-Y: z\n\n", 1)).problem
    assert problem == "tls.key is not a private key in PEM format"


def test_an_encrypted_key_beside_a_valid_one_is_refused() -> None:
    """The block states how often a password is hashed to decrypt it: up to 2^31 times, which takes hours."""
    data = tls_data()
    key = load_pem_private_key(data["tls.key"], password=None)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    with at_most(0.3):
        problem = examine(None, data["tls.crt"], b"x " + data["tls.key"] + secret).problem
    assert problem == "tls.key is encrypted"


def test_a_private_key_that_is_too_long() -> None:
    data = tls_data()
    problem = examine(None, data["tls.crt"], data["tls.key"] + b"\n" * 40_000).problem
    assert problem == "tls.key has more than 32768 bytes"
