"""Sections about connections: sslProfile, listener, connector."""

from __future__ import annotations

from dataclasses import replace

from isthmus_router.config.attributes import Attribute, Kind, Section, Update
from isthmus_router.config.model import AddressFamily
from isthmus_router.core.access import ManagementLevel
from isthmus_router.core.roles import Role, StripAnnotations

SSL_PROFILE = Section(
    "sslProfile",
    "Credentials and rules for TLS, used by listeners and connectors.",
    (
        Attribute("name", Kind.STRING, "Unique name.", required=True),
        Attribute(
            "ciphers",
            Kind.STRING,
            "OpenSSL cipher list for TLS 1.2 and older. Absent: strong ciphers. Ciphers without authentication or "
            "encryption are never used. The security level is 2 unless the list has `@SECLEVEL=`.",
            update=Update.LIVE,
        ),
        Attribute(
            "protocols",
            Kind.WORDS,
            "Allowed TLS versions. Absent: `TLSv1.2 TLSv1.3`. `TLSv1` and `TLSv1.1` lower the security level to 0.",
            update=Update.LIVE,
        ),
        Attribute(
            "caCertFile",
            Kind.PATH,
            "PEM file of the certificate authorities that peers are verified against. It has at most 1 MiB, and no "
            "block other than certificates and revocation lists.",
            update=Update.LIVE,
            aliases=("certDb",),
            contents=True,
        ),
        Attribute(
            "crlFile",
            Kind.PATH,
            "PEM file of certificate revocation lists, of at most 64 MiB, one of each authority from the issuers of "
            "peers' certificates to the root. Certificates in it are not used. Peers with a revoked certificate in "
            "their chain are refused, and so are peers whose chain has an authority without a valid list in the file. "
            "A change also closes the open connections of peers whose chains it revokes. Needs caCertFile. Absent: "
            "revocation is not checked.",
            update=Update.LIVE,
            contents=True,
        ),
        Attribute(
            "certFile",
            Kind.PATH,
            "PEM file of the own certificate chain, of at most 1 MiB.",
            update=Update.LIVE,
            contents=True,
        ),
        Attribute(
            "privateKeyFile",
            Kind.PATH,
            "PEM file of the own private key, of at most 1 MiB. Absent: the key is in certFile.",
            update=Update.LIVE,
            aliases=("keyFile",),
            contents=True,
        ),
        Attribute(
            "password",
            Kind.SECRET,
            "Password of the private key. `passwordFile: PATH` is `password: file:PATH`.",
            update=Update.LIVE,
            file_alias="passwordFile",
        ),
        Attribute(
            "uidFormat",
            Kind.STRING,
            "How the user of a peer is made from its certificate: one letter per field, e.g. `1` (SHA-1 "
            "fingerprint), `2` (SHA-256), `5` (SHA-512), `c` (country), `s` (state), `l` (locality), "
            "`o` (organisation), `u` (unit), `n` (common name). Absent: the whole subject.",
            update=Update.LIVE,
        ),
        Attribute(
            "uidNameMappingFile",
            Kind.PATH,
            "JSON file, an object that gives users as `uidFormat` makes them other names, by which the policy and "
            "management know them. Who is not in it keeps the first. On listeners.",
            update=Update.LIVE,
            aliases=("displayNameFile",),
            contents=True,
        ),
        Attribute(
            "ordinal",
            Kind.INTEGER,
            "Generation of the credentials. When it is raised, connectors of role inter-router and edge open new "
            "connections beside those they have. It can never be lowered.",
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

_HOST = "Address or name of the host"
_FAMILY = Attribute(
    "socketAddressFamily",
    Kind.ENUM,
    "Insist on IPv4 or IPv6. Absent: whatever the host resolves to.",
    choices=tuple(AddressFamily),
    result=AddressFamily,
    aliases=("protocolFamily",),
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
    "Cost of the link between two routers; the greater of both sides' values counts. "
    "With role `edge` the order of preference among an edge's connectors, the least first.",
    default=1,
    minimum=1,
    maximum=2**31 - 1,
)
_SSL_PROFILE = Attribute("sslProfile", Kind.STRING, "Name of the sslProfile to use. Absent: no TLS.")
_MECHANISMS = Attribute(
    "saslMechanisms",
    Kind.WORDS,
    "Allowed SASL mechanisms, separated by spaces. Absent: all available.",
    result=str.upper,
)
_ALLOW_PLAIN = Attribute(
    "allowPlainWithoutTls",
    Kind.BOOLEAN,
    "PLAIN, which sends the password as it is, may be used on connections without TLS. When no, that is so only where "
    "the peer has a loopback address of this machine.",
    default=False,
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
        default=1000,
        minimum=1,
        maximum=32768,
    ),
    Attribute(
        "maxSessionFrames",
        Kind.INTEGER,
        "Incoming window of a session, in frames. Absent: 8 MiB worth for the first session of a client "
        "connection and less for every further one; between routers 128 MiB for the first and its share for "
        "every further one, at least 4 MiB. Sessions of streams from another router, beyond the first 16 "
        "sessions, share 64 MiB, with at least 128 KiB for each.",
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
    "Credit given on each incoming link, in messages; 16 times that with role `inter-router` or `edge`, where many "
    "clients share a link. Beyond 256 links of a client, the n-th one gets 256 / n of it.",
    default=250,
    minimum=1,
    maximum=2**31 - 1,
)
_MAX_MESSAGE_SIZE = Attribute(
    "maxMessageSize",
    Kind.INTEGER,
    "Greatest message taken from a client, in bytes; 0 is any. A larger one is rejected and its link closed with "
    "`amqp:link:message-size-exceeded`.",
    default=0,
    minimum=0,
    maximum=2**63 - 1,
)
_MESSAGE_LOGGING = Attribute(
    "messageLoggingComponents",
    Kind.STRING,
    "Parts of messages to log.",
    default="none",
    inert="messages are not logged",
)
_MANAGEMENT = Attribute(
    "management",
    Kind.ENUM,
    "What peers may ask of `$management`: `none`; `basic`, totals of this router and the schema; `read`, everything "
    "that can be read, also the connections, addresses and log; `write`, changes as well. Of a connection between "
    "routers, the level of requests that arrive through it. Absent: `read` for routers and for peers that have "
    "authenticated, else `basic`.",
    choices=("none", "basic", "read", "write"),
    result=ManagementLevel.from_label,
    update=Update.LIVE,
)
_POLICY_VHOST = "Name of the vhost whose policy holds for these connections"
_OPEN_PROPERTIES = Attribute(
    "openProperties",
    Kind.MAP,
    "Extra properties of the AMQP open frame, as JSON. For the roles normal and route-container.",
    default={},
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
        _ALLOW_PLAIN,
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
        Attribute(
            "requireClientCertificate",
            Kind.BOOLEAN,
            "Connections without TLS, or without a client certificate that `caCertFile` of the sslProfile verifies, "
            "are refused, whatever the SASL mechanism.",
            default=False,
        ),
        Attribute(
            "peerNames",
            Kind.LIST,
            "Names, one of which the certificate of a peer must have, as a DNS name or as its common name; `*.` stands "
            "for one label. Other connections are closed with `amqp:unauthorized-access`. Implies "
            "requireClientCertificate. A change closes the connections whose names are no longer in the list. Empty: "
            "any certificate of the authorities.",
            default=(),
            update=Update.LIVE,
        ),
        *_SESSION_LIMITS,
        Attribute(
            "maxLinks",
            Kind.INTEGER,
            "Links that the peer may attach on a connection. One more is refused with "
            "`amqp:resource-limit-exceeded`; 1,000 more that the peer does not detach close the connection with it. "
            "Absent: 16,384 with role `normal`, 262,144 with the other roles.",
            minimum=1,
            maximum=2**31 - 1,
        ),
        Attribute(
            "maxConnections",
            Kind.INTEGER,
            "Open connections of the listener at the same time. One more is closed with "
            "`amqp:resource-limit-exceeded`. Absent: 16,384 with role `edge`, 4,096 with role `inter-router`, any "
            "number with the other roles, whose connections the `policy` section bounds. With role `inter-router`, one "
            "user or host without login has at most 64, or as many as are free for others.",
            minimum=1,
            maximum=2**31 - 1,
        ),
        Attribute(
            "maxHandshakes",
            Kind.INTEGER,
            "Connections of the listener that have not been opened yet (TLS, SASL and the AMQP open). With one more, "
            "the router drops the one that has waited longest, of the host that has most of them.",
            default=1024,
            minimum=1,
            maximum=2**31 - 1,
        ),
        Attribute(
            "maxHandshakesPerHost",
            Kind.INTEGER,
            "Connections of one host (IPv6: of one /64 network) that have not been opened yet. With one more, the "
            "router drops the one that has waited longest.",
            default=512,
            minimum=1,
            maximum=2**31 - 1,
        ),
        Attribute(
            "initialHandshakeTimeoutSeconds",
            Kind.INTEGER,
            "A connection not opened after this many seconds is closed. 0: after 15 seconds.",
            default=0,
            minimum=0,
            maximum=86400,
        ),
        _STRIP,
        _LINK_CAPACITY,
        _MAX_MESSAGE_SIZE,
        Attribute(
            "failoverUrls",
            Kind.STRING,
            "Comma-separated URLs, `[scheme://]host[:port]`, that clients are told to use when the connection "
            "fails (`failover-server-list` of the open frame).",
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
        Attribute(
            "policyVhost",
            Kind.STRING,
            f"{_POLICY_VHOST}. Absent: the one that the client names; none for connections of other routers, of which "
            "only who may connect can be decided.",
        ),
        _MANAGEMENT,
        Attribute(
            "allowFlowRecords",
            Kind.BOOLEAN,
            "Clients may receive flow records (`mc/sfe.*`) and send commands to their sources (`sfe.*`). For the "
            "listener that a collector uses; all its clients may.",
            default=False,
            update=Update.LIVE,
        ),
        Attribute(
            "multiTenant",
            Kind.BOOLEAN,
            "Addresses are kept apart by virtual host.",
            default=False,
            unsupported="addresses are not kept apart by virtual host",
        ),
        Attribute(
            "saslPlugin",
            Kind.STRING,
            "Name of an authServicePlugin.",
            unsupported="authentication is Cyrus SASL's or TLS's",
        ),
        Attribute(
            "trustedCertsFile",
            Kind.PATH,
            "Certificate authorities of peers.",
            aliases=("trustedCerts",),
            unsupported="use caCertFile of the sslProfile",
        ),
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
        replace(_COST, update=Update.LIVE),
        _SSL_PROFILE,
        Attribute(
            "proxyProfile",
            Kind.STRING,
            "Name of the proxyProfile to use.",
            unsupported="connections through an HTTP proxy are not supported",
        ),
        _MECHANISMS,
        _ALLOW_PLAIN,
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
        _MAX_MESSAGE_SIZE,
        Attribute(
            "verifyHostname",
            Kind.BOOLEAN,
            "With an sslProfile: the peer's certificate must be for `host`: a DNS name in it, or its common name; IP "
            "addresses in certificates are not looked at.",
            default=True,
            aliases=("verifyHostName",),
        ),
        Attribute(
            "saslUsername",
            Kind.STRING,
            "User to authenticate as. Another one counts from the next connection on; what is open stays.",
            update=Update.LIVE,
        ),
        Attribute(
            "saslPassword",
            Kind.SECRET,
            "Password of saslUsername. Another one counts from the next connection on.",
            update=Update.LIVE,
        ),
        _MESSAGE_LOGGING,
        Attribute(
            "policyVhost",
            Kind.STRING,
            f"{_POLICY_VHOST}, as its group `$connector` says. Absent: none. For the roles normal and route-container.",
        ),
        Attribute(
            "allowPeerLinks",
            Kind.BOOLEAN,
            "The peer may attach links of its own, also to `$management`, as a client may. Without it, the peer has "
            "only the links that the router attaches, and those that `policyVhost` allows if the policy is in force. "
            "For the roles normal and route-container.",
            default=False,
        ),
        replace(_MANAGEMENT, update=Update.REPLACE),
        _OPEN_PROPERTIES,
        Attribute(
            "dataConnectionCount",
            Kind.INTEGER,
            "Connections beside the first that carry streams, with role inter-router. Absent: as many as the "
            "router section says. More are opened at once; fewer count from the next ordinal on.",
            minimum=0,
            maximum=999,
            update=Update.LIVE,
        ),
        Attribute("name", Kind.STRING, "Unique name. Absent: `connector/<host>:<port>`."),
    ),
)
