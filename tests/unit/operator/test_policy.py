"""The policy of a Router: its sections in the configuration, and what keeps it from doing what it says."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.support import model, router

from isthmus_operator.render import plan
from isthmus_operator.render.config import config_bytes
from isthmus_operator.render.policy import policy_sections
from isthmus_operator.resources.policy import RouterPolicy
from isthmus_router.config import Configuration, parse

PASSWORDS = {
    "listeners": [
        {
            "name": "amqp",
            "port": 5672,
            "sasl": {"mechanisms": ["SCRAM-SHA-256"], "usersSecretRef": {"name": "users"}},
        },
    ]
}


def configuration(policy: dict[str, Any]) -> Configuration:
    """What a router reads of it."""
    sections = policy_sections(RouterPolicy.model_validate(policy))
    return parse(config_bytes(sections).decode(), "rendered")


def findings(**spec: Any) -> list[tuple[str, str]]:
    found = plan(model(router("shop", mode="edge", **spec))).findings_of("Router", "shop")
    return [(item.reason, item.message) for item in found]


def test_groups() -> None:
    shops = {
        "name": "shops",
        "users": ["north@shops", "CN=south,O=acme"],
        "sources": ["offers/#", "${user}/*"],
        "targets": ["orders"],
        "remoteHosts": ["10.0.0.0/8"],
        "maxReceivers": 10,
        "checkUserId": True,
    }
    read = configuration({"groups": [shops], "defaultGroup": {"sources": ["offers"]}, "maxConnections": 100})
    assert (read.policy.enable_vhost_policy, read.policy.max_connections) == (True, 100)
    (vhost,) = read.vhosts
    assert (vhost.hostname, vhost.allow_unknown_user) == ("$default", True)
    group = vhost.groups["shops"]
    assert group.users == ("north@shops", "CN=south,O=acme")
    assert (group.source_pattern, group.target_pattern) == (("offers/#", "${user}/*"), ("orders",))
    assert (group.max_receivers, group.max_senders) == (10, 2**31 - 1)
    assert (group.allow_user_id_proxy, vhost.groups["$default"].allow_user_id_proxy) == (False, True)
    assert vhost.groups["$default"].remote_hosts == ("*",)


def test_without_a_default_group_others_may_not_connect() -> None:
    (vhost,) = configuration({"groups": [{"name": "a", "users": ["u"]}]}).vhosts
    assert not vhost.allow_unknown_user
    assert list(vhost.groups) == ["a"]


def test_a_user_of_several_groups_belongs_to_the_first() -> None:
    groups = [{"name": "a", "users": ["u", "v"]}, {"name": "b", "users": ["v", "w"]}]
    (vhost,) = configuration({"groups": groups}).vhosts
    assert [group.users for group in vhost.groups.values()] == [("u", "v"), ("w",)]


def test_a_group_allows_only_what_it_lists() -> None:
    listed = {"name": "brokers", "users": ["b"], "allowWaypointLinks": True, "allowFallbackLinks": True}
    (vhost,) = configuration({"groups": [listed], "defaultGroup": {"sources": ["#"]}}).vhosts
    brokers, others = vhost.groups["brokers"], vhost.groups["$default"]
    assert (brokers.allow_waypoint_links, brokers.allow_fallback_links) == (True, True)
    assert (others.allow_waypoint_links, others.allow_fallback_links) == (False, False)
    for group in (brokers, others):
        assert not group.allow_dynamic_link_routes
        assert not group.allow_admin_status_update


def test_users_that_nobody_can_be() -> None:
    groups = [{"name": "a", "users": ["u"]}]
    ((reason, message),) = findings(policy={"groups": groups})
    assert reason == "PolicyUnusable"
    assert "no listener of role normal or route-container authenticates its clients" in message
    assert findings(policy={"groups": [{"name": "a", "users": ["anonymous"]}]}) == []
    assert findings(policy={"defaultGroup": {}}) == []
    reasons = [reason for reason, _ in findings(policy={"groups": groups}, **PASSWORDS)]
    assert "PolicyUnusable" not in reasons


def test_hosts_that_are_none_are_left_out() -> None:
    policy = {"defaultGroup": {"remoteHosts": ["10.0.0.1", "10.0.0.300", "10.0.0.9-10.0.0.1"]}}
    assert configuration(policy).vhosts[0].groups["$default"].remote_hosts == ("10.0.0.1",)
    ((reason, message),) = findings(policy=policy)
    assert reason == "PolicyUnusable"
    assert "defaultGroup: remoteHosts '10.0.0.300', '10.0.0.9-10.0.0.1' left out" in message


PATTERNS = st.lists(
    st.sampled_from(["a", "a/*", "#", "${user}/#", "b.c", "x/${user}"]), max_size=3, unique=True
)
RULES = st.fixed_dictionaries(
    {},
    optional={
        "sources": PATTERNS,
        "targets": PATTERNS,
        "remoteHosts": st.lists(
            st.text("0123456789abcf:./-", min_size=1, max_size=12).filter(
                lambda t: t[0] not in "/-" and t[-1] not in "/-" and sum(map(t.count, "/-")) < 2
            ),
            min_size=1,
            max_size=3,
        ),
        "allowDynamicSource": st.booleans(),
        "allowWaypointLinks": st.booleans(),
        "allowFallbackLinks": st.booleans(),
        "maxSenders": st.integers(0, 2**31 - 1),
        "maxMessageSize": st.integers(1, 2**40),
    },
)
USERS = st.lists(st.text(min_size=2, max_size=5), min_size=1, max_size=3)


@given(st.lists(st.tuples(USERS, RULES), max_size=3), RULES)
def test_any_policy_is_one_that_routers_take(groups: list[Any], default: dict[str, Any]) -> None:
    named = [{"name": f"g{n}", "users": users, **rules} for n, (users, rules) in enumerate(groups)]
    read = configuration({"groups": named, "defaultGroup": default})
    assert read.vhosts[0].groups["$default"].source_pattern == tuple(default.get("sources", ()))
    assert json.dumps(
        policy_sections(RouterPolicy.model_validate({"groups": named, "defaultGroup": default}))
    )
