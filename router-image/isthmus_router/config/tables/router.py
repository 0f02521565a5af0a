"""Sections about the router as a whole: router, network, site, log."""

from __future__ import annotations

from isthmus_router.config.attributes import Attribute, Kind, Section, Update
from isthmus_router.config.model import Distribution, Mode

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
            "Threads that read and write connections, as far as there are as many cores. Decisions are made by "
            "one of them.",
            default=4,
            minimum=1,
            maximum=1024,
            update=Update.RESTART,
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
            update=Update.LIVE,
        ),
        Attribute(
            "metadata",
            Kind.STRING,
            "Free text shown by management.",
            update=Update.LIVE,
        ),
        Attribute(
            "dataConnectionCount",
            Kind.STRING,
            "Data connections per inter-router connector for streams: a number, or `auto`, which is 2. More are "
            "opened at once; fewer count from the next ordinal on.",
            default="auto",
            update=Update.LIVE,
        ),
        Attribute(
            "allowResumableLinkRoute",
            Kind.BOOLEAN,
            "Routed links may have an expiry policy other than `link-detach`, or a timeout.",
            default=True,
            update=Update.RESTART,
        ),
        Attribute(
            "allowUnsettledMulticast",
            Kind.BOOLEAN,
            "What becomes of unsettled multicast deliveries.",
            default=False,
            update=Update.RESTART,
            inert="the sender learns the outcome when every consumer has settled",
        ),
        Attribute(
            "dropTcpConnections",
            Kind.BOOLEAN,
            "What becomes of TCP adaptor connections.",
            default=True,
            update=Update.RESTART,
            inert="there is no TCP adaptor",
        ),
        Attribute(
            "flowRecords",
            Kind.BOOLEAN,
            "Flow records are sent to collectors that listen (docs/flow-records.md). "
            "Not an attribute of qdrouterd and skrouterd.",
            default=True,
            update=Update.RESTART,
        ),
        Attribute(
            "flowIntervalSeconds",
            Kind.INTEGER,
            "Seconds that a delivery summary among the flow records is about. "
            "Not an attribute of qdrouterd and skrouterd.",
            default=10,
            minimum=1,
            maximum=3600,
            update=Update.RESTART,
        ),
        Attribute(
            "managementReadOnly",
            Kind.BOOLEAN,
            "Management may look at everything and change nothing: the file alone decides. "
            "Not an attribute of qdrouterd and skrouterd.",
            default=False,
            update=Update.RESTART,
        ),
        Attribute(
            "maxFailedLoginsPerMinute",
            Kind.INTEGER,
            "Logins with a password that may fail in a minute for one user name from one host (IPv6: one /64 network), "
            "and ten times as many for all user names from it. The router refuses further ones without checking them. "
            "Of logins with SCRAM that end without an outcome, five times as many for one name and ten times for all. "
            "0: any number. Not an attribute of qdrouterd and skrouterd.",
            default=10,
            minimum=0,
            maximum=1_000_000,
            update=Update.RESTART,
        ),
        Attribute(
            "stalledMessageTimeoutSeconds",
            Kind.INTEGER,
            "Time after which the router gives up a message that it passes on while it arrives, if other messages have "
            "waited for its receiver all the time and less than 64 KiB of it have arrived. The receiver sees it "
            "aborted, the sender gets modified and its link is closed. 0: never. "
            "Not an attribute of qdrouterd and skrouterd.",
            default=60,
            minimum=0,
            maximum=86400,
            update=Update.RESTART,
        ),
        Attribute(
            "slowReceiverTimeoutSeconds",
            Kind.INTEGER,
            "Time for which a receiver may hold up a multicast message that the router passes on while it arrives, if "
            "other receivers could go on and it takes less than 8 KiB of the message. Then the router leaves it out, "
            "and the receiver sees the message aborted. For messages from other routers, it does so also when all of "
            "its receivers are slow, after stalledMessageTimeoutSeconds. State the same on all routers. 0: without "
            "end. "
            "Not an attribute of qdrouterd and skrouterd.",
            default=10,
            minimum=0,
            maximum=86400,
            update=Update.RESTART,
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
    "RELAY",
    "TRANSPORT",
    "ADDRESS_WATCH",
    "HTTP1_OBSERVER",
    "HTTP2_OBSERVER",
    "HTTP2_DECODER",
    "AUTHSERVICE",
    "EXCHANGE_BINDINGS",
    "GOSSIP",
)
"""Modules a `log` section can name: those of skupper-router 3.4.0 and of qpid-dispatch 1.19; and the gossip router."""

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
