"""Both forms of the file are read into the same typed configuration."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from isthmus_router.config import (
    Configuration,
    Direction,
    Distribution,
    Mode,
    parse,
)
from isthmus_router.config.model import (
    AddressConfig,
    AutoLinkConfig,
    ConnectorConfig,
    LinkRouteConfig,
    ListenerConfig,
    LogConfig,
    NetworkConfig,
    PolicyConfig,
    RelayAddressConfig,
    RelayRemoteConfig,
    RelaySiteConfig,
    RouterConfig,
    SiteConfig,
    SslProfileConfig,
    VhostConfig,
)
from isthmus_router.config.schema import SECTIONS
from isthmus_router.config.sources import SystemSources
from isthmus_router.core.roles import Role, StripAnnotations

MODELS = {
    "router": RouterConfig,
    "network": NetworkConfig,
    "site": SiteConfig,
    "sslProfile": SslProfileConfig,
    "listener": ListenerConfig,
    "connector": ConnectorConfig,
    "address": AddressConfig,
    "linkRoute": LinkRouteConfig,
    "autoLink": AutoLinkConfig,
    "relaySite": RelaySiteConfig,
    "relayRemote": RelayRemoteConfig,
    "relayAddress": RelayAddressConfig,
    "policy": PolicyConfig,
    "vhost": VhostConfig,
    "log": LogConfig,
}

CONF = """
# An interior router between clients, another router and a broker.
router {
    mode: interior            # comment
    id: east
}

ssl-profile {
    name: network
    protocols: TLSv1.2 TLSv1.3
    ordinal: 4
    oldestValidOrdinal: 2
}

listener {
    name: clients
    port: amqp
    saslMechanisms: PLAIN ANONYMOUS
    stripAnnotations: in
    http: no
    openProperties: {
        "site": "a}b",
        # comment
        "limits": {"links": [1, 2]}
    }
}
listener {
    host: ::
    port: 55672
    role: inter-router
    ssl-profile: network
    requireSsl: on
    max_frame_size: 65536
}
connector {
    name: broker
    host: broker.example
    port: amqps
    role: route-container
    saslUsername: router
    saslPassword: pass:s3cret
}
address {
    pattern: orders.*.#
    distribution: multicast
    priority: 7
}
address {
    prefix: jobs
    distribution: 1
}
linkRoute {
    prefix: queue
    dir: in
    connection: broker
}
router.config.autoLink {
    addr: events
    direction: out
    containerId: b1
    externalAddr: topic/events
}
log {
    module: ROUTER_LS
    enable: debug+
}
"""


@pytest.fixture(scope="module")
def configuration() -> Configuration:
    return parse(CONF, "east.conf")


def test_router(configuration: Configuration) -> None:
    assert configuration.router.mode is Mode.INTERIOR
    assert configuration.router.id == "east"
    assert configuration.router.hello_interval_seconds == 1
    assert configuration.router.default_distribution is Distribution.BALANCED


def test_listeners(configuration: Configuration) -> None:
    clients, routers = configuration.listeners
    assert (clients.name, clients.host, clients.port, clients.role) == ("clients", "", 5672, Role.NORMAL)
    assert clients.sasl_mechanisms == ("PLAIN", "ANONYMOUS")
    assert clients.strip_annotations is StripAnnotations.IN
    assert clients.open_properties == {"site": "a}b", "limits": {"links": [1, 2]}}
    assert clients.identity == "listener/:5672:clients"
    assert routers.name == routers.identity == "listener/:::55672"
    assert (routers.role, routers.ssl_profile, routers.require_ssl) == (Role.INTER_ROUTER, "network", True)
    assert (routers.max_frame_size, routers.max_session_frames, routers.cost) == (65536, None, 1)


def test_connector(configuration: Configuration) -> None:
    (connector,) = configuration.connectors
    assert (connector.host, connector.port) == ("broker.example", 5671)
    assert connector.sasl_password == "s3cret"
    assert "s3cret" not in repr(configuration)


def test_addresses_and_links(configuration: Configuration) -> None:
    orders, jobs = configuration.addresses
    assert (orders.pattern, orders.distribution, orders.priority) == ("orders.*.#", Distribution.MULTICAST, 7)
    assert (jobs.prefix, jobs.distribution, jobs.priority) == ("jobs", Distribution.CLOSEST, None)
    (route,) = configuration.link_routes
    assert (route.prefix, route.direction, route.connection) == ("queue", Direction.IN, "broker")
    (link,) = configuration.auto_links
    assert (link.address, link.external_address, link.container_id) == ("events", "topic/events", "b1")
    (log,) = configuration.logs
    assert (log.module, log.enable) == ("ROUTER_LS", "debug+")


def test_ssl_profile(configuration: Configuration) -> None:
    profile = configuration.ssl_profiles["network"]
    assert profile.protocols == ("TLSv1.2", "TLSv1.3")
    assert (profile.ordinal, profile.oldest_valid_ordinal) == (4, 2)


def test_json_with_comments_and_typed_values() -> None:
    text = """
    # comment
    [
      ["router", {"mode": "edge", "id": "e1"}],
      # comment
      ["connector", {"port": 5671, "role": "edge", "verifyHostname": false, "saslMechanisms": ["EXTERNAL"]}],
      ["io.skupper.router.router.config.address", {"prefix": "a", "priority": -1}]
    ]
    """
    configuration = parse(text, "e1.json")
    (connector,) = configuration.connectors
    assert (connector.port, connector.role, connector.verify_hostname) == (5671, Role.EDGE, False)
    assert connector.sasl_mechanisms == ("EXTERNAL",)
    assert configuration.addresses[0].priority is None


def test_nothing_configured_is_a_standalone_router_with_a_random_id() -> None:
    first, second = parse("", "empty"), parse("[]", "empty")
    assert first.router.mode is Mode.STANDALONE
    assert first.router.id.startswith("Standalone_")
    assert len(first.router.id) == len("Standalone_") + 15
    assert first.router.id != second.router.id


def test_router_id_override_and_default() -> None:
    text = "router {\n id: shared\n}\n"
    assert parse(text, "f", "shared-2").router.id == "shared-2"
    assert parse(text, "f", default_router_id="other").router.id == "shared"
    assert parse("", "f", default_router_id="other").router.id == "other"


def test_inert_attributes_are_accepted_with_a_warning() -> None:
    configuration = parse("router {\n debugDumpFile: x\n dropTcpConnections: true\n}\n", "f.conf")
    assert configuration.router.debug_dump_file == "x"
    (warning,) = configuration.warnings
    assert warning.startswith("f.conf:2: router, attribute debugDumpFile: accepted, without effect")


def test_a_link_route_without_a_container_is_one_that_others_have() -> None:
    (route,) = parse("linkRoute {\n    prefix: a\n    direction: both\n}\n", "f").link_routes
    assert (route.prefix, route.container_id, route.connection) == ("a", None, None)


def test_a_link_route_of_nearly_a_connection_of_this_router_is_accepted_with_a_warning() -> None:
    """That of another router may be called anything else."""
    text = "connector {\n name: broker\n role: route-container\n}\n"
    text += "linkRoute {\n prefix: a\n direction: in\n connection: %s\n}\n"
    for name in ("broker", "warehouse"):
        assert parse(text % name, "f.conf").warnings == ()
    assert parse(text % "brokr", "f.conf").warnings == (
        "f.conf:8: linkRoute, attribute connection: no listener or connector here is named 'brokr'; "
        "did you mean 'broker'?",
    )


def test_an_auto_link_of_a_connection_that_nobody_has_is_accepted_with_a_warning() -> None:
    text = "connector {\n name: broker\n role: route-container\n}\n"
    text += "autoLink {\n address: a\n direction: in\n connection: %s\n}\n"
    assert parse(text % "broker", "f.conf").warnings == ()
    assert parse(text % "brker", "f.conf").warnings == (
        "f.conf:8: autoLink, attribute connection: no listener or connector is named 'brker'; "
        "did you mean 'broker'?",
    )


def test_a_sasl_configuration_that_is_not_there_is_accepted_with_a_warning(tmp_path: Path) -> None:
    def warnings(folder: Path) -> tuple[str, ...]:
        text = f"router {{\n saslConfigDir: {folder}\n saslConfigName: mine\n}}\n"
        return parse(text, "f", sources=SystemSources()).warnings

    told = "f:2: router, attribute saslConfigDir: "
    (warning,) = warnings(tmp_path / "none")
    assert warning.startswith(
        f"{told}'{tmp_path}/none' cannot be read: No such file or directory; users with"
    )
    (warning,) = warnings(tmp_path)
    assert warning.startswith(
        f"{told}there is no 'mine.conf' in '{tmp_path}'; users with passwords are looked"
    )
    (tmp_path / "mine.conf").touch()
    assert warnings(tmp_path) == ()


def test_a_sasl_mechanism_that_nobody_knows_is_accepted_with_a_warning() -> None:
    text = "listener {\n saslMechanisms: external %s\n}\n"
    assert parse(text % "SCRAM-SHA-256", "f.conf").warnings == ()
    assert parse(text % "SCRAM-SHA256", "f.conf").warnings == (
        "f.conf:2: listener, attribute saslMechanisms: 'SCRAM-SHA256' is not known as a mechanism; "
        "did you mean 'SCRAM-SHA-256'?",
    )


def test_the_names_of_mechanisms_are_taken_in_upper_case() -> None:
    (listener,) = parse("listener {\n saslMechanisms: external plain\n}\n", "f.conf").listeners
    assert listener.sasl_mechanisms == ("EXTERNAL", "PLAIN")


def test_every_field_of_the_typed_form_is_an_attribute() -> None:
    for name, section in SECTIONS.items():
        attributes = {a.field for a in section.attributes if not a.unsupported}
        assert {f.name for f in fields(MODELS[name])} - {"files_digest"} == attributes, name
