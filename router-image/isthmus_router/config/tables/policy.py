"""Sections about what clients may do: policy, vhost and its user groups."""

from __future__ import annotations

from isthmus_router.config.attributes import Attribute, Kind, Section, Update
from isthmus_router.config.model import MOST_CONNECTIONS

UNLIMITED_LINKS = 2**31 - 1
_MOST_BYTES = 2**63 - 1


def _limit(name: str, text: str, default: int | None = None, *, maximum: int = MOST_CONNECTIONS) -> Attribute:
    return Attribute(
        name,
        Kind.INTEGER,
        text,
        default=default,
        minimum=0,
        maximum=maximum,
        update=Update.LIVE,
    )


POLICY = Section(
    "policy",
    "What holds for the connections of all clients. See [policy.md](policy.md).",
    (
        _limit("maxConnections", "Connections of clients at the same time.", MOST_CONNECTIONS),
        _limit(
            "maxMessageSize",
            "Greatest message of a client, in bytes; 0 is any. A vhost or its group can say otherwise.",
            0,
            maximum=_MOST_BYTES,
        ),
        Attribute(
            "enableVhostPolicy",
            Kind.BOOLEAN,
            "The `vhost` sections are in force: who belongs to no group of any of them may not connect.",
            default=False,
            update=Update.LIVE,
        ),
        Attribute(
            "enableVhostNamePatterns",
            Kind.BOOLEAN,
            "Names of vhosts are patterns of tokens separated by `.`; `*` is one token, `#` any number.",
            default=False,
            update=Update.LIVE,
        ),
        Attribute(
            "policyDir",
            Kind.PATH,
            "Directory whose `*.json` files hold further `vhost` sections; their other sections are left out.",
            default="",
            update=Update.LIVE,
        ),
        Attribute(
            "defaultVhost",
            Kind.STRING,
            "Vhost of connections whose own is not configured; it need not exist. Empty: they are refused.",
            default="$default",
            update=Update.LIVE,
        ),
    ),
    singleton=True,
)

VHOST = Section(
    "vhost",
    "Users of a virtual host, which is the `hostname` that a client gives in its open frame, and what they may do. In "
    "force with `enableVhostPolicy`.",
    (
        Attribute(
            "hostname",
            Kind.STRING,
            "Unique name. `$default` is usually that of all connections. Empty: of clients that give no hostname.",
            default="",
            required=True,
            update=Update.LIVE,
            aliases=("id",),
            keeps_hash=True,
        ),
        Attribute(
            "aliases",
            Kind.LIST,
            "Other names of the vhost, separated by commas.",
            default=(),
            update=Update.LIVE,
        ),
        _limit("maxConnections", "Connections at the same time.", MOST_CONNECTIONS),
        _limit(
            "maxMessageSize",
            "Greatest message in bytes; 0 is any. Absent: the policy section's.",
            maximum=_MOST_BYTES,
        ),
        _limit("maxConnectionsPerUser", "Connections of one user at the same time.", MOST_CONNECTIONS),
        _limit(
            "maxConnectionsPerHost",
            "Connections at the same time from one host (IPv6: from one /64 network).",
            MOST_CONNECTIONS,
        ),
        Attribute(
            "allowUnknownUser",
            Kind.BOOLEAN,
            "Users of no group belong to the group `$default`. Otherwise they may not connect.",
            default=False,
            update=Update.LIVE,
        ),
        Attribute(
            "groups",
            Kind.GROUPS,
            "User groups by name, as JSON or as nested maps; see `vhostUserGroupSettings`. The group `$connector` is "
            "for connectors with `policyVhost`.",
            default={},
            update=Update.LIVE,
        ),
        Attribute("name", Kind.STRING, "Unique name, shown by management. Absent: the hostname."),
    ),
)


def _addresses(name: str, verb: str, other: str, *, pattern: bool) -> Attribute:
    form = (
        "Patterns of tokens separated by `.` or `/`, where `*` is one token and `#` any number of them,"
        if pattern
        else "Addresses, where `*` at the end stands for any rest,"
    )
    return Attribute(
        name,
        Kind.LIST,
        f"{form} that the users may {verb}; `${{user}}` is the user's name. Not together with `{other}`.",
        default=(),
        update=Update.LIVE,
        keeps_hash=pattern,
    )


def _allowed(name: str, text: str, *, default: bool) -> Attribute:
    return Attribute(name, Kind.BOOLEAN, text, default=default, update=Update.LIVE)


VHOST_GROUP = Section(
    "vhostUserGroupSettings",
    "A user group. Not a section of its own: a value in `groups` of a `vhost`.",
    (
        Attribute(
            "users",
            Kind.LIST,
            "Users, separated by commas or as a JSON list; `*` is everybody who is in no other group.",
            default=(),
            update=Update.LIVE,
        ),
        Attribute(
            "remoteHosts",
            Kind.LIST,
            "Where they may connect from, separated by commas: IP addresses, ranges `first-last`, networks like "
            "`10.0.0.0/8`, `localhost`, or `*` for anywhere. Absent: from nowhere.",
            default=(),
            update=Update.LIVE,
        ),
        _limit("maxConnectionsPerUser", "Connections of one user. Absent: the vhost's."),
        _limit(
            "maxConnectionsPerHost",
            "Connections from one host (IPv6: from one /64 network). Absent: the vhost's.",
        ),
        _limit(
            "maxMessageSize", "Greatest message in bytes; 0 is any. Absent: the vhost's.", maximum=_MOST_BYTES
        ),
        _limit(
            "maxFrameSize",
            "Greatest frame accepted, in bytes, 512 at least. Absent or 0: the listener's.",
            maximum=2**31 - 1,
        ),
        _limit(
            "maxSessionWindow",
            "Incoming window of a session, in bytes. Absent or 0: the listener's.",
            maximum=2**31 - 1,
        ),
        _limit("maxSessions", "Sessions on a connection. Absent or 0: the listener's.", maximum=32768),
        _limit(
            "maxSenders",
            "Links on a connection on which the client sends; 0 is none.",
            UNLIMITED_LINKS,
            maximum=UNLIMITED_LINKS,
        ),
        _limit(
            "maxReceivers",
            "Links on a connection on which the client receives; 0 is none.",
            UNLIMITED_LINKS,
            maximum=UNLIMITED_LINKS,
        ),
        _allowed(
            "allowDynamicSource", "They may have addresses made for them to receive from.", default=False
        ),
        _allowed(
            "allowAnonymousSender",
            "They may send without a target. The `to` of each message is then checked, unless all are allowed.",
            default=False,
        ),
        _allowed(
            "allowUserIdProxy",
            "The `user-id` of their messages may be another one's. Otherwise messages that have one take three "
            "times the CPU.",
            default=False,
        ),
        _allowed(
            "allowWaypointLinks",
            "Their links may have the capability `qd.waypoint`, or name a phase of an address.",
            default=True,
        ),
        _allowed(
            "allowDynamicLinkRoutes",
            "They may have links routed to them (`router.connection.linkRoute`).",
            default=True,
        ),
        _allowed("allowFallbackLinks", "Their links may have the capability `qd.fallback`.", default=True),
        _allowed("allowAdminStatusUpdate", "They may have management close connections.", default=True),
        _addresses("sources", "receive from", "sourcePattern", pattern=False),
        _addresses("targets", "send to", "targetPattern", pattern=False),
        _addresses("sourcePattern", "receive from", "sources", pattern=True),
        _addresses("targetPattern", "send to", "targets", pattern=True),
    ),
)
