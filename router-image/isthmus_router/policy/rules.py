"""Vhosts compiled from the configuration: who belongs to which group, and what a group may do."""

from __future__ import annotations

from functools import cached_property

from isthmus_router.config.model import PolicyConfig, UserGroupConfig, VhostConfig
from isthmus_router.policy.addresses import AddressEntries
from isthmus_router.policy.hosts import RemoteHosts
from isthmus_router.policy.names import CONNECTOR_GROUP, DEFAULT_GROUP, VhostNames

EVERY_USER = "*"


class Group:
    """A user group of a vhost."""

    def __init__(self, name: str, config: UserGroupConfig, vhost: VhostConfig, policy: PolicyConfig) -> None:
        self.name = name
        self.config = config
        self.remote_hosts = RemoteHosts(config.remote_hosts)
        self.max_connections_per_user = _first(
            config.max_connections_per_user, vhost.max_connections_per_user
        )
        self.max_connections_per_host = _first(
            config.max_connections_per_host, vhost.max_connections_per_host
        )
        self.max_message_size = _first(
            config.max_message_size, vhost.max_message_size, policy.max_message_size
        )

    @cached_property
    def sources(self) -> AddressEntries:
        """What its users may receive from."""
        config = self.config
        patterns = bool(config.source_pattern)
        return AddressEntries(config.source_pattern or config.sources, patterns=patterns)

    @cached_property
    def targets(self) -> AddressEntries:
        """What its users may send to."""
        config = self.config
        patterns = bool(config.target_pattern)
        return AddressEntries(config.target_pattern or config.targets, patterns=patterns)


class Vhost:
    """A virtual host."""

    def __init__(self, config: VhostConfig, policy: PolicyConfig) -> None:
        self.name = config.hostname
        self.config = config
        self.groups = {name: Group(name, group, config, policy) for name, group in config.groups.items()}
        self._members = {
            user: group
            for group in self.groups.values()
            if group.name != CONNECTOR_GROUP
            for user in group.config.users
        }

    def group_of(self, user: str) -> Group | None:
        """The group that decides about `user`, None when the user may not connect."""
        found = self._members.get(user) or self._members.get(EVERY_USER)
        if found is None and self.config.allow_unknown_user:
            found = self.groups.get(DEFAULT_GROUP)
        return found


class Ruleset:
    """The policy and vhost sections of one configuration."""

    def __init__(self, policy: PolicyConfig, vhosts: tuple[VhostConfig, ...]) -> None:
        self.policy = policy
        self.vhosts = {config.hostname: Vhost(config, policy) for config in vhosts}
        self._names = VhostNames(
            {config.hostname: config.aliases for config in vhosts},
            default=policy.default_vhost,
            patterns=policy.enable_vhost_name_patterns,
        )

    def vhost(self, name: str) -> Vhost | None:
        """The vhost that a client means by `name`, its own or the default one."""
        found = self._names.find(name)
        return None if found is None else self.vhosts[found]


def _first(*values: int | None) -> int:
    """The most specific limit that is given."""
    return next(value for value in values if value is not None)
