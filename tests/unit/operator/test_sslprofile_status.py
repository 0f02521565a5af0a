"""SslProfiles from the routers' reports to status: who uses which ordinal, and what there is to tell of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.unit.operator.certificates import NOW, authorities, issued
from tests.unit.operator.certificates import authority as named_authority
from tests.unit.operator.sslprofiles import NETWORK, ledger, rendered
from tests.unit.operator.support import authority, gossip_router, model, relay_site, router, ssl_profile
from tests.unit.operator.test_revocations import CHECKED, revoking

from isthmus_operator.certificates import Certificate
from isthmus_operator.facts import router_facts
from isthmus_operator.model import NamespaceModel, Problem
from isthmus_operator.names import ANNOTATION_SYNC, LABEL_ROUTER
from isthmus_operator.render import KubernetesResolver, Rendered
from isthmus_operator.report import Observation, parse_report
from isthmus_operator.resources import SslProfile, parse
from isthmus_operator.rotation import Ledger, Past, Refusal, Wish, adopt
from isthmus_operator.rotation.announcer import RotationAnnouncer
from isthmus_operator.status import (
    CertificateUser,
    PodView,
    ProfileFacts,
    Usage,
    Users,
    next_change,
    sslprofile_status,
    usage,
)


def pod(name: str) -> PodView:
    manifest = {
        "metadata": {"name": name, "uid": name, "labels": {LABEL_ROUTER: name[:-2]}},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return PodView.of(manifest, LABEL_ROUTER, ANNOTATION_SYNC)


def report(name: str, *, profiles: Any = (), connectors: Any = (), config: str = "") -> Observation:
    answer = {
        "router": {"id": name, "ready": True, "configHash": config},
        "connectors": [{"role": "inter-router", **item} for item in connectors],
        "sslProfiles": [
            {"name": section, "ordinal": ordinal, "oldestValidOrdinal": 1, "connections": counts}
            for section, ordinal, counts in profiles
        ],
    }
    return Observation(parse_report(answer, NOW))


def used(
    observations: Mapping[str, Observation],
    *,
    ordinal: int = 2,
    found: Rendered | None = None,
    among: NamespaceModel | None = None,
    others: Sequence[CertificateUser] = (),
) -> Usage:
    current = found or rendered(ledger(1, 2))
    resources = {name: item.router for name, item in current.routers.items()}
    users = Users(
        among or model(),
        current.plan.instances,
        lambda instance, target: KubernetesResolver("net").dial(instance, target)[0],
    )
    return usage(
        "net",
        ordinal,
        {
            name: router_facts(
                resource,
                current,
                outcome=None,
                children=(),
                pods=[pod(f"{name}-0")],
                observations=observations,
            )
            for name, resource in resources.items()
        },
        users,
        others,
    )


WEST = ("sslprofile/net-min-TLSv1.2", 2, {"1": 3}), ("sslprofile/net-min-TLSv1.3", 2, {"2": 1})


def east(ordinal: int, state: str = "open", message: str = "") -> Observation:
    link = {"name": "link", "state": state, "tlsOrdinal": ordinal, "message": message}
    return report(
        "east-0", profiles=[("sslprofile/net/dialled", ordinal, {str(ordinal): 3})], connectors=[link]
    )


def test_all_connections_between_routers_use_the_newest_ordinal() -> None:
    found = used({"west-0": report("west-0", profiles=WEST), "east-0": east(2)})
    assert found.behind == ()
    assert found.connections == {1: 3, 2: 4}, "clients may stay on the old one"
    assert found.served
    assert [(item.pod, item.listeners, item.connectors) for item in found.pods] == [
        ("east-0", (), ("link",)),
        ("west-0", ("amqps", "inter-router"), ()),
    ]


def test_sites_and_gossip_routers_that_use_it_are_named() -> None:
    tls, other = {"sslProfile": "net"}, {"sslProfile": "other"}
    among = model(
        relay_site("nyc", "east", tls=tls),
        relay_site("sfo", "west", bridge={"tls": tls}),
        relay_site("lon", "north", tls=other),
        gossip_router("g1", tls=tls),
        gossip_router("g2", tls=other),
        gossip_router("g3"),
    )
    found = used({}, among=among)
    assert (found.relay_sites, found.gossip_routers) == (("nyc", "sfo"), ("g1",))
    told = status(facts(ledger(1, 2), usage=found))
    assert (told["relaySites"], told["gossipRouters"]) == (["nyc", "sfo"], ["g1"])


def test_what_is_behind_is_named() -> None:
    late = [(name, 1, counts) for name, _, counts in WEST]
    found = used(
        {"west-0": report("west-0", profiles=late), "east-0": east(1, message="refused: unknown ca")}
    )
    assert found.behind == (
        'east-0: connector "link" uses ordinal 1: refused: unknown ca',
        "west-0: has not loaded ordinal 2 yet",
    )
    assert not found.served
    dialling = used({"west-0": report("west-0", profiles=WEST), "east-0": east(1)})
    assert dialling.served
    failed = used({"west-0": report("west-0", profiles=WEST), "east-0": east(1, "failed", "no route")})
    assert failed.behind == ('east-0: connector "link": no route',)
    assert used({}).unheard
    silent = used({"west-0": Observation(None, "does not answer"), "east-0": east(2)})
    assert silent.behind == ("west-0 does not answer",)


def test_a_router_that_does_not_tell_is_judged_by_its_configuration() -> None:
    current = rendered(ledger(1, 2))
    expected = current.routers["west"].expected_hash("west-0") or ""
    known = used({"west-0": report("west-0", config=expected), "east-0": east(2)}, found=current)
    assert known.behind == ()
    unknown = used({"west-0": report("west-0", config="other"), "east-0": east(2)}, found=current)
    assert unknown.behind == ("west-0: has not loaded ordinal 2 yet",)


def test_a_paused_router_is_behind() -> None:
    manifests = [router("west", listeners=NETWORK[0]["spec"]["listeners"]), ssl_profile("net", "server")]
    manifests[0]["metadata"]["annotations"] = {"isthmus.dev/paused": "true"}
    found = used({"west-0": report("west-0", profiles=WEST)}, found=rendered(ledger(1, 2), *manifests))
    assert found.behind == ("reconciliation of Router west is paused",)


def profile(**spec: Any) -> SslProfile:
    parsed = parse(ssl_profile("net", "server", **spec))
    assert isinstance(parsed, SslProfile)
    return parsed


def status(found: ProfileFacts, now: datetime = NOW) -> dict[str, Any]:
    return sslprofile_status(found, None, now)


def conditions(found: ProfileFacts, now: datetime = NOW) -> dict[str, tuple[str, str]]:
    return {item["type"]: (item["status"], item["reason"]) for item in status(found, now)["conditions"]}


def facts(found: Ledger | None, **more: Any) -> ProfileFacts:
    return ProfileFacts(profile(), found, **more)


def settled(found: Ledger) -> Ledger:
    return replace(found, generations=(*found.generations[:-1], replace(found.current, settled=NOW)))


def test_all_is_well() -> None:
    assert conditions(facts(settled(ledger(1)))) == {
        "Valid": ("True", "InService"),
        "Rotating": ("False", "Settled"),
        "Expiring": ("False", "NotYet"),
        "Questionable": ("False", "AsExpected"),
        "Degraded": ("False", "AsSpecified"),
        "Ready": ("True", "Ready"),
    }


def test_a_rotation_under_way_says_what_it_waits_for_and_when_it_is_stuck() -> None:
    behind = ('east-0: connector "link" uses ordinal 1: refused',)
    found = facts(ledger(1, 2), usage=Usage(behind=behind))
    assert conditions(found)["Rotating"] == ("True", "Rotating")
    assert conditions(found)["Ready"] == ("True", "Ready")
    late = NOW + timedelta(seconds=120)
    assert conditions(found, late)["Rotating"] == ("True", "RotationStuck")
    (message,) = [item["message"] for item in status(found, late)["conditions"] if item["type"] == "Rotating"]
    assert message == f"ordinal 2 since 2030-01-01T00:00:00Z, 1 not on it yet: {behind[0]}"
    announcer = RotationAnnouncer()
    assert announcer.news(found, NOW) == []
    assert [note.reason for note in announcer.news(found, late)] == ["RotationStuck"]
    assert announcer.news(found, late) == []


def questionable(found: ProfileFacts) -> tuple[str, str, str]:
    (item,) = [item for item in status(found)["conditions"] if item["type"] == "Questionable"]
    return item["status"], item["reason"], item["message"]


def test_a_number_that_does_nothing_is_told() -> None:
    current = replace(settled(ledger(1, 2)), handled_request=3)
    beyond = ProfileFacts(profile(oldestValidOrdinal=9), current)
    assert questionable(beyond) == (
        "True",
        "NumberIgnored",
        "spec.oldestValidOrdinal is 9, but the newest ordinal is 2: it counts as 2, and each new certificate closes "
        "all older connections at once; set it to 2 or less",
    )
    lowered = replace(beyond, profile=profile(rotation={"request": 2}))
    assert questionable(lowered) == (
        "True",
        "NumberIgnored",
        "spec.rotation.request is 2, but 3 was carried out before: nothing is rotated; set it to 3, or to more to "
        "rotate",
    )
    for harmless in ({"oldestValidOrdinal": 2}, {"rotation": {"request": 3}}, {}):
        assert questionable(replace(beyond, profile=profile(**harmless)))[0] == "False"


def certificate(usages: list[x509.ObjectIdentifier], name: str, *, own: bool = True) -> Ledger:
    """In service: signed by itself, which `ca.crt` has or has not, with these usages and this name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "router")])
    built = (
        x509.CertificateBuilder(subject, subject, key.public_key(), 1, NOW, NOW + timedelta(days=90))
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, SHA256())
    )
    pem = built.public_bytes(Encoding.PEM)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    offer = {"tls.crt": pem, "tls.key": private, "ca.crt": pem if own else authorities("first")}
    found = adopt(None, "server", offer, Wish(), Past(), NOW).ledger
    assert found is not None
    return found


SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


@pytest.mark.parametrize(
    ("found", "texts"),
    [
        (certificate([SERVER, CLIENT], "west-0.west-mesh.net.svc"), []),
        (certificate([SERVER, CLIENT], "*.west-mesh.net.svc"), []),
        (
            certificate([SERVER], "*.net.svc"),
            [
                "tls.crt is not for clients, but connectors present it: issue it with the usage client auth",
                "tls.crt does not name west-0.west-mesh.net.svc, which connectors expect",
            ],
        ),
        (
            certificate([CLIENT], "*.west-mesh.net.svc", own=False),
            [
                "tls.crt is not signed by an authority in its own ca.crt",
                "tls.crt is not for servers, but listeners present it: issue it with the usage server auth",
            ],
        ),
    ],
)
def test_a_certificate_that_does_not_do_for_its_use_is_told(found: Ledger, texts: list[str]) -> None:
    use = used({}, ordinal=1, found=rendered(found))
    assert use.hosts == ("west-0.west-mesh.net.svc",)
    holds, reason, message = questionable(facts(found, usage=use))
    assert (holds, reason) == (("True", "CertificateUnfit") if texts else ("False", "AsExpected"))
    assert all(text in message for text in texts)
    assert message.count("tls.crt is not") + message.count("does not name") == len(texts)
    assert questionable(facts(found))[0] == "False", "nobody uses it"


def test_authorities_without_a_revocation_list_are_told() -> None:
    """Those in `ca.crt`, and those that have signed the certificates in `tls.crt`."""
    root = trustme.CA()
    leaf = root.create_child_ca().issue_cert("west.example", not_after=NOW + timedelta(days=1))
    chain = b"".join(item.bytes() for item in leaf.cert_chain_pems)
    missing = [item.issuer.rfc4514_string() for item in x509.load_pem_x509_certificates(chain)]
    offer = {
        "tls.crt": chain,
        "tls.key": leaf.private_key_pem.bytes(),
        "ca.crt": authority().cert_pem.bytes(),
        "revoked.pem": revoking(),
    }
    for wish, told in ((CHECKED, True), (Wish(), False)):
        found = adopt(None, "server", offer, wish, Past(), NOW).ledger
        assert found is not None
        holds, reason, message = questionable(facts(found))
        assert (holds, reason) == (("True", "ListMissing") if told else ("False", "AsExpected"))
        assert (f"list of {missing[0]}, {missing[1]}, so peers" in message) is told
    complete = adopt(
        None,
        "server",
        {**issued(1), "revoked.pem": revoking(by=named_authority("first"))},
        CHECKED,
        Past(),
        NOW,
    )
    assert complete.ledger is not None
    assert questionable(facts(complete.ledger))[0] == "False"


def test_a_refused_secret_degrades_what_is_in_service() -> None:
    refused = Refusal("SecretInvalid", 'Secret "server": no good')
    found = facts(settled(ledger(1)), refusal=refused)
    assert conditions(found)["Degraded"] == ("True", "SecretInvalid")
    assert conditions(found)["Valid"] == ("True", "InService")
    assert conditions(found)["Ready"] == ("False", "SecretInvalid")
    waiting = replace(found, profile=profile(rotation={"request": 1}))
    (message,) = [item["message"] for item in status(waiting)["conditions"] if item["type"] == "Degraded"]
    assert message == 'Secret "server": no good; ordinal 1 stays in service; the requested rotation waits'
    never = facts(None, refusal=refused)
    assert conditions(never)["Valid"] == ("False", "SecretInvalid")
    assert "ordinal" not in status(never)
    failed = facts(settled(ledger(1)), problem=Problem("ApplyFailed", "no", transient=True))
    assert conditions(failed)["Ready"] == ("False", "ApplyFailed")


def test_a_look_is_due_when_the_status_changes_by_itself() -> None:
    behind = facts(ledger(1), usage=Usage(behind=("west-0: behind",)))
    due = next_change(behind, NOW)
    assert due is not None
    assert conditions(behind, due - timedelta(seconds=1))["Rotating"] == ("True", "Rotating")
    assert conditions(behind, due)["Rotating"] == ("True", "RotationStuck")

    found, moment, changes = facts(settled(ledger(1))), NOW, []
    while (due := next_change(found, moment)) is not None:
        before, moment = conditions(found, due - timedelta(seconds=1)), due + timedelta(microseconds=1)
        changes.append(
            {kind: now[1] for kind, now in conditions(found, moment).items() if now != before[kind]}
        )
    assert changes == [
        {"Expiring": "ExpiresSoon"},
        {"Valid": "CertificateExpired", "Expiring": "CertificateExpired", "Ready": "CertificateExpired"},
    ]
    assert next_change(facts(None), NOW) is None


@pytest.mark.parametrize(
    ("days", "expiring", "valid"),
    [(30, "NotYet", True), (61, "ExpiresSoon", True), (91, "CertificateExpired", False)],
)
def test_a_certificate_that_expires_is_told(days: int, expiring: str, valid: bool) -> None:
    found = conditions(facts(settled(ledger(1))), NOW + timedelta(days=days))
    assert found["Expiring"][1] == expiring
    assert (found["Valid"][0] == "True") is valid
    assert (found["Ready"][0] == "True") is valid


def test_the_status_tells_ordinals_and_users_and_nothing_secret() -> None:
    current = ledger(1, 2)
    use = used({"west-0": report("west-0", profiles=WEST), "east-0": east(2)})
    found = status(facts(current, usage=use))
    assert (found["ordinal"], found["oldestValidOrdinal"], found["connections"]) == (2, 1, 7)
    assert [(item["ordinal"], item["connections"]) for item in found["ordinals"]] == [(1, 3), (2, 4)]
    assert found["users"][1] == {
        "pod": "west-0",
        "router": "west",
        "listeners": ["amqps", "inter-router"],
        "connections": [{"ordinal": 1, "connections": 3}, {"ordinal": 2, "connections": 1}],
    }
    assert "PRIVATE" not in json.dumps(found)
    assert "BEGIN" not in json.dumps(found)


def test_years_have_four_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server would refuse the whole status."""
    old = Certificate("f", "i", "issuer", datetime(100, 1, 2, tzinfo=UTC), NOW)
    monkeypatch.setattr("isthmus_operator.status.sslprofile.described", lambda _: old)
    assert status(facts(settled(ledger(1))))["notBefore"] == "0100-01-02T00:00:00Z"
