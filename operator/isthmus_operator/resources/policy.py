"""The policy of a Router: who may attach to what."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import Field

from .addresses import PARTIAL_WILDCARD
from .base import DNS_LABEL, ListMap, Model, Rule

_NAME = r"^([^*]|..)"
"""Anything but `*` alone."""

Pattern = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\s,]+$")]
Patterns = Annotated[list[Pattern], Field(max_length=128)]
Count = Annotated[int, Field(ge=0, le=65535)]
Links = Annotated[int, Field(ge=0, le=2_147_483_647)]

_SUBSTITUTIONS = r"[$][{]"
_USER = "${user}"


def _pattern_rules(field: str) -> tuple[Rule, ...]:
    """What must hold for one list of patterns."""

    def patterns(self: Model) -> list[str]:
        return getattr(self, field) or []

    return (
        Rule(
            f"!has(self.{field}) || self.{field}.all(p, !p.matches('{PARTIAL_WILDCARD}'))",
            f"a wildcard in {field} must be a whole token, as in news/* or news/#",
            f".{field}",
            lambda self: not any(re.search(PARTIAL_WILDCARD, item) for item in patterns(self)),
        ),
        Rule(
            f"!has(self.{field}) || self.{field}.all(p, !p.replace('{_USER}', '').matches('{_SUBSTITUTIONS}'))",
            f"{field} can have {_USER} substituted and nothing else",
            f".{field}",
            lambda self: (
                not any(re.search(_SUBSTITUTIONS, item.replace(_USER, "")) for item in patterns(self))
            ),
        ),
    )


class PolicyRules(Model):
    """What users may do. Absent numbers are no limits."""

    sources: Patterns | None = None
    """Addresses they may receive from: patterns of tokens separated by `.` or `/`, where `*` is one token, `#` any
    number of them, and `${user}` the user's name. None when absent."""

    targets: Patterns | None = None
    """Addresses they may send to; as `sources`."""

    remote_hosts: (
        Annotated[
            list[
                Annotated[
                    str,
                    Field(min_length=1, max_length=96, pattern=r"^([0-9A-Fa-f:.]+([/-][0-9A-Fa-f:.]+)?|\*)$"),
                ]
            ],
            Field(min_length=1, max_length=64),
        ]
        | None
    ) = None
    """Where they may connect from: IP addresses, ranges `first-last`, networks like `10.0.0.0/8`. From anywhere when
    absent."""

    allow_dynamic_source: bool = False
    """They may have addresses made for them to receive from, as those do who wait for replies."""

    allow_anonymous_sender: bool = False
    """They may send without a target; the `to` of each message must then match `targets`."""

    allow_waypoint_links: bool = False
    """They may attach links with the capability `qd.waypoint`, and use names of phases (`_$phase.1/orders`). Both let
    a client receive messages before they reach a broker's queue, and send messages past it."""

    allow_fallback_links: bool = False
    """They may attach links with the capability `qd.fallback`."""

    check_user_id: bool = False
    """Messages must have no `user-id`, or that of their sender. One that has it takes three times the CPU."""

    max_connections_per_user: Count | None = None
    """Connections of one user to one router."""

    max_connections_per_host: Count | None = None
    """Connections from one host (IPv6: from one /64 network) to one router."""

    max_sessions: Annotated[int, Field(ge=1, le=32768)] | None = None
    """Sessions on a connection."""

    max_senders: Links | None = None
    """Links on a connection on which the client sends."""

    max_receivers: Links | None = None
    """Links on a connection on which the client receives."""

    max_message_size: Annotated[int, Field(ge=1, le=1_099_511_627_776)] | None = None
    """Greatest message in bytes."""

    rules: ClassVar = (*_pattern_rules("sources"), *_pattern_rules("targets"))


class PolicyGroup(PolicyRules):
    """A user belongs to the first group that names it."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
    """Name of the group, unique in the policy."""

    users: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1024, pattern=_NAME)]],
        Field(min_length=1, max_length=1024),
    ]
    """Users as they have authenticated: `USER@REALM` with a password, the certificate's subject (`CN=shop,O=acme`) with
    a client certificate, `anonymous` without either. Who is named by several groups belongs to the first of them."""

    rules: ClassVar = PolicyRules.rules


class RouterPolicy(Model):
    """Who may connect to the routers, and attach to what. The routers refuse everything that it does not list."""

    groups: Annotated[list[PolicyGroup], Field(max_length=64), ListMap("name")] | None = None
    """Users, and what they may do."""

    default_group: PolicyRules | None = None
    """What all other users may do. When absent they may not connect."""

    max_connections: Count | None = None
    """Connections of clients to one router."""

    rules: ClassVar = (
        Rule(
            "has(self.groups) || has(self.defaultGroup)",
            "policy needs groups or defaultGroup: without either nobody may connect",
            ".groups",
            lambda self: self.groups is not None or self.default_group is not None,
        ),
    )
