"""LinkRoutes become sections of every router of the network, and only what is right of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.configurations import configs
from tests.unit.operator.support import connector, link_route, model, router

from isthmus_operator.render import plan
from isthmus_router.config.model import LinkRouteDirection
from isthmus_router.core.patterns import normal_pattern

BROKER = connector("broker", "west", ("mq.example", 5672), "route-container")
NETWORK = [
    router("west", replicas=2),
    router("east"),
    router("shop", mode="edge"),
    router("lonely"),
    connector("west-east", "west", "east", "inter-router"),
    connector("shop-east", "shop", "east", "edge"),
    connector("shop-cache", "shop", "lonely", "normal"),
    BROKER,
]


def rendered(
    *routes: dict[str, Any], network: list[dict[str, Any]] = NETWORK
) -> dict[str, list[tuple[str, str]]]:
    """Router id to the names of its sections, with what they call the connection or container."""
    return {
        name: [(item.name or "", item.connection or item.container_id or "") for item in config.link_routes]
        for name, config in configs(*network, *routes).items()
    }


def findings(
    *routes: dict[str, Any], network: list[dict[str, Any]] = NETWORK
) -> list[tuple[str, str, str, bool]]:
    found = plan(model(*network, *routes)).findings
    return [
        (item.name, item.reason, item.message, item.in_effect) for item in found if item.kind == "LinkRoute"
    ]


def test_every_router_of_the_network_knows_it_and_no_other_one() -> None:
    known = [("b2", "broker")]
    route = link_route("b2", prefix="b2", connector="broker")
    assert rendered(route) == {
        "west-0": known,
        "west-1": known,
        "east-0": known,
        "shop-0": known,
        "lonely-0": [],
    }
    assert findings(route) == []


def test_all_of_it_reaches_the_configuration() -> None:
    routes = [
        link_route("a", prefix="b2", direction="in", connector="broker", addExternalPrefix="q."),
        link_route("b", pattern="x.*.#", direction="out", containerId="mq", delExternalPrefix="x."),
    ]
    config = configs(*NETWORK, *routes)["east-0"]
    assert config.warnings == (), "that the connector is another router's is as it should be"
    found = config.link_routes
    assert [
        (item.prefix, item.pattern, item.direction, item.connection, item.container_id) for item in found
    ] == [
        ("b2", None, LinkRouteDirection.IN, "broker", None),
        (None, "x.*.#", LinkRouteDirection.OUT, None, "mq"),
    ]
    assert [(item.add_external_prefix, item.del_external_prefix) for item in found] == [
        ("q.", None),
        (None, "x."),
    ]


def test_a_container_may_connect_to_any_router_of_the_namespace() -> None:
    assert all(rendered(link_route("b2", prefix="b2", containerId="mq")).values())


def test_routers_can_be_chosen_and_the_connectors_own_is_always_one() -> None:
    chosen = rendered(link_route("b2", prefix="b2", connector="broker", routers=["lonely"]))
    assert {name for name, found in chosen.items() if found} == {"west-0", "west-1", "lonely-0"}
    chosen = rendered(link_route("b2", prefix="b2", containerId="mq", routers=["east"]))
    assert {name for name, found in chosen.items() if found} == {"east-0"}


def test_a_chosen_router_that_does_not_exist_is_named_and_the_others_have_it() -> None:
    route = link_route("b2", prefix="b2", connector="broker", routers=["east", "shopp"])
    message = 'Router "shopp" (spec.routers) does not exist (did you mean "shop"?)'
    assert findings(route) == [("b2", "Pending", message, True)]
    assert {name for name, found in rendered(route).items() if found} == {"west-0", "west-1", "east-0"}


def test_a_listener_of_another_router_with_the_connectors_name_is_not_meant() -> None:
    listeners = [
        {"name": "broker", "role": "route-container", "port": 7000},
        {"name": "mesh", "role": "inter-router", "port": 7001},
    ]
    network = [item for item in NETWORK if item["metadata"]["name"] != "east"]
    found = rendered(
        link_route("b2", prefix="b2", direction="in", connector="broker"),
        network=[*network, router("east", listeners=listeners)],
    )
    assert found["west-0"] == [("b2", "broker")]
    assert found["east-0"] == [("b2", "west/broker")]


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        (
            {"connector": "brokr"},
            "Pending",
            'Connector "brokr" (spec.connector) does not exist (did you mean "broker"?)',
        ),
        ({"connector": "x"}, "Pending", 'Connector "x" (spec.connector) does not exist'),
        (
            {"connector": "west-east"},
            "RoleMismatch",
            'Connector "west-east" (spec.connector) has role inter-router; a LinkRoute needs one of role '
            "route-container",
        ),
        (
            {"connector": "orphan"},
            "Pending",
            'Router "gone" of Connector "orphan" (spec.connector) does not exist',
        ),
    ],
)
def test_what_cannot_be_done_is_a_finding_and_disturbs_nothing(
    spec: dict[str, Any], reason: str, message: str
) -> None:
    network = [*NETWORK, connector("orphan", "gone", ("mq.example", 5672), "route-container")]
    bad, good = link_route("bad", prefix="b3", **spec), link_route("b2", prefix="b2", connector="broker")
    assert findings(bad, good, network=network) == [("bad", reason, message, False)]
    assert all(
        [item[0] for item in sections if item[0] == "bad"]
        for sections in rendered(bad, network=network).values()
    ), "its links are refused meanwhile"
    others = {
        name: [item for item in sections if item[0] != "bad"]
        for name, sections in rendered(bad, good, network=network).items()
    }
    assert others == rendered(good, network=network)


def test_without_its_connector_links_are_refused_and_do_not_become_those_of_messages() -> None:
    """Wherever that would be: a client that waits, or whose messages others get, would be worse."""
    route = link_route("b2", prefix="b2", connector="broker")
    before = [item for item in NETWORK if item is not BROKER]
    found = rendered(route, network=before)
    assert set(map(tuple, found.values())) == {(("b2", "broker"),)}
    assert all(found.values())
    chosen = link_route("b2", prefix="b2", connector="broker", routers=["shop"])
    assert [name for name, sections in rendered(chosen, network=before).items() if sections] == ["shop-0"]


def test_it_is_well_as_soon_as_the_connector_is_there() -> None:
    route = link_route("b2", prefix="b2", connector="broker")
    before = [item for item in NETWORK if item is not BROKER]
    assert [reason for _, reason, _, _ in findings(route, network=before)] == ["Pending"]
    assert findings(route, network=NETWORK) == []


def test_a_connector_that_cannot_connect_yet_changes_nothing_about_who_knows_it() -> None:
    secret = connector(
        "broker", "west", ("mq.example", 5672), "route-container",
        sasl={"username": "u", "passwordSecretRef": {"name": "missing"}},
    )  # fmt: skip
    route = link_route("b2", prefix="b2", connector="broker")
    network = [item for item in NETWORK if item is not BROKER]
    assert rendered(route, network=[*network, secret]) == rendered(route)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"prefix": "b2"}, {"prefix": "b2"}),
        ({"prefix": "b2"}, {"prefix": "b2", "addExternalPrefix": "x"}),
        ({"prefix": "b2.queues"}, {"prefix": "b2/queues/"}),
        ({"prefix": "b2"}, {"pattern": "b2.#"}),
        ({"pattern": "b2.#.*"}, {"pattern": "b2/*/#/#"}),
    ],
)
def test_the_older_of_two_that_say_the_same_counts(first: dict[str, Any], second: dict[str, Any]) -> None:
    old = link_route("z", meta={"creationTimestamp": "2026-01-01T00:00:00Z"}, connector="broker", **first)
    new = link_route("a", meta={"creationTimestamp": "2026-01-02T00:00:00Z"}, connector="broker", **second)
    assert rendered(old, new) == rendered(old)
    ((name, reason, message, in_effect),) = findings(old, new)
    assert (name, reason, in_effect) == ("a", "LinkRouteConflict", False)
    assert message.startswith('LinkRoute "z" already routes links with direction in and out of p')
    assert message.endswith("to the same container; change or delete one of the two")


def test_a_direction_that_another_one_has_is_left_out_and_the_other_stays() -> None:
    one = link_route("one", prefix="b2", direction="in", connector="broker")
    two = link_route("two", prefix="b2", connector="broker")
    found = configs(*NETWORK, one, two)["west-0"].link_routes
    assert [(item.name, str(item.direction)) for item in found] == [("one", "in"), ("two", "out")]
    assert [(name, in_effect) for name, _, _, in_effect in findings(one, two)] == [("two", True)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"connector": "broker"}, {"containerId": "mq"}),
        ({"connector": "broker", "direction": "in"}, {"connector": "broker", "direction": "out"}),
        ({"containerId": "mq", "routers": ["east"]}, {"containerId": "mq", "routers": ["west"]}),
        ({"connector": "broker"}, {"connector": "broker", "prefix": "b2.queues"}),
        ({"connector": "broker"}, {"connector": "broker", "prefix": None, "pattern": "b2"}),
    ],
)
def test_several_containers_directions_and_longer_prefixes_go_together(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    routes = [
        link_route(
            name, **{key: value for key, value in {"prefix": "b2", **spec}.items() if value is not None}
        )
        for name, spec in (("a", first), ("b", second))
    ]
    assert findings(*routes) == []
    assert {item.name for config in configs(*NETWORK, *routes).values() for item in config.link_routes} == {
        "a",
        "b",
    }


tokens = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=4)


@given(tokens, tokens)
def test_patterns_are_the_same_where_the_router_finds_them_the_same(one: list[str], two: list[str]) -> None:
    first, second = ".".join(one), "/".join(two)
    conflict = findings(
        link_route("a", pattern=first, connector="broker"),
        link_route("b", pattern=second, connector="broker"),
    )
    assert bool(conflict) == (normal_pattern(first) == normal_pattern(second))
