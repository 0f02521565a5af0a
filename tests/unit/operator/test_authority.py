"""The certificate authority of a namespace, and the certificates that it signs."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from tests.unit.operator.certificates import issued
from tests.unit.operator.support import (
    connector,
    flow_log,
    gossip_router,
    model,
    relay_site,
    router,
    ssl_profile,
    tls_data,
    tls_secret,
)
from tests.unit.operator.test_keeper import Api

from isthmus_operator.apply import superfluous
from isthmus_operator.authority import (
    AUTHORITY_SECRET,
    Authority,
    Names,
    UnusableAuthorityError,
    new_authority,
    offer,
    own_profiles,
    peer_names,
    renewed,
)
from isthmus_operator.authority.issue import LEAF_LIFETIME, issue, renewal
from isthmus_operator.authority.keeper import AuthorityKeeper
from isthmus_operator.certificates import described, examine, fitness, is_signed
from isthmus_operator.cluster import ApiError
from isthmus_operator.contests import MAX_PAUSE_SECONDS, MOST_CHANGES
from isthmus_operator.model import NamespaceModel, SecretView
from isthmus_operator.names import LABEL_MANAGED_BY
from isthmus_operator.render import plan
from isthmus_operator.resources import Connector, parse
from isthmus_operator.rotation import Past, Wish, adopt
from isthmus_operator.rotation.keeper import Keeper

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NAMES = Names("east", ("east.net.svc", "*.east-mesh.net.svc"), ("127.0.0.1",))


def test_a_certificate_serves_servers_and_clients_under_all_of_its_names() -> None:
    authority = new_authority("Isthmus net", NOW)
    made = issue(authority, NAMES, NOW)
    assert examine(made["ca.crt"], made["tls.crt"], made["tls.key"]).problem_at(NOW) is None
    fit = fitness(made["tls.crt"])
    assert is_signed(made["tls.crt"], made["ca.crt"])
    assert (fit.server, fit.client) == (True, True)
    assert all(map(fit.names_host, ("east", "east.net.svc", "east-0.east-mesh.net.svc")))
    assert not fit.names_host("west.net.svc")
    leaf = x509.load_pem_x509_certificate(made["tls.crt"])
    assert leaf.subject.rfc4514_string() == "CN=east"
    assert isinstance(leaf.public_key(), ec.EllipticCurvePublicKey)
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_two_certificates_of_one_authority_trust_each_other_and_no_other_authority(tmp_path: Path) -> None:
    authority, stranger = (new_authority("Isthmus net", datetime.now(UTC)) for _ in range(2))
    contexts = []
    for number, (signer, purpose) in enumerate(
        (
            (authority, ssl.PROTOCOL_TLS_SERVER),
            (authority, ssl.PROTOCOL_TLS_CLIENT),
            (stranger, ssl.PROTOCOL_TLS_CLIENT),
        )
    ):
        made = issue(signer, NAMES, datetime.now(UTC))
        context = ssl.SSLContext(purpose)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=authority.trusted.decode())
        for name, content in made.items():
            (tmp_path / f"{number}.{name}").write_bytes(content)
        context.load_cert_chain(tmp_path / f"{number}.tls.crt", tmp_path / f"{number}.tls.key")
        contexts.append(context)
    server, client, other = contexts
    assert handshake(server, client) == "east"
    with pytest.raises(ssl.SSLError):
        handshake(server, other)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """Common name of the client that the server sees."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="east-1.east-mesh.net.svc"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = ends[1].getpeercert()
    assert found is not None
    return next(str(value) for ((key, value),) in found["subject"] if key == "commonName")  # type: ignore[misc,has-type,str-unpack]


def test_nothing_secret_is_in_a_representation() -> None:
    authority = new_authority("Isthmus net", NOW)
    built = model(router("east")).with_authority(authority)
    for shown in (repr(authority), repr(built)):
        assert "PRIVATE" not in shown
        assert authority.key.decode().splitlines()[1] not in shown


def test_a_certificate_stays_until_half_of_its_time_and_is_replaced_then() -> None:
    authority = new_authority("Isthmus net", NOW)
    first, due = offer(authority, NAMES, None, NOW)
    assert due is not None
    assert timedelta(days=15) <= due - NOW <= timedelta(days=18)
    ledger = adopt(None, AUTHORITY_SECRET, first, Wish(), Past(), NOW).ledger
    assert offer(authority, NAMES, ledger, due - timedelta(seconds=1)) == (first, due)
    later, _ = offer(authority, NAMES, ledger, due)
    assert later is not None
    result = adopt(ledger, AUTHORITY_SECRET, later, Wish(), Past(), due)
    assert result.refusal is None
    assert result.ledger is not None
    assert result.ledger.ordinal == 2


@pytest.mark.parametrize("left", [timedelta(seconds=1), timedelta(minutes=20), timedelta(days=20)])
def test_a_certificate_that_ends_with_its_authority_stays_until_then(left: timedelta) -> None:
    """The next one would end at the same moment: the operator issued new ones without end."""
    authority = new_authority("Isthmus net", NOW)
    end = x509.load_pem_x509_certificate(authority.certificate).not_valid_after_utc
    now = end - left
    first, due = offer(authority, NAMES, None, now)
    assert due == end
    ledger = adopt(None, AUTHORITY_SECRET, first, Wish(), Past(), now).ledger
    for moment in (now, now + left / 2, end - timedelta(milliseconds=1)):
        assert offer(authority, NAMES, ledger, moment) == (first, end)
    expired, _ = offer(authority, NAMES, ledger, end + timedelta(seconds=1))
    result = adopt(ledger, AUTHORITY_SECRET, expired, Wish(), Past(), end + timedelta(seconds=1))
    assert result.refusal is not None
    assert result.ledger == ledger


@pytest.mark.parametrize("ahead", [timedelta(hours=2), timedelta(days=60), timedelta(days=3000)])
def test_a_certificate_that_was_issued_while_a_clock_was_ahead_is_replaced(ahead: timedelta) -> None:
    """No new connection between routers was possible until the certificate became valid."""
    first = new_authority("Isthmus net", NOW)
    authority = renewed(first, "Isthmus net", NOW + ahead)
    early, _ = offer(authority, NAMES, None, NOW + ahead)
    ledger = adopt(None, AUTHORITY_SECRET, early, Wish(), Past(), NOW + ahead).ledger
    assert ledger is not None
    authority = renewed(authority, "Isthmus net", NOW)
    assert first.certificate in authority.trusted
    valid, due = offer(authority, NAMES, ledger, NOW)
    assert valid is not None
    assert due is not None
    for content in (valid["tls.crt"], authority.certificate):
        about = described(content)
        assert about.not_before <= NOW < about.not_after
    result = adopt(ledger, AUTHORITY_SECRET, valid, Wish(), Past(), NOW)
    assert result.refusal is None
    assert result.ledger is not None
    assert result.ledger.ordinal == 2
    assert offer(authority, NAMES, result.ledger, NOW) == (valid, due), "once"
    assert renewed(authority, "Isthmus net", NOW) == authority


@pytest.mark.parametrize(
    ("authority", "names"),
    [
        (new_authority("other", NOW), NAMES),
        (None, Names("west", NAMES.hosts, NAMES.addresses)),
        (None, replace(NAMES, hosts=(*NAMES.hosts, "more"))),
    ],
)
def test_another_authority_or_other_names_give_another_certificate(
    authority: Authority | None, names: Names
) -> None:
    first = new_authority("Isthmus net", NOW)
    made = issue(first, NAMES, NOW)
    assert renewal(made["tls.crt"], first, NAMES) is not None
    assert renewal(made["tls.crt"], authority or first, names) is None


def test_without_an_authority_what_is_in_service_stays() -> None:
    made = issue(new_authority("Isthmus net", NOW), NAMES, NOW)
    ledger = adopt(None, AUTHORITY_SECRET, made, Wish(), Past(), NOW).ledger
    assert offer(None, NAMES, ledger, NOW + LEAF_LIFETIME) == (made, None)
    assert offer(None, NAMES, None, NOW) == (None, None)


def test_an_authority_is_replaced_near_its_end_and_trusted_until_then() -> None:
    first = new_authority("Isthmus net", NOW)
    assert renewed(first, "Isthmus net", NOW + timedelta(days=2000)) == first
    second = renewed(first, "Isthmus net", NOW + timedelta(days=3000))
    assert second.certificate != first.certificate
    assert second.trusted == second.certificate + first.certificate
    third = renewed(second, "Isthmus net", NOW + timedelta(days=6000))
    assert third.trusted == third.certificate + second.certificate


def test_a_certificate_ends_no_later_than_its_authority() -> None:
    authority = new_authority("Isthmus net", NOW)
    made = issue(authority, NAMES, NOW + timedelta(days=3640))
    end = x509.load_pem_x509_certificate(made["tls.crt"]).not_valid_after_utc
    assert end == x509.load_pem_x509_certificate(authority.certificate).not_valid_after_utc


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({}, "it needs the keys tls.crt and tls.key"),
        ({"tls.crt": b"x", "tls.key": b"y"}, "tls.crt is not a certificate in PEM format"),
        (dict(tls_data()), "the certificate in tls.crt is not that of a certificate authority"),
    ],
)
def test_what_cannot_sign_is_no_authority(data: dict[str, bytes], why: str) -> None:
    with pytest.raises(UnusableAuthorityError, match=why):
        Authority.of(data)


def test_an_authority_is_read_as_it_was_written() -> None:
    authority = new_authority("Isthmus net", NOW)
    assert Authority.of(authority.data()) == authority


# -- which certificates, and which names


def test_each_router_gossip_router_and_flow_log_has_a_certificate_of_its_own() -> None:
    built = model(
        router("east"),
        router("edge.1", mode="edge"),
        gossip_router("g"),
        flow_log("flows", "east"),
        flow_log("clear", "east", tls={"disabled": True}),
    )
    own = own_profiles(
        "net",
        built.routers.values(),
        built.gossip_routers.values(),
        flow_logs=built.flow_logs.values(),
        local=False,
    )
    assert {name: item.names.common for name, item in own.items()} == {
        "east_router": "east",
        "edge.1_router": own["edge.1_router"].names.common,
        "g_gossip": "g-gossip",
        "flows_flowlog": "flows-flowlog",
    }
    assert own["flows_flowlog"].names.hosts == (), "nobody connects to a collector"
    east, edge = own["east_router"], own["edge.1_router"]
    assert {"east.net.svc", "*.east-mesh.net.svc"} <= set(east.names.hosts)
    assert f"{edge.names.common}.net.svc" in edge.names.hosts
    assert "*.g-gossip.net.svc" in own["g_gossip"].names.hosts
    assert east.ledger_secret == "east-certificates"
    assert len({item.ledger_secret for item in own.values()}) == 4


def hosts_of(*resources: dict[str, Any]) -> dict[str, set[str]]:
    """The Services whose hosts are in the certificate of each resource."""
    own = model(*resources).own
    return {
        name: {host.split(".")[0] for host in item.names.hosts if not host.startswith("*")}
        for name, item in own.items()
    }


def aged(day: int) -> dict[str, Any]:
    return {"creationTimestamp": f"2026-01-{day:02}T00:00:00Z"}


def test_a_certificate_names_the_site_of_a_router_and_none_that_was_refused() -> None:
    """500 RelaySites that were refused made a certificate longer than TLS peers accept, and kept all Routers from
    connecting again."""
    sites = [relay_site(f"s{number}", "east", meta=aged(number + 2)) for number in range(20)]
    found = hosts_of(router("east"), relay_site("first", "east", meta=aged(1)), *sites)
    assert found == {"east_router": {"east", "east-mesh", "first-bridge"}}


@pytest.mark.parametrize(
    ("resource", "site"),
    [
        (router("east", mode="edge"), relay_site("x", "east")),
        (router("east"), relay_site("x", "east", memberPort=5672)),
        (router("east"), relay_site("x", "none")),
    ],
    ids=["edge", "port", "no router"],
)
def test_a_site_that_a_router_cannot_be_in_gives_no_names(
    resource: dict[str, Any], site: dict[str, Any]
) -> None:
    assert "x-bridge" not in hosts_of(resource, site)["east_router"]


def test_a_certificate_has_no_hosts_of_a_service_of_an_older_resource() -> None:
    """A person with the key of one Router could act as the other Router."""
    assert hosts_of(
        router("x-bridge", meta=aged(1)),
        router("e-mesh", meta=aged(1)),
        router("e", meta=aged(2)),
        relay_site("x", "e"),
    ) == {
        "x-bridge_router": {"x-bridge", "x-bridge-mesh"},
        "e-mesh_router": {"e-mesh", "e-mesh-mesh"},
        "e_router": {"e"},
    }
    found = hosts_of(router("e", meta=aged(1)), router("e-mesh", meta=aged(2)))
    assert found["e_router"] == {"e", "e-mesh"}, "a younger Router takes nothing away"


def test_a_certificate_has_no_hosts_of_services_that_its_owner_does_not_have() -> None:
    """An edge Router has no mesh, and a site that only dials no bridge. Another Router can have these names."""
    assert hosts_of(
        router("e", mode="edge", meta=aged(1)),
        router("e-mesh", meta=aged(2)),
        router("r", meta=aged(1)),
        relay_site("x", "r", meta=aged(1), bridge={"expose": "None"}),
        router("x-bridge", meta=aged(2)),
    ) == {
        "e_router": {"e"},
        "e-mesh_router": {"e-mesh", "e-mesh-mesh"},
        "r_router": {"r", "r-mesh"},
        "x-bridge_router": {"x-bridge", "x-bridge-mesh"},
    }


def test_on_one_machine_certificates_name_the_machine() -> None:
    built = model(router("east"))
    own = own_profiles("net", built.routers.values(), (), local=True)
    names = own["east_router"].names
    assert (names.hosts, names.addresses) == (("localhost",), ("127.0.0.1", "::1"))


def test_only_routers_whose_connectors_lead_to_a_router_are_its_peers() -> None:
    resources = model(router("east"), router("west"), router("other"), router("shop", mode="edge"))
    names = resources.router_names
    connectors = [
        parse(connector("a", "west", "east", "inter-router")),
        parse(connector("b", "other", "west", "inter-router")),
        parse(connector("c", "other", ("east.net.svc", 55672), "inter-router")),
        parse(connector("d", "shop", "east", "edge")),
        parse(connector("e", "client", "east", "normal")),
    ]
    found = [item for item in connectors if isinstance(item, Connector)]
    assert peer_names(resources.routers["east"], found, names, "inter-router") == ["east", "west"]
    assert peer_names(resources.routers["east"], found, names, "edge") == ["east", "shop"]
    assert peer_names(resources.routers["other"], found, names, "inter-router") == ["other"]


def peers_of(*resources: dict[str, Any]) -> dict[str, str]:
    """The names that the listeners of Router `r` accept, by listener."""
    (instance,) = plan(model(router("r", meta=aged(9)), *resources)).instances["r"]
    return {item.name: str(item.attributes.get("peerNames")) for item in instance.listeners if item.tls}


@pytest.mark.parametrize("role", ["inter-router", "edge"])
def test_connectors_without_a_fitting_router_admit_nobody(role: str) -> None:
    """The certificate of a collector or a gossip router was accepted as that of a router."""
    fitting, other = ("interior", "edge") if role == "inter-router" else ("edge", "interior")
    found = peers_of(
        flow_log("f", "r"),
        gossip_router("g"),
        router("other", mode=other),
        router("east", mode=fitting),
        *(
            connector(name, source, "r", role)
            for name, source in (
                ("a", "f-flowlog"),
                ("b", "g-gossip"),
                ("c", "ghost"),
                ("d", "other"),
                ("e", "east"),
            )
        ),
    )
    assert found[role] == "east, r"


def test_a_router_with_the_name_of_an_older_certificate_is_no_peer() -> None:
    meta = {"flow_log": aged(1), "router": aged(2)}
    found = peers_of(
        flow_log("f", "r", meta=meta["flow_log"]),
        router("f-flowlog", meta=meta["router"]),
        connector("a", "f-flowlog", "r", "inter-router"),
    )
    assert found["inter-router"] == "r"


def test_resources_of_other_kinds_with_the_name_of_a_router_admit_nobody() -> None:
    found = peers_of(
        router("x"), gossip_router("x"), flow_log("x", "r"), connector("a", "x", "r", "inter-router")
    )
    assert found["inter-router"] == "r, x"


def test_certificates_of_connectors_without_a_router_admit_nobody() -> None:
    listener = {"name": "routers", "role": "inter-router", "port": 55672}
    secure = {**listener, "tls": {"secretName": "server", "requireClientCertificate": True}}
    found = plan(
        model(
            router("r", listeners=[secure]),
            connector("a", "ghost", "r", "inter-router", tls={"secretName": "other"}),
            secrets=[tls_secret("server"), SecretView("other", issued(7))],
        )
    )
    (instance,) = found.instances["r"]
    (made,) = (item for item in instance.listeners if item.name == "routers")
    assert "host-7" not in str(made.attributes.get("peerNames"))


# -- on Kubernetes


async def test_the_authority_is_made_once() -> None:
    api = Api()
    one, other = (AuthorityKeeper("net", api) for _ in range(2))  # type: ignore[arg-type]
    found = [await each.ensure(NOW) for each in (one, other, one)]
    assert found[0].authority is not None
    assert found[0] == found[1] == found[2]
    assert api.writes == 1
    assert api.objects[AUTHORITY_SECRET]["type"] == "kubernetes.io/tls"


async def test_an_authority_of_somebody_else_is_used_and_never_written() -> None:
    api, late = Api(), NOW + timedelta(days=3649)
    keeper = AuthorityKeeper("net", api)  # type: ignore[arg-type]
    made = await keeper.ensure(NOW)
    del api.objects[AUTHORITY_SECRET]["metadata"]["labels"][LABEL_MANAGED_BY]
    assert await keeper.ensure(late) == made
    assert api.writes == 1


async def test_an_authority_of_somebody_else_that_is_not_valid_yet_is_reported() -> None:
    """`Configured` was `True`, while the verification of each certificate failed."""
    api = Api()
    keeper = AuthorityKeeper("net", api)  # type: ignore[arg-type]
    made = await keeper.ensure(NOW + timedelta(days=2))
    del api.objects[AUTHORITY_SECRET]["metadata"]["labels"][LABEL_MANAGED_BY]
    found = await keeper.ensure(NOW)
    assert found.authority is None
    assert found.problem is not None
    assert (found.problem.reason, found.problem.transient) == ("AuthorityUnusable", False)
    assert "is not valid before 2030-01-02T23:00:00Z" in found.problem.message
    assert await keeper.ensure(NOW + timedelta(days=2)) == made
    assert api.writes == 1


@pytest.mark.parametrize("late", [timedelta(0), timedelta(minutes=30), timedelta(days=2)])
async def test_an_authority_of_somebody_else_that_has_expired_is_reported(late: timedelta) -> None:
    """`Configured` had the reason `Pending` and told of a ValueError, or certificates were issued that had expired."""
    api = Api()
    keeper = AuthorityKeeper("net", api)  # type: ignore[arg-type]
    await keeper.ensure(NOW)
    del api.objects[AUTHORITY_SECRET]["metadata"]["labels"][LABEL_MANAGED_BY]
    expiry = NOW + timedelta(days=3650)
    assert (await keeper.ensure(expiry - timedelta(seconds=1))).problem is None
    found = await keeper.ensure(expiry + late)
    assert found.authority is None
    assert found.problem is not None
    assert (found.problem.reason, found.problem.transient) == ("AuthorityUnusable", False)
    assert f"expired at {expiry:%Y-%m-%dT%H:%M:%SZ}" in found.problem.message
    assert "delete the Secret" in found.problem.message
    assert api.writes == 1


class Contest:
    """Somebody else acts on the Secret of the authority before each reconciliation."""

    def __init__(self) -> None:
        self.api = Api()
        self.now = 1000.0
        self.keeper = AuthorityKeeper("net", self.api, clock=lambda: self.now)  # type: ignore[arg-type]
        self.used: list[bytes] = []
        self.problems = 0

    async def ensure(self) -> None:
        found = await self.keeper.ensure(NOW)
        assert found.authority is not None, "certificates in service stay"
        if found.authority.certificate not in self.used[-1:]:
            self.used.append(found.authority.certificate)
        if found.problem is not None:
            assert (found.problem.reason, found.problem.transient) == ("AuthorityUnusable", False)
            assert "again and again" in found.problem.message
            self.problems += 1
        self.now += 1

    def delete(self) -> None:
        self.api.objects.pop(AUTHORITY_SECRET, None)

    def replace(self) -> None:
        other = new_authority("Isthmus net", NOW).data()
        data = {name: base64.b64encode(content).decode() for name, content in other.items()}
        self.api.objects[AUTHORITY_SECRET]["data"] = data


@pytest.mark.parametrize("act", [Contest.delete, Contest.replace])
async def test_an_authority_that_somebody_deletes_or_replaces_again_and_again_stays_in_use(
    act: Callable[[Contest], None],
) -> None:
    """Each time, the operator issued all certificates of the namespace again."""
    contest = Contest()
    await contest.ensure()
    for _ in range(600):
        act(contest)
        await contest.ensure()
    assert len(contest.used) <= 1 + MOST_CHANGES + 4, "pauses of 1, 2, 4 and 8 minutes"
    assert contest.problems > 500
    contest.now += MAX_PAUSE_SECONDS
    contest.problems = 0
    before = len(contest.used)
    for _ in range(5):
        await contest.ensure()
    assert contest.problems == 0
    assert len(contest.used) == before + 1
    assert AUTHORITY_SECRET in contest.api.objects


@pytest.mark.parametrize("act", [Contest.delete, Contest.replace])
async def test_the_first_replacements_of_an_authority_are_used_at_once(
    act: Callable[[Contest], None],
) -> None:
    contest = Contest()
    await contest.ensure()
    for number in range(MOST_CHANGES):
        act(contest)
        for _ in range(3):
            await contest.ensure()
        assert len(contest.used) == number + 2
    assert contest.problems == 0


async def test_a_renewal_by_the_operator_is_no_replacement_by_somebody_else() -> None:
    contest = Contest()
    for number in range(20):
        await contest.keeper.ensure(NOW + timedelta(days=3000 * number))
    assert len(contest.keeper._contests) == 0


@pytest.mark.parametrize(("ahead", "text"), [(5184000.0, "ahead of"), (-700.0, "behind")])
async def test_with_a_wrong_clock_no_authority_is_made_or_replaced(ahead: float, text: str) -> None:
    """An authority and certificates of the wrong time would take the place of good ones."""
    api, skew = Api(), ahead
    keeper = AuthorityKeeper("net", api, lambda: skew)  # type: ignore[arg-type]
    for _ in range(2):
        found = await keeper.ensure(NOW + timedelta(seconds=ahead))
        assert (found.authority, api.writes) == (None, 0)
        assert found.problem is not None
        assert (found.problem.reason, found.problem.transient) == ("AuthorityUnusable", False)
        assert f"is more than 10 minutes {text} that of the API server" in found.problem.message
    skew = 599.0
    made = await keeper.ensure(NOW)
    assert made.authority is not None
    skew = ahead
    assert (await keeper.ensure(NOW + timedelta(days=3000))).authority is None
    skew = 0.0
    assert await keeper.ensure(NOW) == made
    assert api.writes == 1


async def test_an_authority_of_the_operator_is_renewed() -> None:
    api, late = Api(), NOW + timedelta(days=3000)
    keeper = AuthorityKeeper("net", api)  # type: ignore[arg-type]
    made = await keeper.ensure(NOW)
    second = await keeper.ensure(late)
    assert second != made
    assert await keeper.ensure(late) == second
    assert api.writes == 2


async def test_an_authority_whose_renewals_an_admission_policy_changes_is_written_once() -> None:
    class Altering(Api):
        def _put(self, manifest: dict[str, Any]) -> dict[str, Any]:
            manifest["data"] = first or manifest["data"]
            return super()._put(manifest)

    first: dict[str, str] = {}
    api = Altering()
    keeper = AuthorityKeeper("net", api)  # type: ignore[arg-type]
    before = await keeper.ensure(NOW)
    first = api.objects[AUTHORITY_SECRET]["data"]
    for _ in range(20):
        found = await keeper.ensure(NOW + timedelta(days=3649))
        assert found == before, "what signs is what is stored"
    assert api.writes == 2


async def test_an_authority_that_cannot_be_used_is_reported_and_left_alone() -> None:
    api = Api()
    keeper = AuthorityKeeper("net", api)  # type: ignore[arg-type]
    await keeper.ensure(NOW)
    api.objects[AUTHORITY_SECRET]["data"]["tls.key"] = "eA=="
    found = await keeper.ensure(NOW)
    assert found.authority is None
    assert found.problem is not None
    assert "tls.key" in found.problem.message
    assert api.writes == 1
    api.broken = True
    found = await keeper.ensure(NOW)
    assert found.problem is not None
    assert found.problem.transient


async def test_certificates_are_in_a_secret_of_their_resource_and_stay_there() -> None:
    api = Api()
    built = model(router("east"), gossip_router("g"), flow_log("flows"), ssl_profile("net", "server")).at(NOW)
    built = built.with_authority(new_authority("Isthmus net", NOW))
    ledgers = await adopted(Keeper("net", api), built)  # type: ignore[arg-type]
    assert set(ledgers) == {"east_router", "g_gossip", "flows_flowlog"}
    (reference,) = api.objects["flows-flowlog-certificates"]["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"]) == ("FlowLog", "uid-flows")
    secret = api.objects["east-certificates"]
    owner = secret["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Router", "east", "uid-east")
    assert list(superfluous(api.live(), (), built.routers["east"])) == []
    again = Keeper("net", api)  # type: ignore[arg-type]
    assert await adopted(again, built, api) == ledgers
    assert api.writes == 3
    due = again.facts["east_router"].due
    assert due is not None
    assert due > NOW


async def test_a_younger_resource_writes_no_certificates_in_the_place_of_an_older_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request that failed once gave it the Secret, so that the older one had no certificates and no pods."""
    api = Api()
    built = model(gossip_router("x", meta=aged(1)), router("x-gossip", meta=aged(2))).at(NOW)
    built = built.with_authority(new_authority("Isthmus net", NOW))
    keeper = Keeper("net", api)  # type: ignore[arg-type]
    create, failures = api.create, [ApiError(500, "InternalError", "etcd has no leader")]

    async def fail_once(manifest: dict[str, Any]) -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return await create(manifest)

    monkeypatch.setattr(api, "create", fail_once)
    for _ in range(2):
        await adopted(keeper, built, api)
        problem = keeper.facts["x-gossip_router"].problem
        assert problem is not None
        assert (problem.reason, problem.transient) == ("ObjectConflict", False)
        assert 'GossipRouter "x"' in problem.message
        assert 'rename Router "x-gossip"' in problem.message
    assert keeper.facts["x_gossip"].problem is None
    (reference,) = api.objects["x-gossip-certificates"]["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"]) == ("GossipRouter", "x")


async def adopted(keeper: Keeper, built: NamespaceModel, api: Api | None = None) -> object:
    return await keeper.adopt(built, api.live() if api is not None else {}, [], NOW)
