"""Columns of what management tells of the policy: the policy itself, vhosts, their groups and their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from isthmus_router.config.model import UserGroupConfig, VhostConfig
from isthmus_router.config.tables.policy import VHOST_GROUP
from isthmus_router.management.port import ManagementView, PolicyRow, VhostRow
from isthmus_router.message.types import ULong


def _denied(*kinds: str) -> Callable[[PolicyRow | VhostRow], object]:
    return lambda row: ULong(sum(row.denials.get(kind, 0) for kind in kinds))


POLICY_STATS: Mapping[str, Callable[[PolicyRow], object]] = {
    "connectionsProcessed": lambda row: ULong(row.connections_processed),
    "connectionsDenied": _denied("connection"),
    "connectionsCurrent": lambda row: ULong(row.connections_current),
    "linksDenied": _denied("sender", "receiver"),
    "maxMessageSizeDenied": _denied("message-size"),
    "totalDenials": lambda row: ULong(sum(row.denials.values())),
}

VHOST_STATS: Mapping[str, Callable[[VhostRow], object]] = {
    "hostname": lambda row: row.hostname,
    "id": lambda row: row.hostname,  # its name in qpid-dispatch
    "connectionsApproved": lambda row: ULong(row.connections_approved),
    "connectionsDenied": _denied("connection"),
    "connectionsCurrent": lambda row: ULong(row.connections_current),
    "perUserState": lambda row: {user: list(names) for user, names in row.per_user.items()},
    "perHostState": lambda row: {host: list(names) for host, names in row.per_host.items()},
    "sessionDenied": _denied("session"),
    "senderDenied": _denied("sender"),
    "receiverDenied": _denied("receiver"),
    "maxMessageSizeDenied": _denied("message-size"),
}


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A user group of a vhost."""

    vhost: VhostConfig
    name: str
    config: UserGroupConfig


def groups(view: ManagementView) -> Iterator[GroupRow]:
    """Every group of every vhost."""
    for vhost in view.configuration.vhosts:
        for name, config in vhost.groups.items():
            yield GroupRow(vhost, name, config)


def vhost_of_group(row: Any) -> object:
    """Column `vhost`."""
    return row.vhost.hostname


def name_of_group(row: Any) -> object:
    """Column `group`."""
    return row.name


def config_of_group(row: Any) -> object:
    """What the group's other columns are read from."""
    return row.config


def group_identity(row: Any) -> str:
    """`vhostUserGroupSettings/<vhost>/<group>`"""
    return f"{VHOST_GROUP.name}/{row.vhost.hostname}/{row.name}"


def groups_of_vhost(vhost: Any) -> object:
    """A vhost's groups as maps, without attributes that are absent."""
    return {name: _as_map(config) for name, config in vhost.groups.items()}


def _as_map(config: UserGroupConfig) -> dict[str, object]:
    values = {a.name: getattr(config, a.field) for a in VHOST_GROUP.attributes}
    return {
        name: ", ".join(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value not in (None, ())
    }


def message_size_of_vhost(view: ManagementView) -> Callable[[Any], object]:
    """The limit in force: tools cannot show an absent one."""

    def read(vhost: Any) -> object:
        own = vhost.max_message_size
        return view.configuration.policy.max_message_size if own is None else own

    return read
