"""Resources become router instances whose configuration the router itself accepts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.configurations import Resolver, configs, read_back
from tests.unit.operator.support import connector, model, opaque_secret, router, tls_secret

from isthmus_operator.model import SecretView
from isthmus_operator.render import (
    HostTarget,
    config_bytes,
    instance_files,
    plan,
    router_config,
)
from isthmus_router.config import Configuration
from isthmus_router.core.access import ManagementLevel
from isthmus_router.core.roles import Role


def dialled(config: Configuration) -> set[tuple[str, str, int]]:
    return {(item.name, item.host, item.port) for item in config.connectors}


def findings(*manifests: dict[str, Any], secrets: Any = ()) -> list[tuple[str, str, str]]:
    return [(f.kind, f.name, f.reason) for f in plan(model(*manifests, secrets=secrets)).findings]


def test_an_interior_router_has_listeners_for_clients_routers_edges_and_health() -> None:
    config = configs(router("west"))["west-0"]
    assert config.router.mode == "interior"
    assert config.router.id == "west-0"
    assert {(item.name, item.role, item.port, item.http) for item in config.listeners} == {
        ("health", Role.NORMAL, 9090, True),
        ("amqp", Role.NORMAL, 5672, False),
        ("inter-router", Role.INTER_ROUTER, 55672, False),
        ("edge", Role.EDGE, 45672, False),
    }


def test_an_edge_router_listens_for_clients_only() -> None:
    config = configs(router("shop", mode="edge"))["shop-0"]
    assert [(item.name, item.port) for item in config.listeners] == [("health", 9090), ("amqp", 5672)]


def test_every_pair_of_interior_replicas_has_one_link() -> None:
    found = configs(router("west", replicas=4))
    pairs = {frozenset((name, item.host)) for name, config in found.items() for item in config.connectors}
    links = sum(len(config.connectors) for config in found.values())
    assert links == len(pairs) == 6
    assert dialled(found["west-2"]) == {("mesh/west-0", "west-0", 55672), ("mesh/west-1", "west-1", 55672)}


def test_interior_replicas_connect_to_two_and_wrap_around() -> None:
    found = configs(
        router("west", replicas=3),
        router("east", replicas=2),
        connector("we", "west", "east", "inter-router", cost=7),
    )
    links = {
        (name, item.name): item.host
        for name, config in found.items()
        for item in config.connectors
        if item.name.startswith("we")
    }
    assert links == {
        ("west-0", "we"): "east-0",
        ("west-0", "we/2"): "east-1",
        ("west-1", "we"): "east-1",
        ("west-1", "we/2"): "east-0",
        ("west-2", "we"): "east-0",
        ("west-2", "we/2"): "east-1",
    }
    assert {i.cost for c in found.values() for i in c.connectors if i.name.startswith("we")} == {7}


@pytest.mark.parametrize(("west", "east"), [(2, 2), (2, 3), (3, 2), (4, 4), (5, 3)])
def test_no_node_with_one_replica_of_each_parts_two_routers(west: int, east: int) -> None:
    found = configs(
        router("west", replicas=west),
        router("east", replicas=east),
        connector("we", "west", "east", "inter-router"),
    )
    links = {
        (name, item.host)
        for name, config in found.items()
        for item in config.connectors
        if item.name.startswith("we")
    }
    for dead_west in range(west):
        for dead_east in range(east):
            dead = {f"west-{dead_west}", f"east-{dead_east}"}
            assert any(not dead & set(link) for link in links), dead


def test_a_single_replica_is_connected_to_once() -> None:
    found = configs(
        router("west", replicas=2), router("east"), connector("we", "west", "east", "inter-router")
    )
    assert {name for config in found.values() for name, *_ in dialled(config)} == {"we", "mesh/west-0"}


def test_an_edge_router_connects_to_any_replica_of_the_interior() -> None:
    found = configs(
        router("west", replicas=2),
        router("shop", mode="edge", replicas=2),
        connector("up", "shop", "west", "edge"),
    )
    assert dialled(found["shop-0"]) == dialled(found["shop-1"]) == {("up", "west-any", 45672)}


def test_a_connector_to_a_host_keeps_the_host() -> None:
    planned = plan(
        model(router("west"), connector("broker", "west", ("mq.example", 5671), "route-container"))
    )
    (instance,) = planned.instances["west"]
    assert [item.target for item in instance.connectors] == [HostTarget("mq.example", 5671)]


def test_tls_and_passwords_become_files_beside_the_configuration() -> None:
    secrets = [tls_secret("server"), tls_secret("trust", "ca.crt"), opaque_secret("login", "password")]
    tls = {"secretName": "server", "requireClientCertificate": True, "minimumVersion": "TLSv1.3"}
    listeners = [{"name": "amqps", "port": 5671, "tls": tls}]
    link = connector(
        "broker",
        "west",
        ("mq", 5671),
        "normal",
        tls={"secretName": "trust", "verifyHostname": False},
        sasl={"username": "guest", "passwordSecretRef": {"name": "login"}},
    )
    config = configs(router("west", listeners=listeners), link, secrets=secrets)["west-0"]
    amqps = config.listeners[1]
    assert (amqps.require_ssl, amqps.authenticate_peer, amqps.sasl_mechanisms) == (True, True, ("EXTERNAL",))
    assert amqps.ssl_profile is not None
    assert config.ssl_profiles[amqps.ssl_profile].protocols == ("TLSv1.3",)
    (broker,) = config.connectors
    assert broker.sasl_password == "login password"
    assert broker.verify_hostname is False
    assert broker.ssl_profile is not None
    assert config.ssl_profiles[broker.ssl_profile].cert_file is None


def test_user_and_password_of_a_basic_auth_secret() -> None:
    link = connector(
        "broker", "west", ("mq.example", 5672), "route-container",
        sasl={"credentialsSecretRef": {"name": "login"}},
    )  # fmt: skip
    login = SecretView("login", {"username": b"app\n", "password": b"s3cret\r\n"})
    (instance,) = plan(model(router("west"), link, secrets=[login])).instances["west"]
    (broker,) = read_back(instance).connectors
    assert (broker.sasl_username, broker.sasl_password) == ("app", "s3cret")
    assert broker.sasl_mechanisms is None, "what the broker offers"
    assert "s3cret" not in config_bytes(router_config(instance, Resolver())).decode() + repr(instance)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, 'Secret "login" does not exist'),
        ({"password": b"p"}, 'Secret "login" has no key "username"; put it there'),
        ({"username": b"u"}, 'Secret "login" has no key "password"; put it there'),
        ({"username": b"u", "password": b""}, 'Secret "login" has no key "password"; put it there'),
        (
            {"username": b"u\nv", "password": b"p"},
            'Secret "login": key "username" must be one line of UTF-8 text',
        ),
        (
            {"username": b"u", "password": b"\xff"},
            'Secret "login": key "password" must be one line of UTF-8 text',
        ),
        (
            {"username": b"u" * 257, "password": b"p"},
            'Secret "login": key "username" has more than 256 characters',
        ),
    ],
)
def test_a_login_that_cannot_be_used_is_told(data: dict[str, bytes] | None, message: str) -> None:
    link = connector("b", "west", ("mq", 5672), "normal", sasl={"credentialsSecretRef": {"name": "login"}})
    secrets = [SecretView("login", data)] if data is not None else []
    planned = plan(model(router("west"), link, secrets=secrets))
    assert [item.message for item in planned.findings] == [message]
    assert planned.instances["west"][0].connectors == ()


def test_users_of_password_mechanisms() -> None:
    sasl = {"mechanisms": ["SCRAM-SHA-256"], "usersSecretRef": {"name": "users"}}
    found = router("west", listeners=[{"name": "amqp", "port": 5672, "sasl": sasl}])
    (instance,) = plan(model(found, secrets=[opaque_secret("users", "sasldb")])).instances["west"]
    config = read_back(instance)
    assert (config.router.sasl_config_dir, config.router.sasl_config_name) == ("/etc/isthmus", "isthmus-sasl")
    assert config.listeners[1].authenticate_peer
    files = instance_files(instance, Resolver())
    assert files["users-sasldb"] == b"users sasldb"
    assert b"sasldb_path: /etc/isthmus/users-sasldb" in files["isthmus-sasl.conf"]
    assert findings(found, secrets=[opaque_secret("users", "wrong")]) == [("Router", "west", "SecretInvalid")]


@pytest.mark.parametrize("stated", [False, True])
def test_passwords_in_clear_text_are_what_the_resource_states(stated: bool) -> None:
    users = {"mechanisms": ["SCRAM-SHA-256"], "usersSecretRef": {"name": "users"}}
    login = {"credentialsSecretRef": {"name": "login"}}
    if stated:
        users |= {"mechanisms": ["SCRAM-SHA-256", "PLAIN"], "allowPlainWithoutTls": True}
        login |= {"mechanisms": ["PLAIN"], "allowPlainWithoutTls": True}
    tls = {"tls": {"secretName": "server"}}
    listeners = [
        {"name": "clear", "port": 5672, "sasl": users},
        {"name": "secure", "port": 5671, "sasl": users, **tls},
    ]
    secrets = [
        opaque_secret("users", "sasldb"),
        opaque_secret("login", "username", "password"),
        tls_secret("server"),
    ]
    links = [
        connector("clear", "west", ("mq", 5672), "normal", sasl=login),
        connector("secure", "west", ("mq", 5671), "normal", sasl=login, **tls),
    ]
    (instance,) = plan(model(router("west", listeners=listeners), *links, secrets=secrets)).instances["west"]
    config = read_back(instance)
    ends = [*(item for item in config.listeners if not item.http), *config.connectors]
    found = [(item.name, item.allow_plain_without_tls) for item in ends]
    assert found == [("clear", stated), ("secure", False)] * 2


def test_replicas_cannot_mesh_through_a_listener_for_passwords_only() -> None:
    sasl = {"mechanisms": ["SCRAM-SHA-256"], "usersSecretRef": {"name": "users"}}
    listeners = [{"name": "ir", "role": "inter-router", "port": 55672, "sasl": sasl}]
    found = router("west", listeners=listeners, replicas=2)
    assert findings(found, secrets=[opaque_secret("users", "sasldb")]) == [("Router", "west", "MeshRefused")]


@pytest.mark.parametrize(("seconds", "expected"), [(None, (True, 10)), (3, (True, 3)), (0, (False, 10))])
def test_flow_records(seconds: int | None, expected: tuple[bool, int]) -> None:
    spec = {} if seconds is None else {"flowIntervalSeconds": seconds}
    found = configs(router("west", **spec))["west-0"].router
    assert (found.flow_records, found.flow_interval_seconds) == expected


def test_limits_of_a_listener_reach_the_router() -> None:
    limits = {
        "maxLinks": 7,
        "maxConnections": 6,
        "maxHandshakes": 8,
        "maxHandshakesPerHost": 9,
        "management": "none",
    }
    listeners = [{"name": "own", "port": 5672, **limits}, {"name": "default", "port": 5673}]
    found = configs(router("west", listeners=listeners))["west-0"].listeners
    own, default = (next(item for item in found if item.name == name) for name in ("own", "default"))
    assert (own.max_links, own.max_handshakes, own.max_handshakes_per_host) == (7, 8, 9)
    assert (own.max_connections, default.max_connections) == (6, None)
    assert own.management is ManagementLevel.NONE
    assert (default.max_links, default.max_handshakes, default.max_handshakes_per_host) == (None, 1024, 512)
    assert default.management is None


def test_clients_cannot_change_what_the_resources_say() -> None:
    assert configs(router("west"))["west-0"].router.management_read_only


def test_addresses_site_and_log_levels_reach_the_router() -> None:
    addresses = [
        {"prefix": "news", "distribution": "multicast"},
        {"pattern": "a.*.b", "distribution": "closest"},
    ]
    log = [{"module": "DEFAULT", "level": "debug"}]
    config = configs(router("west", addresses=addresses, site="Berlin-1", log=log))["west-0"]
    assert [(a.prefix, a.pattern, str(a.distribution)) for a in config.addresses] == [
        ("news", None, "multicast"),
        (None, "a.*.b", "closest"),
    ]
    assert config.site.name == "Berlin-1"
    assert [(item.module, item.enable) for item in config.logs] == [("DEFAULT", "debug+")]


@pytest.mark.parametrize(
    ("manifests", "expected"),
    [
        ([connector("c", "west", ("h", 1), "normal")], ("Connector", "c", "Pending")),
        ([router("west"), connector("c", "west", "east", "inter-router")], ("Connector", "c", "Pending")),
        (
            [router("west"), router("east", replicas=0), connector("c", "west", "east", "inter-router")],
            ("Connector", "c", "Pending"),
        ),
        (
            [router("west"), router("shop", mode="edge"), connector("c", "shop", "west", "inter-router")],
            ("Connector", "c", "RoleMismatch"),
        ),
        (
            [router("west"), router("east"), connector("c", "west", "east", "edge")],
            ("Connector", "c", "RoleMismatch"),
        ),
        (
            [router("west"), router("shop", mode="edge"), connector("c", "west", "shop", "inter-router")],
            ("Connector", "c", "RoleMismatch"),
        ),
        (
            [router("west"), connector("c", "west", ("h", 1), "normal", tls={"secretName": "gone"})],
            ("Connector", "c", "SecretNotFound"),
        ),
        (
            [router("west", listeners=[{"name": "amqps", "port": 5671, "tls": {"secretName": "gone"}}])],
            ("Router", "west", "SecretNotFound"),
        ),
        (
            [router("west", listeners=[{"name": "amqps", "port": 5671, "tls": {"secretName": "half"}}])],
            ("Router", "west", "SecretInvalid"),
        ),
        (
            [
                router(
                    "west", listeners=[{"name": "edge", "role": "edge", "port": 45672, "exposure": "None"}]
                ),
                router("shop", mode="edge"),
                connector("c", "shop", "west", "edge"),
            ],
            ("Connector", "c", "ListenerNotExposed"),
        ),
    ],
)
def test_what_cannot_be_done_is_a_finding_and_the_rest_runs(
    manifests: list[dict[str, Any]], expected: tuple[str, str, str]
) -> None:
    secrets = [tls_secret("half", "tls.crt")]
    assert findings(*manifests, secrets=secrets) == [expected]
    assert all(not config.connectors for config in configs(*manifests, secrets=secrets).values())


def test_one_sided_tls_is_named_before_it_fails_on_the_wire() -> None:
    secure = [{"name": "ir", "role": "inter-router", "port": 55671, "tls": {"secretName": "server"}}]
    manifests = [
        router("west"),
        router("east", listeners=secure),
        connector("c", "west", "east", "inter-router"),
    ]
    assert findings(*manifests, secrets=[tls_secret("server")]) == [("Connector", "c", "TlsMismatch")]


def test_a_secret_in_the_model_never_shows_in_a_representation() -> None:
    built = model(router("west"), secrets=[tls_secret("server")])
    listeners = [{"name": "amqps", "port": 5671, "tls": {"secretName": "server"}}]
    planned = plan(model(router("west", listeners=listeners), secrets=[tls_secret("server")]))
    assert "PRIVATE KEY" not in repr(built)
    assert "PRIVATE KEY" not in repr(planned)


def test_options_of_addresses() -> None:
    addresses = [
        {"prefix": "urgent", "distribution": "balanced", "priority": 9, "resendReleased": True},
        {"prefix": "plain", "distribution": "closest"},
    ]
    config = configs(router("west", addresses=addresses))["west-0"]
    assert config.warnings == ()
    options = [(item.prefix, item.priority, item.resend_released) for item in config.addresses]
    assert options == [("urgent", 9, True), ("plain", None, False)]


def test_auto_links_and_phases() -> None:
    addresses = [
        {"prefix": "orders", "distribution": "balanced", "waypoint": True},
        {"pattern": "a.#", "distribution": "closest", "ingressPhase": 1, "egressPhase": 3},
    ]
    links = [
        {"address": "orders", "direction": "out", "externalAddress": "queue"},
        {"address": "orders", "direction": "in", "phase": 1},
    ]
    config = configs(
        router("west", addresses=addresses),
        connector("mq", "west", ("mq.example", 5672), "route-container", autoLinks=links),
    )["west-0"]
    assert config.warnings == ()
    assert [item.phases for item in config.addresses] == [(0, 1), (1, 3)]
    (broker,) = config.connectors
    assert broker.role is Role.ROUTE_CONTAINER
    assert [
        (item.connection, item.address, item.direction, item.external_address, item.phase)
        for item in config.auto_links
    ] == [("mq", "orders", "out", "queue", None), ("mq", "orders", "in", None, 1)]
