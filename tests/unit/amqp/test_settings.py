"""What sections of the configuration ask for, with the defaults that hold without them."""

from __future__ import annotations

import pytest

from isthmus_router.amqp.settings import (
    CLIENT_LINKS,
    EDGE_CONNECTIONS,
    ROUTER_CONNECTIONS,
    ROUTER_LINKS,
    connector_settings,
    listener_settings,
)
from isthmus_router.config.loader import parse


@pytest.mark.parametrize(
    ("role", "most"),
    [
        ("normal", CLIENT_LINKS),
        ("inter-router", ROUTER_LINKS),
        ("edge", ROUTER_LINKS),
        ("route-container", ROUTER_LINKS),
    ],
)
def test_a_listener_bounds_the_links_of_a_peer_with_every_role(role: str, most: int) -> None:
    sections = "\n".join(
        f"listener {{\n name: {name}\n port: {port}\n role: {role}\n {limit}\n}}"
        for name, port, limit in (("default", 5671, ""), ("stated", 5672, "maxLinks: 7"))
    )
    configuration = parse(f"router {{\n mode: interior\n id: A\n}}\n{sections}\n", "f")
    links = [listener_settings(config, configuration).max_links for config in configuration.listeners]
    assert links == [most, 7]


@pytest.mark.parametrize(
    ("role", "most"),
    [("normal", 0), ("inter-router", ROUTER_CONNECTIONS), ("edge", EDGE_CONNECTIONS), ("route-container", 0)],
)
def test_a_listener_bounds_its_connections(role: str, most: int) -> None:
    sections = "\n".join(
        f"listener {{\n name: {name}\n port: {port}\n role: {role}\n {limit}\n}}"
        for name, port, limit in (("default", 5671, ""), ("stated", 5672, "maxConnections: 7"))
    )
    configuration = parse(f"router {{\n mode: interior\n id: A\n}}\n{sections}\n", "f")
    found = [listener_settings(config, configuration).max_connections for config in configuration.listeners]
    assert found == [most, 7]


def test_a_connector_bounds_the_links_of_its_peer() -> None:
    text = "router {\n mode: edge\n id: E\n}\nconnector {\n name: c\n port: 5671\n role: edge\n}\n"
    configuration = parse(text, "f")
    [config] = configuration.connectors
    assert connector_settings(config, configuration).max_links == ROUTER_LINKS
