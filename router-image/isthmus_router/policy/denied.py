"""Links that a changed policy no longer allows."""

from __future__ import annotations

import logging

from isthmus_router.core.model import Link
from isthmus_router.core.port import Port
from isthmus_router.core.terms import Condition
from isthmus_router.policy.counters import Denial
from isthmus_router.policy.grant import Grant

log = logging.getLogger("POLICY")


def detach_denied(port: Port, link: Link, grant: Grant | None, condition: Condition) -> None:
    """Detach a link of a client with these rights, count that, and log it."""
    if grant is not None:
        grant.denied(Denial.SENDER if link.incoming else Denial.RECEIVER)
    log.info(
        "link closed",
        extra={
            "event": "link.denied",
            "connection": link.connection.id,
            "user": link.connection.user,
            "link": link.name,
            "condition": condition.name,
            "description": condition.description,
        },
    )
    port.detach_link(link, condition)
