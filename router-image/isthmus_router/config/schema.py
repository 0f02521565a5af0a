"""The table of sections and attributes: the one source for validation, documentation and management.

Names, defaults and order are those of skupper-router 3.4.0 (and, for what it removed, qpid-dispatch
1.19), so that existing files run unchanged and management tools see the columns they expect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from isthmus_router.config.model import AddressFamily, Direction, Distribution, Mode, StripAnnotations
from isthmus_router.core.roles import Role


class Kind(Enum):
    """How the text of a value is read, and its name in `GET-SCHEMA`."""

    STRING = "string"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    PORT = "port"
    """A port number or service name; read as an integer."""
    ENUM = "enum"
    PATH = "path"
    SECRET = "secret"
    """A string that may be given indirectly; see `sources.py`."""
    WORDS = "words"
    """Words separated by spaces; read as a tuple."""
    MAP = "map"
    """A JSON object."""


class Update(Enum):
    """What a changed value needs to take effect."""

    LIVE = "live"
    """Applied to what runs."""
    REPLACE = "replace"
    """The entity is removed and created anew; connections through it are closed."""
    RESTART = "restart"
    """Refused while running; the router must be restarted."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a section."""

    name: str
    kind: Kind
    description: str
    default: object = None
    """Value when absent, in its typed form."""
    required: bool = False
    choices: tuple[str, ...] = ()
    """Allowed values of an enumeration; also accepted by index."""
    result: Callable[[str], object] = str
    """Makes the typed form of one of `choices`."""
    minimum: int | None = None
    maximum: int | None = None
    update: Update = Update.REPLACE
    aliases: tuple[str, ...] = ()
    """Deprecated names still accepted."""
    inert: str | None = None
    """Why the attribute is accepted and has no effect."""
    unsupported: str | None = None
    """Why any value but the default is refused."""
    keeps_hash: bool = False
    """In `.conf` text, `#` belongs to the value instead of starting a comment."""
    contents: bool = False
    """A path whose file's contents are part of the configuration."""

    @property
    def field(self) -> str:
        """The name in snake_case, as the dataclasses of `model.py` have it."""
        return re.sub(r"(?<=[a-z0-9])([A-Z]+)", r"_\1", self.name).lower()


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of entity."""

    name: str
    """Name in a configuration file."""
    description: str
    attributes: tuple[Attribute, ...]
    singleton: bool = False
    entity_type: str = ""
    """Short management type where it differs from the name."""

    @property
    def short_type(self) -> str:
        """Management type without its prefix, e.g. `router.config.address`."""
        return self.entity_type or self.name

    def attribute(self, name: str) -> Attribute | None:
        """The attribute with that name or alias."""
        return next((a for a in self.attributes if name == a.name or name in a.aliases), None)


_PROTOCOLS_HELP = "Allowed TLS versions, e.g. `TLSv1.2 TLSv1.3`. Absent: OpenSSL's default."
_NO_POLICY = "vhost policies are not supported"
_NAME = Attribute("name", Kind.STRING, "Unique name.")
_PREFIX = Attribute(
    "prefix",
    Kind.STRING,
    "Address prefix: `a.b` matches `a.b` and everything below it. Exactly one of prefix and pattern.",
)
_PATTERN = Attribute(
    "pattern",
    Kind.STRING,
    "Address pattern of tokens separated by `.` or `/`; `*` is one token, `#` any number. "
    "Exactly one of prefix and pattern.",
    keeps_hash=True,
)
_CONTAINER_ID = Attribute(
    "containerId", Kind.STRING, "Applies to route-container connections from this AMQP container."
)
_CONNECTION = Attribute(
    "connection", Kind.STRING, "Applies to connections of the listener or connector with this name."
)

_HOST = "Address or name of the host"
_FAMILY = Attribute(
    "socketAddressFamily",
    Kind.ENUM,
    "Insist on IPv4 or IPv6. Absent: whatever the host resolves to.",
    choices=tuple(AddressFamily),
    result=AddressFamily,
)
_PORT = Attribute("port", Kind.PORT, "Port number, or `amqp` (5672) or `amqps` (5671).", default=5672)
_ROLES = ("normal", "inter-router", "route-container", "edge")
_ROLE = Attribute(
    "role",
    Kind.ENUM,
    "What connections are for: `normal` (clients), `inter-router` (interior routers), `route-container` "
    "(brokers reached by link routes and auto-links), `edge` (edge routers to interior routers).",
    default=Role.NORMAL,
    choices=_ROLES,
    result=Role.from_label,
)
_COST = Attribute(
    "cost",
    Kind.INTEGER,
    "Cost of the link between two routers; the greater of both sides' values counts.",
    default=1,
    minimum=1,
    maximum=2**31 - 1,
)
_SSL_PROFILE = Attribute("sslProfile", Kind.STRING, "Name of the sslProfile to use. Absent: no TLS.")
_MECHANISMS = Attribute(
    "saslMechanisms",
    Kind.WORDS,
    "Allowed SASL mechanisms, separated by spaces. Absent: all available.",
)
_SESSION_LIMITS = (
    Attribute(
        "maxFrameSize",
        Kind.INTEGER,
        "Greatest frame accepted, in bytes.",
        default=16384,
        minimum=512,
        maximum=2**31 - 1,
    ),
    Attribute(
        "maxSessions",
        Kind.INTEGER,
        "Sessions per connection.",
        default=32768,
        minimum=1,
        maximum=32768,
    ),
    Attribute(
        "maxSessionFrames",
        Kind.INTEGER,
        "Incoming window of a session, in frames. Absent: 8 MiB worth for clients, 128 MiB between routers.",
        minimum=2,
        maximum=2**31 - 1,
    ),
    Attribute(
        "idleTimeoutSeconds",
        Kind.INTEGER,
        "A connection without any frame for this long is closed; 0 is never.",
        default=16,
        minimum=0,
        maximum=2**22,
    ),
)
_STRIP = Attribute(
    "stripAnnotations",
    Kind.ENUM,
    "Where router annotations are removed from messages of clients.",
    default=StripAnnotations.BOTH,
    choices=tuple(StripAnnotations),
    result=StripAnnotations,
)
_LINK_CAPACITY = Attribute(
    "linkCapacity",
    Kind.INTEGER,
    "Credit given on each incoming link, in messages.",
    default=250,
    minimum=1,
    maximum=2**31 - 1,
)
_MESSAGE_LOGGING = Attribute(
    "messageLoggingComponents",
    Kind.STRING,
    "Parts of messages to log.",
    default="none",
    inert="messages are not logged",
)
_POLICY_VHOST = Attribute("policyVhost", Kind.STRING, "Name of the policy vhost.", unsupported=_NO_POLICY)
_OPEN_PROPERTIES = Attribute(
    "openProperties",
    Kind.MAP,
    "Extra properties of the AMQP open frame, as JSON. For the roles normal and route-container.",
    default={},
)

ROUTER = Section(
    "router",
    "The router itself.",
    (
        Attribute(
            "id",
            Kind.STRING,
            "Unique name of the router in its network. Absent: the mode followed by random characters.",
            update=Update.RESTART,
            aliases=("routerId",),
        ),
        Attribute(
            "vanId",
            Kind.STRING,
            "Name of the application network.",
            update=Update.RESTART,
            inert="only shown by management",
        ),
        Attribute(
            "mode",
            Kind.ENUM,
            "`interior` takes part in routing, `edge` is attached to interior routers, "
            "`standalone` is alone.",
            default=Mode.STANDALONE,
            choices=(Mode.STANDALONE, Mode.INTERIOR, Mode.EDGE),
            result=Mode,
            update=Update.RESTART,
        ),
        Attribute(
            "helloIntervalSeconds",
            Kind.INTEGER,
            "Seconds between HELLO messages to neighbours.",
            default=1,
            minimum=1,
            maximum=3600,
            update=Update.RESTART,
            aliases=("helloInterval",),
        ),
        Attribute(
            "helloMaxAgeSeconds",
            Kind.INTEGER,
            "A neighbour that sent no HELLO for this many seconds is lost.",
            default=3,
            minimum=2,
            maximum=86400,
            update=Update.RESTART,
            aliases=("helloMaxAge",),
        ),
        Attribute(
            "raIntervalSeconds",
            Kind.INTEGER,
            "Seconds between router advertisements while the topology is stable.",
            default=30,
            minimum=1,
            maximum=86400,
            update=Update.RESTART,
            aliases=("raInterval",),
        ),
        Attribute(
            "raIntervalFluxSeconds",
            Kind.INTEGER,
            "Seconds between router advertisements while the topology changes.",
            default=4,
            minimum=1,
            maximum=86400,
            update=Update.RESTART,
            aliases=("raIntervalFlux",),
        ),
        Attribute(
            "remoteLsMaxAgeSeconds",
            Kind.INTEGER,
            "A router whose link state was not confirmed for this many seconds is forgotten.",
            default=60,
            minimum=2,
            maximum=86400,
            update=Update.RESTART,
            aliases=("remoteLsMaxAge",),
        ),
        Attribute(
            "unreachableHoldoffSeconds",
            Kind.INTEGER,
            "Seconds before an unreachable router's addresses are withdrawn.",
            default=1,
            minimum=0,
            maximum=86400,
            update=Update.RESTART,
        ),
        Attribute(
            "workerThreads",
            Kind.INTEGER,
            "Worker threads of other routers.",
            default=4,
            minimum=1,
            maximum=1024,
            update=Update.RESTART,
            inert="one event loop does the work",
        ),
        Attribute(
            "debugDumpFile",
            Kind.PATH,
            "Memory dump at exit.",
            update=Update.RESTART,
            aliases=("debugDump",),
            inert="there is no memory pool to dump",
        ),
        Attribute(
            "saslConfigDir",
            Kind.PATH,
            "Directory of the Cyrus SASL configuration `<saslConfigName>.conf`, which names the user "
            "database (sasldb) for PLAIN and SCRAM.",
            update=Update.RESTART,
            aliases=("saslConfigPath",),
        ),
        Attribute(
            "saslConfigName",
            Kind.STRING,
            "Name of the Cyrus SASL configuration, without `.conf`.",
            default="skrouterd",
            update=Update.RESTART,
        ),
        Attribute(
            "timestampsInUTC",
            Kind.BOOLEAN,
            "Timestamps of log records are in UTC.",
            default=False,
            update=Update.RESTART,
            inert="log records carry UTC timestamps always",
        ),
        Attribute(
            "timestampFormat",
            Kind.STRING,
            "Format of the timestamps of log records.",
            update=Update.RESTART,
            inert="log records carry RFC 3339 timestamps",
        ),
        Attribute(
            "defaultDistribution",
            Kind.ENUM,
            "Distribution of addresses that no `address` section matches.",
            default=Distribution.BALANCED,
            choices=tuple(Distribution),
            result=Distribution,
            update=Update.RESTART,
        ),
        Attribute(
            "metadata",
            Kind.STRING,
            "Free text shown by management.",
            update=Update.RESTART,
        ),
        Attribute(
            "dataConnectionCount",
            Kind.STRING,
            "Data connections per inter-router connector for streams: a number, or `auto`.",
            default="auto",
            update=Update.RESTART,
        ),
        Attribute(
            "dropTcpConnections",
            Kind.BOOLEAN,
            "What becomes of TCP adaptor connections.",
            default=True,
            update=Update.RESTART,
            inert="there is no TCP adaptor",
        ),
    ),
    singleton=True,
)

NETWORK = Section(
    "network",
    "The network the router belongs to.",
    (
        Attribute("networkId", Kind.STRING, "Name of the network.", update=Update.LIVE),
        Attribute("tenantId", Kind.STRING, "Name of the tenant.", update=Update.RESTART),
    ),
    singleton=True,
)

SITE = Section(
    "site",
    "Where the router runs. Shown by management and in flow records.",
    tuple(
        Attribute(name, Kind.STRING, text, update=Update.RESTART)
        for name, text in (
            ("name", "Name of the site."),
            ("location", "Where the site is."),
            ("provider", "Who runs it."),
            ("platform", "What it runs on, e.g. `kubernetes`."),
            ("namespace", "Namespace within the platform."),
            ("version", "Version of what installed the router."),
        )
    ),
    singleton=True,
)

SSL_PROFILE = Section(
    "sslProfile",
    "Credentials and rules for TLS, used by listeners and connectors.",
    (
        Attribute("name", Kind.STRING, "Unique name.", required=True),
        Attribute(
            "ciphers", Kind.STRING, "OpenSSL cipher list. Absent: OpenSSL's default.", update=Update.LIVE
        ),
        Attribute("protocols", Kind.WORDS, _PROTOCOLS_HELP, update=Update.LIVE),
        Attribute(
            "caCertFile",
            Kind.PATH,
            "PEM file of the certificate authorities that peers are verified against.",
            update=Update.LIVE,
            aliases=("certDb",),
            contents=True,
        ),
        Attribute(
            "certFile",
            Kind.PATH,
            "PEM file of the own certificate chain.",
            update=Update.LIVE,
            contents=True,
        ),
        Attribute(
            "privateKeyFile",
            Kind.PATH,
            "PEM file of the own private key.",
            update=Update.LIVE,
            aliases=("keyFile",),
            contents=True,
        ),
        Attribute("password", Kind.SECRET, "Password of the private key.", update=Update.LIVE),
        Attribute(
            "uidFormat",
            Kind.STRING,
            "How the user of a peer is made from its certificate: one letter per field, e.g. `1` (SHA-1 "
            "fingerprint), `2` (SHA-256), `5` (SHA-512), `c` (country), `s` (state), `l` (locality), "
            "`o` (organisation), `u` (unit), `n` (common name). Absent: the whole subject.",
        ),
        Attribute(
            "uidNameMappingFile",
            Kind.PATH,
            "JSON file that maps such users to display names.",
            aliases=("displayNameFile",),
            contents=True,
        ),
        Attribute(
            "ordinal",
            Kind.INTEGER,
            "Generation of the credentials. Raising it opens a new set of router connections with the new "
            "credentials beside the old ones; it can never be lowered.",
            default=0,
            minimum=0,
            maximum=2**63 - 1,
            update=Update.LIVE,
        ),
        Attribute(
            "oldestValidOrdinal",
            Kind.INTEGER,
            "Connections made under an older generation are closed.",
            default=0,
            minimum=0,
            maximum=2**63 - 1,
            update=Update.LIVE,
        ),
    ),
)

LISTENER = Section(
    "listener",
    "Accepts connections on a host and port.",
    (
        Attribute("host", Kind.STRING, f"{_HOST} to listen on. Empty: every local address.", default=""),
        _PORT,
        _FAMILY,
        _ROLE,
        _COST,
        _SSL_PROFILE,
        _MECHANISMS,
        Attribute(
            "authenticatePeer",
            Kind.BOOLEAN,
            "Peers must authenticate; ANONYMOUS is not offered.",
            default=False,
        ),
        Attribute(
            "requireEncryption", Kind.BOOLEAN, "Connections without encryption are refused.", default=False
        ),
        Attribute("requireSsl", Kind.BOOLEAN, "Connections without TLS are refused.", default=False),
        *_SESSION_LIMITS,
        Attribute(
            "initialHandshakeTimeoutSeconds",
            Kind.INTEGER,
            "A connection not opened after this many seconds is closed; 0 is never.",
            default=0,
            minimum=0,
            maximum=86400,
        ),
        _STRIP,
        _LINK_CAPACITY,
        Attribute(
            "failoverUrls",
            Kind.STRING,
            "Comma-separated URLs that peers may use instead when the connection fails.",
            aliases=("failoverList",),
        ),
        Attribute("healthz", Kind.BOOLEAN, "With http: answer `/healthz` and `/readyz`.", default=True),
        Attribute("metrics", Kind.BOOLEAN, "With http: answer `/metrics`.", default=True),
        Attribute(
            "websockets",
            Kind.BOOLEAN,
            "With http: AMQP over WebSocket.",
            default=True,
            inert="AMQP over WebSocket is not spoken",
        ),
        Attribute("http", Kind.BOOLEAN, "This listener serves HTTP instead of AMQP.", default=False),
        Attribute(
            "httpRootDir",
            Kind.PATH,
            "With http: directory of files to serve.",
            aliases=("httpRoot",),
            inert="no files are served",
        ),
        _MESSAGE_LOGGING,
        _POLICY_VHOST,
        _OPEN_PROPERTIES,
        Attribute("name", Kind.STRING, "Unique name. Absent: `listener/<host>:<port>`."),
    ),
)

CONNECTOR = Section(
    "connector",
    "Opens a connection to a host and port, and opens it again when it is lost.",
    (
        Attribute("host", Kind.STRING, f"{_HOST} to connect to.", default="127.0.0.1"),
        _PORT,
        _FAMILY,
        _ROLE,
        _COST,
        _SSL_PROFILE,
        Attribute(
            "proxyProfile",
            Kind.STRING,
            "Name of the proxyProfile to use.",
            unsupported="connections through an HTTP proxy are not supported",
        ),
        _MECHANISMS,
        Attribute(
            "allowRedirect",
            Kind.BOOLEAN,
            "Follow a redirect of the peer.",
            default=True,
            inert="redirects are not followed",
        ),
        *_SESSION_LIMITS,
        _STRIP,
        _LINK_CAPACITY,
        Attribute(
            "verifyHostname",
            Kind.BOOLEAN,
            "With an sslProfile: the peer's certificate must be for `host`.",
            default=True,
            aliases=("verifyHostName",),
        ),
        Attribute("saslUsername", Kind.STRING, "User to authenticate as."),
        Attribute("saslPassword", Kind.SECRET, "Password of saslUsername."),
        _MESSAGE_LOGGING,
        _POLICY_VHOST,
        _OPEN_PROPERTIES,
        Attribute("name", Kind.STRING, "Unique name. Absent: `connector/<host>:<port>`."),
    ),
)

_PHASES = "addresses have no phases; use an autoLink with externalAddress"
ADDRESS = Section(
    "address",
    "Treatment of the addresses that a prefix or pattern matches. The most specific match counts.",
    (
        _PREFIX,
        _PATTERN,
        Attribute(
            "distribution",
            Kind.ENUM,
            "`closest`: nearest consumers only; `balanced`: by load over the whole network; `multicast`: "
            "every consumer; `unavailable`: links to the address are refused.",
            default=Distribution.BALANCED,
            choices=tuple(Distribution),
            result=Distribution,
        ),
        Attribute(
            "priority",
            Kind.INTEGER,
            "Priority of messages that carry none, 0 to 9. Absent or -1: 4.",
            minimum=-1,
            maximum=9,
        ),
        Attribute(
            "waypoint",
            Kind.BOOLEAN,
            "Senders and receivers are routed through a broker's queue.",
            default=False,
            unsupported=_PHASES,
        ),
        Attribute("ingressPhase", Kind.INTEGER, "Phase of senders.", default=0, unsupported=_PHASES),
        Attribute("egressPhase", Kind.INTEGER, "Phase of receivers.", default=0, unsupported=_PHASES),
        Attribute(
            "enableFallback",
            Kind.BOOLEAN,
            "Undeliverable messages go to fallback consumers.",
            default=False,
            aliases=("fallback",),
            unsupported="fallback destinations are not supported",
        ),
        _NAME,
    ),
    entity_type="router.config.address",
)

LINK_ROUTE = Section(
    "linkRoute",
    "Hands links to matching addresses, end to end, to an AMQP container (a broker) on a route-container "
    "connection.",
    (
        _PREFIX,
        _PATTERN,
        Attribute(
            "direction",
            Kind.ENUM,
            "`in`: links of senders, messages enter the network; `out`: links of receivers.",
            required=True,
            choices=tuple(Direction),
            result=Direction,
            aliases=("dir",),
        ),
        _CONTAINER_ID,
        _CONNECTION,
        Attribute(
            "distribution",
            Kind.ENUM,
            "Links are spread over the containers in turn.",
            default="linkBalanced",
            choices=("linkBalanced",),
        ),
        Attribute("addExternalPrefix", Kind.STRING, "Put before the address on links to the container."),
        Attribute("delExternalPrefix", Kind.STRING, "Removed from the address on links to the container."),
        _NAME,
    ),
    entity_type="router.config.linkRoute",
)

AUTO_LINK = Section(
    "autoLink",
    "Attaches a link to an AMQP container (a broker) as soon as its route-container connection is up.",
    (
        Attribute(
            "address",
            Kind.STRING,
            "Address inside the network. Absent: an anonymous link.",
            aliases=("addr",),
        ),
        Attribute(
            "direction",
            Kind.ENUM,
            "`in`: the router receives from the container; `out`: the router sends to it.",
            required=True,
            choices=tuple(Direction),
            result=Direction,
            aliases=("dir",),
        ),
        _CONTAINER_ID,
        _CONNECTION,
        Attribute(
            "externalAddress",
            Kind.STRING,
            "Address on the container. Absent: the same as `address`.",
            aliases=("externalAddr",),
        ),
        Attribute("phase", Kind.INTEGER, "Phase of the link.", unsupported=_PHASES),
        Attribute(
            "fallback",
            Kind.BOOLEAN,
            "The container takes undeliverable messages.",
            default=False,
            unsupported="fallback destinations are not supported",
        ),
        _NAME,
    ),
    entity_type="router.config.autoLink",
)

LOG_MODULES = (
    "DEFAULT",
    "ROUTER",
    "ROUTER_CORE",
    "ROUTER_HELLO",
    "ROUTER_LS",
    "ROUTER_MA",
    "MESSAGE",
    "SERVER",
    "AGENT",
    "CONTAINER",
    "ERROR",
    "POLICY",
    "HTTP",
    "CONN_MGR",
    "PYTHON",
    "PROTOCOL",
    "TCP_ADAPTOR",
    "HTTP_ADAPTOR",
    "FLOW_LOG",
    "ADDRESS_WATCH",
    "HTTP1_OBSERVER",
    "HTTP2_OBSERVER",
    "HTTP2_DECODER",
    "AUTHSERVICE",
    "EXCHANGE_BINDINGS",
)
"""Modules a `log` section can name: those of skupper-router 3.4.0 and of qpid-dispatch 1.19."""

LOG_LEVELS = ("trace", "debug", "info", "notice", "warning", "error", "critical")
"""Levels in rising order. `trace` and `notice` are qpid-dispatch's."""

LOG = Section(
    "log",
    "What is logged, per module.",
    (
        Attribute(
            "module",
            Kind.ENUM,
            "Part of the router. `DEFAULT` applies to the modules that have no section of their own.",
            required=True,
            choices=LOG_MODULES,
        ),
        Attribute(
            "enable",
            Kind.STRING,
            "Comma-separated levels: trace, debug, info, notice, warning, error, critical; `info+` is "
            "info and above; `none` is nothing; `default` is what the module DEFAULT has.",
            default="info+",
            update=Update.LIVE,
        ),
        Attribute(
            "includeTimestamp",
            Kind.BOOLEAN,
            "Records carry a timestamp.",
            default=True,
            update=Update.LIVE,
            aliases=("timestamp",),
            inert="log records carry a timestamp always",
        ),
        Attribute(
            "includeSource",
            Kind.BOOLEAN,
            "Records carry file and line of the program.",
            update=Update.LIVE,
            aliases=("source",),
        ),
        Attribute(
            "outputFile",
            Kind.PATH,
            "File to append to, or `stdout` or `stderr`. Absent: stderr.",
            update=Update.LIVE,
            aliases=("output",),
        ),
    ),
)

SECTIONS: Mapping[str, Section] = {
    section.name: section
    for section in (
        ROUTER,
        NETWORK,
        SITE,
        SSL_PROFILE,
        LISTENER,
        CONNECTOR,
        ADDRESS,
        LINK_ROUTE,
        AUTO_LINK,
        LOG,
    )
}

UNSUPPORTED_SECTIONS: Mapping[str, str] = {
    "tcpListener": "TCP services are not carried",
    "tcpConnector": "TCP services are not carried",
    "listenerAddress": "TCP services are not carried",
    "httpListener": "HTTP services are not carried",
    "httpConnector": "HTTP services are not carried",
    "proxyProfile": "connections through an HTTP proxy are not made",
    "policy": _NO_POLICY,
    "vhost": _NO_POLICY,
    "vhostUserGroupSettings": _NO_POLICY,
    "authServicePlugin": "authentication is Cyrus SASL's or TLS's",
    "exchange": "exchanges are not supported",
    "binding": "exchanges are not supported",
    "console": "there is no console",
    "container": "set maxFrameSize and the like on listeners and connectors, the id on the router",
    "fixedAddress": "use `address` sections",
    "waypoint": "use `autoLink` sections",
    "management": "management is always there",
}
"""Sections of other routers that are known and refused, with the reason."""
