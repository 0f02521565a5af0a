"""The policy of a Router as sections of the router's configuration, and what is wrong with it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence

from ..resources.listener import Role
from ..resources.policy import PolicyRules, RouterPolicy
from .flows.listener import collectors_vhost

CLIENT_ROLES: tuple[Role, ...] = ("normal", "route-container")
"""Roles of the listeners that the policy is about."""
ANONYMOUS = "anonymous"
"""The user of clients that have not authenticated."""
NO_CHANGES: Mapping[str, object] = {"allowDynamicLinkRoutes": False, "allowAdminStatusUpdate": False}
"""Clients of Routers change nothing by management. The router allows both by default, so each group states them."""
_ANYWHERE = "*"
_DEFAULT = "$default"

Attributes = dict[str, str | int | bool | Mapping[str, object]]


def policy_sections(policy: RouterPolicy, collectors: Sequence[str] = ()) -> list[tuple[str, Attributes]]:
    """A policy, and one vhost for all connections but those of `collectors`, which are users, to their own listener."""
    limits: Attributes = {"enableVhostPolicy": True}
    if policy.max_connections is not None:
        limits["maxConnections"] = policy.max_connections
    known: set[str] = set()
    groups: dict[str, object] = {}
    for group in policy.groups or ():
        users = [user for user in group.users if user not in known]
        known.update(users)
        groups[group.name] = {"users": users, **_attributes(group)}
    if policy.default_group is not None:
        groups[_DEFAULT] = _attributes(policy.default_group)
    vhost: Attributes = {
        "hostname": _DEFAULT,
        "allowUnknownUser": policy.default_group is not None,
        "groups": groups,
    }
    sections = [("policy", limits), ("vhost", vhost)]
    if collectors:
        sections.append(("vhost", collectors_vhost(collectors)))
    return sections


def _attributes(rules: PolicyRules) -> dict[str, object]:
    hosts = [_ANYWHERE] if rules.remote_hosts is None else [h for h in rules.remote_hosts if _is_host(h)]
    attributes: dict[str, object] = {
        "remoteHosts": hosts,
        "sourcePattern": list(rules.sources or ()),
        "targetPattern": list(rules.targets or ()),
        "allowDynamicSource": rules.allow_dynamic_source,
        "allowAnonymousSender": rules.allow_anonymous_sender,
        "allowUserIdProxy": not rules.check_user_id,
        "allowWaypointLinks": rules.allow_waypoint_links,
        "allowFallbackLinks": rules.allow_fallback_links,
        **NO_CHANGES,
    }
    for name, limit in (
        ("maxConnectionsPerUser", rules.max_connections_per_user),
        ("maxConnectionsPerHost", rules.max_connections_per_host),
        ("maxSessions", rules.max_sessions),
        ("maxSenders", rules.max_senders),
        ("maxReceivers", rules.max_receivers),
        ("maxMessageSize", rules.max_message_size),
    ):
        if limit is not None:
            attributes[name] = limit
    return attributes


def _is_host(text: str) -> bool:
    if text == _ANYWHERE:
        return True
    first, dash, last = text.partition("-")
    try:
        if not dash:
            ipaddress.ip_network(text, strict=False)
            return True
        low, high = ipaddress.ip_address(first), ipaddress.ip_address(last)
    except ValueError:
        return False
    return low.version == high.version and int(low) <= int(high)


def policy_problems(policy: RouterPolicy, authenticating: Sequence[str]) -> Iterator[str]:
    """What keeps a policy from doing what it says; `authenticating`: listeners whose clients have a name."""
    named = {user for group in policy.groups or () for user in group.users} - {ANONYMOUS}
    if named and not authenticating:
        yield (
            "policy names users, but no listener of role normal or route-container authenticates its clients, so that "
            f"all of them are {ANONYMOUS!r}; set sasl or tls.requireClientCertificate"
        )
    everybody: list[tuple[str, PolicyRules]] = [
        (f"group {group.name!r}", group) for group in policy.groups or ()
    ]
    if policy.default_group is not None:
        everybody.append(("defaultGroup", policy.default_group))
    for title, rules in everybody:
        wrong = [host for host in rules.remote_hosts or () if not _is_host(host)]
        if wrong:
            yield f"policy {title}: remoteHosts {', '.join(map(repr, wrong))} left out: no IP address, range or network"
