"""A container that calls itself like another one has no links of it that its own policy does not allow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.container import Container
from tests.integration.support.passwords import PASSWORD, use_database
from tests.integration.support.policies import ALICE, BOB, CAROL, ENABLED, group, login, vhost
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, Section, listener

SECTIONS: list[Section] = [
    ("linkRoute", {"prefix": "queues", "direction": "both", "containerId": "broker"}),
    (
        "linkRoute",
        {"prefix": "named", "direction": "in", "containerId": "broker", "connection": "containers"},
    ),
    ("autoLink", {"address": "orders", "direction": "out", "containerId": "broker"}),
    ("autoLink", {"address": "replies", "direction": "in", "containerId": "broker"}),
]
BROKER = {"sources": "queues*, named*, orders", "targets": "queues*, replies"}
"""What a broker may receive and send that has all of these."""
EVENTS = ("link_route.withheld", "auto_link.withheld")

Connect = Callable[[str], Container]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def router(routers: Routers, passwords: Path, port: int) -> Router:
    """Alice is a client, Bob a broker, and Carol a container that has other addresses."""
    groups = {
        "clients": group(ALICE),
        "brokers": group(BOB, **BROKER),
        "others": group(CAROL, sources="invoices", targets="invoices"),
    }
    login_needed = {"authenticatePeer": True, "saslMechanisms": "PLAIN"}
    containers = listener(port, "route-container", name="containers", **login_needed)
    sections = [ENABLED, vhost(groups=groups), containers, *SECTIONS]
    router = routers.add("A", *sections, **login_needed)
    use_database(router, passwords)
    return router.start()


@pytest.fixture
def connect(clients: Clients, router: Router, port: int) -> Connect:
    def container(user: str) -> Container:
        return Container(clients, port, "broker", user=user, password=PASSWORD, mechanisms="PLAIN")

    return container


def shown(router: Router) -> dict[str, str]:
    """The states of the auto-links."""
    return {row["address"]: row["state"] for row in router.status()["autoLinks"]}


def set_group(router: Router, name: str, **attributes: str) -> None:
    (policy,) = (section for kind, section in router.sections if kind == "vhost")
    policy["groups"][name].update(attributes)
    router.configure()


def test_links_go_to_a_container_only_as_far_as_its_policy_allows(
    clients: Clients, router: Router, connect: Connect
) -> None:
    impostor = connect(CAROL)
    for event in EVENTS:
        router.await_log(f'"event":"{event}"', f'"user":"{CAROL}"')
    broker = connect(BOB)
    clients.until(lambda: all(state == "active" for state in shown(router).values()), "attached")
    alice = login(clients, router, ALICE)
    for number in range(8):
        sender = alice.sender(f"queues.{number}").await_credit()
        assert sender.deliver("x") == "accepted"
        alice.attached(alice.receiver(f"queues.{number}").link)
        alice.attached(alice.sender(f"named.{number}").link)
    orders = alice.sender("orders").await_credit()
    assert orders.deliver("x") == "accepted"
    assert not impostor.attached_links
    assert len(broker.attached_links) == 26


def test_a_changed_policy_takes_and_gives_the_links(
    clients: Clients, router: Router, connect: Connect
) -> None:
    broker = connect(BOB)
    clients.until(lambda: set(shown(router).values()) == {"active"}, "auto-links are attached")
    alice = login(clients, router, ALICE)
    kept = alice.sender("named.a").await_credit()
    lost = alice.sender("queues.a").await_credit()
    set_group(router, "brokers", sources="named*", targets="replies")
    assert alice.refusal(lost.link).name == "qd:routed-link-lost"
    router.await_status(
        lambda _: shown(router) == {"orders": "inactive", "replies": "active"}, "one auto-link is gone"
    )
    assert alice.refusal(alice.sender("queues.b").link).name == "qd:no-route-to-dest"
    assert kept.deliver("x") == "accepted"
    set_group(router, "brokers", **BROKER)
    clients.until(lambda: set(shown(router).values()) == {"active"}, "both are attached again")
    assert alice.sender("queues.b").await_credit().deliver("x") == "accepted"
    assert broker.opened
