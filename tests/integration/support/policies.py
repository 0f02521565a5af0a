"""Routers with a policy, and clients with a user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proton import Link
from tests.integration.support.client import Client, Clients
from tests.integration.support.passwords import PASSWORD
from tests.integration.support.routers import Router, Section

UNAUTHORIZED, EXCEEDED = "amqp:unauthorized-access", "amqp:resource-limit-exceeded"
ALICE, BOB, CAROL = "alice@isthmus", "bob@isthmus", "carol@isthmus"
ENABLED: Section = ("policy", {"enableVhostPolicy": True})


def vhost(name: str = "$default", groups: dict[str, Any] | None = None, **attributes: Any) -> Section:
    return ("vhost", {"hostname": name, "groups": groups or {}, **attributes})


def group(users: Any, **attributes: Any) -> dict[str, Any]:
    return {"users": users, "remoteHosts": "*", "sources": "*", "targets": "*", **attributes}


GROUPS = {
    "operators": group(ALICE, allowDynamicSource=True, allowAnonymousSender=True, allowUserIdProxy=True),
    "shops": group(
        [BOB, CAROL],
        sources=["news*", "${user}/*"],
        targets="orders, ${user}/*",
        allowAnonymousSender=True,
        maxSenders=4,
        maxReceivers=3,
        maxMessageSize=100_000,
    ),
}

Governed = Callable[..., Router]
"""Starts a router whose clients have to log in, with these sections."""


def login(clients: Clients, router: Router, user: str, *, wait: bool = True, **options: Any) -> Client:
    return clients.connect(
        router.port, user=user, password=PASSWORD, mechanisms="PLAIN", wait=wait, **options
    )


def refused(clients: Clients, router: Router, user: str, **options: Any) -> tuple[str, str]:
    """Condition and description with which the connection is opened and closed."""
    client = login(clients, router, user, wait=False, **options)
    condition = client.await_end()
    assert client.connection.remote_container == router.id, "opened before it is closed"
    assert condition is not None
    return condition.name, condition.description


def refusal(client: Client, link: Link) -> tuple[str, str]:
    condition = client.refusal(link)
    return condition.name, condition.description
