"""Everything that uses a certificate says when this has expired, wherever it is from, and goes on with it."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.operator import test_certificate_users as users
from tests.unit.operator.certificates import NOW, issued
from tests.unit.operator.sslprofiles import NETWORK, ledger
from tests.unit.operator.support import (
    OWN_SINCE,
    flow_log,
    gossip_router,
    model,
    relay_site,
    router,
    ssl_profile,
)

from isthmus_operator import reconcile
from isthmus_operator.certificates import examine
from isthmus_operator.facts import block, complaint
from isthmus_operator.names import LABEL_USE
from isthmus_operator.reconcile import RENDERING_SECONDS
from isthmus_operator.render import Rendered, RenderSettings, render
from isthmus_operator.rotation.ledger import TLS_KEYS

SETTINGS = RenderSettings("router:1", collector_image="collector:1")
TLS = {"sslProfile": "net"}
EXPIRY = NOW + timedelta(days=90)
RESOURCES = (
    *NETWORK,
    ssl_profile("net", "server"),
    gossip_router("meet", tls=TLS),
    flow_log("flows", "west", routerRef={"name": "west", "listener": "amqps"}, tls=TLS),
    relay_site("nyc", "east", tls=TLS, bridge={"tls": TLS}),
)
SECOND = timedelta(seconds=1)


def found(moment: datetime) -> Rendered:
    built = model(*RESOURCES).at(moment, {})
    return render(built.serving({**built.ledgers, "net": ledger(1)}), SETTINGS)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Router", "west"),
        ("Connector", "link"),
        ("RelaySite", "nyc"),
        ("GossipRouter", "meet"),
        ("FlowLog", "flows"),
    ],
)
def test_an_expired_certificate_of_an_ssl_profile_is_told_and_stays(kind: str, name: str) -> None:
    before, after = found(EXPIRY), found(EXPIRY + SECOND)
    assert before.findings_of(kind, name) == ()
    findings = after.findings_of(kind, name)
    assert {item.reason for item in findings} == {"SecretInvalid"}
    text = 'SslProfile "net": the certificate in tls.crt expired at 2030-04-01T00:00:00Z'
    assert all(text in item.message and item.in_effect for item in findings)


def test_what_uses_an_expired_certificate_goes_on_as_it_is() -> None:
    before, after = found(EXPIRY), found(EXPIRY + SECOND)
    owners = {(owner.kind_name, owner.name): objects for owner, objects in before.owners()}
    assert {kind for kind, _ in owners} == {"Router", "GossipRouter", "FlowLog"}
    assert {(owner.kind_name, owner.name): objects for owner, objects in after.owners()} == owners


def test_an_expired_certificate_of_the_own_authority_is_told() -> None:
    built = model(router("west"), gossip_router("meet"))
    ends = [end for item in built.ledgers.values() for end in examine(*map(item.material.get, TLS_KEYS)).ends]
    assert min(ends) > OWN_SINCE
    for moment, reasons in ((min(ends), set()), (max(ends) + SECOND, {"SecretInvalid"})):
        rendered = render(built.at(moment, {}), SETTINGS)
        for kind, name in (("Router", "west"), ("GossipRouter", "meet")):
            findings = rendered.findings_of(kind, name)
            assert {item.reason for item in findings} == reasons
            assert all("own authority has not renewed it in time" in item.message for item in findings)
    meet = built.gossip_routers["meet"]
    assert block(meet, rendered) is None
    assert complaint(meet, rendered) is not None


def test_an_authority_that_cannot_renew_certificates_is_told_before_they_expire() -> None:
    resources = router("west"), gossip_router("meet"), flow_log("flows", "west")
    built = model(*resources, gossip_router("other", tls={"disabled": True}))
    broken = built.with_authority(None, "it is garbage").serving(built.ledgers)
    rendered = render(broken, SETTINGS)
    for kind, name in (("Router", "west"), ("GossipRouter", "meet"), ("FlowLog", "flows")):
        (finding,) = rendered.findings_of(kind, name)
        assert (finding.reason, finding.message, finding.in_effect) == (
            "AuthorityUnusable",
            "it is garbage",
            True,
        )
    assert rendered.findings_of("GossipRouter", "other") == ()
    assert {"meet", "other"} == set(rendered.gossip_routers)


async def test_it_is_told_at_the_moment_when_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    now = EXPIRY - timedelta(seconds=10)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return now

    monkeypatch.setattr(reconcile, "datetime", Clock)
    one = users.Operation(ssl_profile("net", "server"), secret("server"), tls=TLS)
    for _ in range(3):
        wait = await one.look()
        one.observer.said["meet-gossip-0"] = users.said("GossipRouter", one.delivered)
    assert one.configured() == ("True", "Applied")
    assert wait is not None
    assert 0 < wait <= 10, "it looks again when the certificate expires"

    now = EXPIRY + timedelta(milliseconds=1)
    one.now += 10
    assert one.now < RENDERING_SECONDS
    await one.look()
    assert one.configured() == ("False", "SecretInvalid")


def secret(name: str) -> dict[str, Any]:
    data = {key: base64.b64encode(value).decode() for key, value in issued(1).items()}
    metadata = {
        "name": name,
        "namespace": "net",
        "uid": f"uid-{name}",
        "resourceVersion": "3",
        "labels": {LABEL_USE: "true"},
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
