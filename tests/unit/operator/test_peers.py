"""Which client certificates the listeners of Routers demand, and with which names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from tests.unit.operator.configurations import Resolver, read_back
from tests.unit.operator.support import API_VERSION, authority, connector, model, router

from isthmus_operator.certificates import identities
from isthmus_operator.model import NamespaceModel, SecretView
from isthmus_operator.render import config_bytes, plan, router_config
from isthmus_operator.rotation.ledger import Generation, Ledger, identity

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def issued(common_name: str | None, *hosts: str) -> bytes:
    """A certificate in PEM."""
    return authority().issue_cert(*hosts, common_name=common_name).cert_chain_pems[0].bytes()


def secret(name: str, common_name: str | None = None, *hosts: str) -> SecretView:
    """A Secret with a certificate that has these names."""
    leaf: trustme.LeafCert = authority().issue_cert(*(hosts or ("any.example",)), common_name=common_name)
    data = {
        "ca.crt": authority().cert_pem.bytes(),
        "tls.crt": leaf.cert_chain_pems[0].bytes(),
        "tls.key": leaf.private_key_pem.bytes(),
    }
    return SecretView(name, data)


def listening(role: str, **fields: Any) -> dict[str, Any]:
    """A Router whose listener demands certificates."""
    tls = {"secretName": "hub", "requireClientCertificate": True}
    return router("hub", listeners=[{"name": "in", "role": role, "port": 1000, "tls": tls, **fields}])


EDGE = router("shop", mode="edge")
UPLINK = connector("shop-hub", "shop", "hub", "edge", tls={"secretName": "shop"})
SECRETS = (secret("hub", "hub"), secret("shop", None, "shop.example", "*.shop.example"))


def test_the_example_of_mutual_tls_accepts_edge_routers_with_the_name_of_their_certificate() -> None:
    text = (Path(__file__).parents[3] / "examples" / "tls.yaml").read_text()
    hub = secret("hub-tls", None, "hub.net.svc", "*.hub-mesh.net.svc")
    planned = plan(model(*yaml.safe_load_all(text), secrets=(hub, secret("edge-tls", None, "shop.example"))))
    assert not planned.findings
    for instance in planned.instances["hub"]:
        listeners = {item.name: item for item in read_back(instance).listeners}
        assert listeners["edge"].require_client_certificate
        assert listeners["edge"].peer_names == ("shop.example",)
        assert listeners["inter-router"].require_client_certificate
    (edge,) = planned.instances["shop"]
    (uplink,) = edge.connectors
    profile = next(item for item in edge.tls if item.name == uplink.tls)
    assert {"tls.crt", "tls.key", "ca.crt"} <= profile.files.keys()


def names(built: NamespaceModel) -> tuple[str, ...]:
    """The `peerNames` of the listener."""
    (instance,) = plan(built).instances["hub"]
    found = next(item for item in read_back(instance).listeners if item.name == "in")
    assert found.require_client_certificate
    return found.peer_names


@pytest.mark.parametrize(
    ("certificate", "expected"),
    [
        (issued("west", "a.example"), ("west",)),
        (issued(None, "a.example", "*.example"), ("a.example",)),
        (issued(None, "*.example"), ("*.example",)),
        (issued("not a name", "a.example"), ("a.example",)),
        (b"none", ()),
    ],
)
def test_identities(certificate: bytes, expected: tuple[str, ...]) -> None:
    assert identities(certificate) == expected


@pytest.mark.parametrize(
    ("role", "given", "expected"),
    [
        ("inter-router", None, ("hub",)),
        ("edge", None, ("shop.example",)),
        ("edge", ["*.far.example"], ("*.far.example", "shop.example")),
        ("edge", ["*"], ()),
        ("route-container", None, ()),
        ("route-container", ["broker"], ("broker", "shop.example")),
    ],
)
def test_names_are_those_of_the_namespace_and_those_given(
    role: str, given: list[str] | None, expected: tuple[str, ...]
) -> None:
    fields = {"peerNames": given} if given is not None else {}
    assert names(model(listening(role, **fields), EDGE, UPLINK, secrets=SECRETS)) == expected


@pytest.mark.parametrize(
    ("role", "given", "expected"),
    [
        ("inter-router", None, ("hub",)),
        ("edge", None, ("hub", "shop")),
        ("inter-router", ["*.far.example", "shop"], ("*.far.example", "hub", "shop")),
        ("edge", ["far"], ("far", "hub", "shop")),
        ("edge", ["*"], ()),
    ],
)
def test_names_may_be_given_beside_certificates_of_the_own_authority(
    role: str, given: list[str] | None, expected: tuple[str, ...]
) -> None:
    listener = {"name": "in", "role": role, "port": 1000, **({"peerNames": given} if given else {})}
    built = model(router("hub", listeners=[listener]), EDGE, connector("shop-hub", "shop", "hub", "edge"))
    assert names(built) == expected


@pytest.mark.parametrize("mechanisms", [["PLAIN"], ["SCRAM-SHA-256"], ["EXTERNAL"]])
def test_certificates_are_demanded_with_every_mechanism(mechanisms: list[str]) -> None:
    sasl: dict[str, Any] = {"mechanisms": mechanisms}
    if mechanisms != ["EXTERNAL"]:
        sasl["usersSecretRef"] = {"name": "users"}
    users = SecretView("users", {"sasldb": b"database"})
    built = model(listening("normal", sasl=sasl), secrets=(*SECRETS, users))
    assert names(built) == ()


def test_names_of_earlier_generations_stay_as_long_as_these_are_valid() -> None:
    """A rotation to a certificate of another name closes no connection before its time."""
    material = dict(secret("net", "second").data)
    ledger = Ledger(
        tuple(
            Generation(ordinal, identity(material["tls.crt"]), NOW, names=(name,))
            for ordinal, name in ((1, "first"), (2, "second"))
        ),
        1, 0, 2, material["tls.crt"], material["tls.key"],
    )  # fmt: skip
    assert Ledger.decoded(ledger.encoded()) == ledger
    profile = {
        "apiVersion": API_VERSION, "kind": "SslProfile",
        "metadata": {"name": "net", "namespace": "net", "uid": "u", "generation": 1},
        "spec": {"secretName": "net"},
    }  # fmt: skip
    tls = {"sslProfile": "net", "requireClientCertificate": True}
    hub = listening("inter-router", tls=tls)
    built = model(hub, profile).serving({"net": replace(ledger, generations=with_authorities(ledger))})
    assert names(built) == ("first", "second")


def with_authorities(ledger: Ledger) -> tuple[Generation, ...]:
    """The generations, of the same authority."""
    trusted = authority().cert_pem.bytes()
    return tuple(replace(item, authorities=trusted) for item in ledger.generations)


def test_names_stay_while_a_certificate_cannot_be_used() -> None:
    """A Secret that disappears does not close the connections of its Connector."""
    built = model(listening("edge"), EDGE, UPLINK, secrets=SECRETS)
    assert names(built) == ("shop.example",)
    (instance,) = plan(built).instances["hub"]
    delivered: Mapping[str, bytes] = {
        **instance.files,
        "hub.json": config_bytes(router_config(instance, Resolver())),
    }
    without = model(listening("edge"), EDGE, UPLINK, secrets=SECRETS[:1])
    assert names(without) == ()
    assert names(without.at(datetime.now(UTC), {"hub": delivered})) == ("shop.example",)
    mixed = SecretView("shop", {**secret("shop", "late").data, "tls.key": SECRETS[0].data["tls.key"]})
    unfit = model(listening("edge"), EDGE, UPLINK, secrets=(SECRETS[0], mixed))
    assert names(unfit.at(datetime.now(UTC), {"hub": delivered})) == ("shop.example",)
