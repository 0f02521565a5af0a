"""What must hold for policies: users in one group, addresses and hosts that can be understood, vhosts that exist."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from isthmus_router.config.entities import Entity, suggestion
from isthmus_router.config.errors import Problem
from isthmus_router.config.model import PolicyConfig, UserGroupConfig
from isthmus_router.core.patterns import normal_pattern
from isthmus_router.core.roles import Role
from isthmus_router.policy.addresses import USER
from isthmus_router.policy.hosts import ANYWHERE, host_ranges
from isthmus_router.policy.names import CONNECTOR_GROUP, DEFAULT_GROUP, VhostNames

LEAST_FRAME_SIZE = 512


def check_policies(entities: list[Entity]) -> Iterator[Problem]:
    """Every rule about the sections policy and vhost, and about `policyVhost` of listeners and connectors."""
    everything = [e for e in entities if e.section.name == "vhost"]
    vhosts = [e for e in everything if not e.broken]
    for vhost in vhosts:
        yield from _vhost(vhost)
    if len(vhosts) < len(everything):
        return
    policy = next((e for e in entities if e.section.name == "policy" and not e.broken), None)
    enabled = policy is not None and policy.values["enableVhostPolicy"]
    patterns = bool(policy and policy.values["enableVhostNamePatterns"])
    if patterns:
        yield from _same_patterns(vhosts)
    names = VhostNames(
        {str(e.values["hostname"]): _aliases(e) for e in vhosts},
        default=str(policy.values["defaultVhost"]) if policy else PolicyConfig().default_vhost,
        patterns=patterns,
    )
    groups = {str(e.values["hostname"]): _groups(e) for e in vhosts}
    for entity in entities:
        if entity.section.name in ("listener", "connector") and "policyVhost" not in entity.broken:
            yield from _policy_vhost(entity, names if enabled else None, groups)


def policy_warnings(entities: list[Entity]) -> Iterator[Problem]:
    """What is valid and probably not meant."""
    policy = next((e for e in entities if e.section.name == "policy"), None)
    enabled = policy is not None and policy.values["enableVhostPolicy"]
    for vhost in entities:
        if vhost.section.name != "vhost" or vhost.broken:
            continue
        if not enabled:
            yield vhost.problem(None, "without effect: enableVhostPolicy of the policy section is not set")
        for name, group in _groups(vhost).items():
            if name == CONNECTOR_GROUP:
                continue
            if not group.remote_hosts:
                yield vhost.problem(
                    "groups", f"group {name!r} has no remoteHosts: none of its users may connect"
                )
            elif not group.users and name != DEFAULT_GROUP:
                yield vhost.problem("groups", f"group {name!r} has no users")


def _same_patterns(vhosts: list[Entity]) -> Iterator[Problem]:
    """Names of different vhosts that are written differently and match the same."""
    seen: dict[tuple[str, ...], tuple[str, Entity]] = {}
    for vhost in vhosts:
        for attribute, names in (
            ("hostname", (str(vhost.values["hostname"]),)),
            ("aliases", _aliases(vhost)),
        ):
            for name in names:
                first, other = seen.setdefault(normal_pattern(name), (name, vhost))
                if other is not vhost and first != name:
                    problem = vhost.problem(attribute, f"{name!r}: pattern conflicts with {first!r}")
                    yield replace(problem, duplicate=True)


def _aliases(vhost: Entity) -> tuple[str, ...]:
    aliases = vhost.values["aliases"]
    return aliases if isinstance(aliases, tuple) else ()


def _groups(vhost: Entity) -> dict[str, UserGroupConfig]:
    groups = vhost.values["groups"]
    return groups if isinstance(groups, dict) else {}


def _vhost(vhost: Entity) -> Iterator[Problem]:
    groups = _groups(vhost)
    member: dict[str, str] = {}
    for name, group in groups.items():
        for user in group.users:
            first = member.setdefault(user, name)
            if first != name:
                yield vhost.problem("groups", f"user {user!r} is in two groups, {first!r} and {name!r}")
        for text in _wrong_in(group):
            yield vhost.problem("groups", f"group {name!r}, {text}")
    if vhost.values["allowUnknownUser"] and DEFAULT_GROUP not in groups:
        yield vhost.problem(
            "allowUnknownUser", f"needs the group {DEFAULT_GROUP!r}, which says what unknown users may do"
        )


def _wrong_in(group: UserGroupConfig) -> Iterator[str]:
    for host in group.remote_hosts:
        try:
            if host != ANYWHERE:
                host_ranges(host)
        except ValueError as error:
            yield f"attribute remoteHosts: {error}"
    for names, patterns, attributes in (
        (group.sources, group.source_pattern, ("sources", "sourcePattern")),
        (group.targets, group.target_pattern, ("targets", "targetPattern")),
    ):
        if names and patterns:
            yield f"attribute {attributes[1]}: only one of {attributes[0]} and {attributes[1]} can be given"
        for entry in (*names, *patterns):
            if entry.replace(USER, "").find("${") >= 0:
                yield f"attribute {attributes[bool(patterns)]}: {entry!r}: only {USER} can be substituted"
    if group.max_frame_size and group.max_frame_size < LEAST_FRAME_SIZE:
        yield f"attribute maxFrameSize: {group.max_frame_size} is out of range: at least {LEAST_FRAME_SIZE}"


def _policy_vhost(
    entity: Entity, names: VhostNames | None, groups: dict[str, dict[str, UserGroupConfig]]
) -> Iterator[Problem]:
    wanted, role = entity.values["policyVhost"], entity.values["role"]
    if not isinstance(wanted, str):
        return
    connector = entity.section.name == "connector"
    if connector and role not in (Role.NORMAL, Role.ROUTE_CONTAINER):
        yield entity.problem("policyVhost", "only for connectors of the roles normal and route-container")
    elif names is not None:
        found = names.find(wanted)
        if found is None:
            hint = suggestion(wanted, groups, "they") if groups else "there is none"
            yield entity.problem("policyVhost", f"no vhost is named {wanted!r}; {hint}")
        elif connector and CONNECTOR_GROUP not in groups[found]:
            yield entity.problem("policyVhost", f"vhost {found!r} has no group {CONNECTOR_GROUP!r}")
