"""SslProfiles from resource to configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.operator.certificates import NOW, authorities, issued
from tests.unit.operator.sslprofiles import NETWORK, SETTINGS, files, ledger, rendered, sections
from tests.unit.operator.support import connector, model, router, ssl_profile

from isthmus_operator.model import SecretView
from isthmus_operator.render import render
from isthmus_operator.resources import InvalidResourceError, parse
from isthmus_operator.rotation import Ledger, Past, Wish, adopt


@pytest.mark.parametrize("tls", [{}, {"secretName": "a", "sslProfile": "b"}, {"verifyHostname": False}])
def test_certificates_come_from_one_place(tls: dict[str, Any]) -> None:
    with pytest.raises(InvalidResourceError, match="exactly one of"):
        parse(connector("c", "west", ("h", 1), "normal", tls=tls))


def test_listeners_and_connectors_get_the_ordinals_and_files_of_the_ordinal() -> None:
    found = rendered(ledger(1, 2))
    assert found.findings == ()
    (link,) = sections(found, "east", "sslProfile")
    assert link == {
        "name": "sslprofile/net/dialled",
        "caCertFile": "/etc/isthmus/net_2-ca.crt",
        "certFile": "/etc/isthmus/net_2-tls.crt",
        "privateKeyFile": "/etc/isthmus/net_2-tls.key",
        "ordinal": 2,
        "oldestValidOrdinal": 1,
    }
    assert {item["name"] for item in sections(found, "west", "sslProfile")} == {
        "sslprofile/net-min-TLSv1.2",
        "sslprofile/net-min-TLSv1.3",
    }
    content = files(found, "west")
    assert content["net_2-tls.crt"] == issued(2)["tls.crt"]
    assert not [name for name in content if "net_1" in name]


def staged() -> Ledger:
    """A second certificate that listeners are about to present."""
    found = adopt(ledger(1), "server", issued(2), Wish(staged=True), Past(), NOW).ledger
    assert found is not None
    return found


def test_listeners_get_a_new_ordinal_first_and_all_get_its_files_at_once() -> None:
    found = rendered(staged())
    assert {item["ordinal"] for item in sections(found, "west", "sslProfile")} == {2}
    (link,) = sections(found, "east", "sslProfile")
    assert (link["ordinal"], link["certFile"]) == (1, "/etc/isthmus/net_2-tls.crt")
    assert {item.ordinals for item in found.plan.instances["west"][0].tls} == {(2, 1)}


def test_the_replicas_of_a_router_dial_with_a_section_of_their_own() -> None:
    listeners = NETWORK[0]["spec"]["listeners"]
    found = rendered(staged(), router("west", replicas=2, listeners=listeners), ssl_profile("net", "server"))
    config = json.loads(files(found, "west")["west-1.json"])
    ordinals = {item["name"]: item["ordinal"] for kind, item in config if kind == "sslProfile"}
    assert ordinals["sslprofile/net-min-TLSv1.3"] == 2
    assert ordinals["sslprofile/net-min-TLSv1.3/dialled"] == 1
    (mesh,) = [item for kind, item in config if kind == "connector"]
    assert mesh["sslProfile"] == "sslprofile/net-min-TLSv1.3/dialled"


def test_a_secret_has_no_ordinals_and_no_clash_with_a_profile_of_its_name() -> None:
    both = connector("other", "east", ("host", 5671), "normal", tls={"secretName": "net"})
    secret = SecretView("net", issued(3))
    built = model(*NETWORK, both, ssl_profile("net", "server"), secrets=[secret])
    found = render(built.serving({"net": ledger(1)}), SETTINGS)
    plain, profile = sorted(sections(found, "east", "sslProfile"), key=lambda item: str(item["name"]))
    assert "ordinal" not in plain
    assert (plain["name"], profile["name"]) == ("net", "sslprofile/net/dialled")
    assert files(found, "east")["net-tls.crt"] == issued(3)["tls.crt"]
    assert files(found, "east")["net_1-tls.crt"] == issued(1)["tls.crt"]


def test_the_authorities_of_all_valid_ordinals_are_delivered() -> None:
    first = ledger(1)
    second = adopt(first, "server", issued(2, "second"), Wish(), Past(), NOW).ledger
    assert files(rendered(second), "west")["net_2-ca.crt"] == authorities("second", "first")


def test_a_profile_that_is_not_there_is_waited_for() -> None:
    for manifests, text in (
        (NETWORK, 'SslProfile "net" does not exist'),
        ((*NETWORK, ssl_profile("net", "server")), 'SslProfile "net" has no certificates yet'),
    ):
        found = rendered(None, *manifests)
        assert {(item.kind, item.reason) for item in found.findings} == {
            ("Router", "Pending"),
            ("Connector", "Pending"),
        }
        assert all(text in item.message for item in found.findings)


def test_a_deleted_profile_leaves_the_routers_their_certificates() -> None:
    before = rendered(ledger(1, 2))
    delivered = {name: files(before, name) for name in before.routers}
    after = rendered(None, *NETWORK, delivered=delivered)
    assert {name: files(after, name) for name in after.routers} == delivered
    assert all(item.in_effect and "keep the earlier" in item.message for item in after.findings)


def test_a_profile_deleted_during_a_rotation_leaves_them_the_newest() -> None:
    before = rendered(staged())
    after = rendered(None, *NETWORK, delivered={name: files(before, name) for name in before.routers})
    (link,) = sections(after, "east", "sslProfile")
    assert (link["ordinal"], link["oldestValidOrdinal"]) == (2, 1)
    assert files(after, "east")["net_2-tls.crt"] == issued(2)["tls.crt"]


@pytest.mark.parametrize(
    ("wrong", "reason", "text"),
    [
        ({"sslProfile": "nett"}, "Pending", 'SslProfile "nett" does not exist (did you mean "net"?)'),
        ({"sslProfile": "other"}, "Pending", 'SslProfile "other" does not exist'),
        ({"secretName": "gone"}, "SecretNotFound", 'Secret "gone" does not exist'),
    ],
)
def test_a_name_of_nothing_leaves_the_routers_what_they_use(
    wrong: Mapping[str, str], reason: str, text: str
) -> None:
    before = rendered(ledger(1))
    delivered = {name: files(before, name) for name in before.routers}
    listeners = [
        {**item, "tls": {**item["tls"], "sslProfile": None, **wrong}}
        for item in NETWORK[0]["spec"]["listeners"]
    ]
    mistaken = (
        router("west", listeners=listeners),
        NETWORK[1],
        connector("link", "east", "west", "inter-router", tls=wrong),
        ssl_profile("net", "server"),
    )
    after = rendered(ledger(1), *mistaken, delivered=delivered)
    assert {name: files(after, name) for name in after.routers} == delivered
    assert {(item.kind, item.reason, item.in_effect) for item in after.findings} == {
        ("Router", reason, True),
        ("Connector", reason, True),
    }
    assert all(
        f"{text}; the routers keep the earlier certificates" in item.message for item in after.findings
    )
    rotated = rendered(ledger(1, 2), *mistaken, delivered=delivered)
    assert {item["ordinal"] for item in sections(rotated, "west", "sslProfile")} == {2}, (
        "they still follow it"
    )
    never = rendered(ledger(1), *mistaken)
    assert sections(never, "east", "connector") == []


def test_a_profile_without_authorities_does_not_do_for_a_connector() -> None:
    bare = {key: value for key, value in issued(1).items() if key != "ca.crt"}
    found = rendered(adopt(None, "server", bare, Wish(), Past(), NOW).ledger)
    assert {(item.reason, item.name) for item in found.findings} == {
        ("SecretInvalid", "link"),
        ("SecretInvalid", "west"),
    }


def test_users_are_named_as_the_profile_says() -> None:
    def formats(found: Any) -> list[object]:
        return [section.get("uidFormat") for section in sections(found, "west", "sslProfile")]

    assert formats(rendered(ledger(1))) == [None, None]
    named = rendered(ledger(1), *NETWORK, ssl_profile("net", "server", uidFormat="n"))
    assert formats(named) == ["n", "n"]
    delivered = {name: files(named, name) for name in named.routers}
    assert formats(rendered(None, *NETWORK, delivered=delivered)) == ["n", "n"]
    with pytest.raises(InvalidResourceError, match="uidFormat"):
        parse(ssl_profile("net", "server", uidFormat="x"))
