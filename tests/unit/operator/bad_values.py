"""Every field of every kind with values it must refuse: one table for the models and for the API server.

Each entry is a specification that is wrong in exactly one place, and the path that the refusal names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.unit.operator.bad_flows import FLOW_ANALYSIS, FLOW_LOG
from tests.unit.operator.bad_sites import GOSSIP_ROUTER, RELAY_SITE


@dataclass(frozen=True)
class Bad:
    """A wrong specification; `field` is the last part of the path that must appear in the error."""

    kind: str
    spec: dict[str, Any]
    field: str


def _listener(**wrong: Any) -> dict[str, Any]:
    return {"listeners": [{"name": "amqp", "port": 5672, **wrong}]}


def _router(field: str, spec: dict[str, Any]) -> Bad:
    return Bad("Router", spec, field)


_CONNECTOR: dict[str, Any] = {
    "from": {"routerRef": {"name": "west"}},
    "to": {"routerRef": {"name": "east"}},
    "role": "inter-router",
}


def _connector(field: str, **wrong: Any) -> Bad:
    return Bad("Connector", {**_CONNECTOR, **wrong}, field)


_TLS = {"secretName": "server"}
_PLAIN = {"mechanisms": ["SCRAM-SHA-256", "PLAIN"], "usersSecretRef": {"name": "users"}}
_LOGIN = {"mechanisms": ["PLAIN"], "credentialsSecretRef": {"name": "login"}}
_HOST = {"host": "mq.example", "port": 5672}
_LONG = "x" * 300
_NUL = "a\0b"

ROUTER: tuple[Bad, ...] = (
    _router("mode", {"mode": "standalone"}),
    _router("replicas", {"replicas": -1}),
    _router("replicas", {"replicas": 201}),
    _router("replicas", {"replicas": "two"}),
    _router("replicas", {"replicas": 33}),
    _router("site", {"site": "a place"}),
    _router("site", {"site": "x" * 64}),
    _router("listeners", {"listeners": []}),
    _router("listeners", {"listeners": [{"name": f"l{n}", "port": 6000 + n} for n in range(17)]}),
    _router("listeners", {"listeners": [{"name": "a", "port": 1000}, {"name": "a", "port": 1001}]}),
    _router("listeners", {"listeners": [{"name": "a", "port": 1000}, {"name": "b", "port": 1000}]}),
    _router("listeners", {"listeners": [{"name": "amqp", "port": 5672}], "replicas": 2}),
    _router("listeners", {"mode": "edge", "listeners": [{"name": "e", "role": "edge", "port": 1000}]}),
    _router("name", {"listeners": [{"port": 1000}]}),
    _router("name", _listener(name="Amqp")),
    _router("name", _listener(name="x" * 25)),
    _router("name health is that of the listener for healthPort", _listener(name="health")),
    _router("role", _listener(role="client")),
    _router("port", {"listeners": [{"name": "amqp"}]}),
    _router("port", _listener(port=0)),
    _router("port", _listener(port=65536)),
    _router("port", _listener(port="amqp")),
    _router("host", _listener(host="")),
    _router("host", _listener(host=_LONG)),
    _router("host", _listener(host=_NUL)),
    _router("cost", _listener(cost=0)),
    _router("tls", _listener(tls="server")),
    _router("secretName", _listener(tls={"disabled": False})),
    _router("secretName", _listener(tls={**_TLS, "disabled": True})),
    _router("requireClientCertificate", _listener(tls={"disabled": True, "requireClientCertificate": True})),
    _router("acceptInsecure", _listener(role="edge", acceptInsecure=True)),
    _router("secretName", _listener(tls={})),
    _router("secretName", _listener(tls={"secretName": "Bad_Name"})),
    _router("secretName", _listener(tls={**_TLS, "sslProfile": "net"})),
    _router("sslProfile", _listener(tls={"sslProfile": "net/1"})),
    _router("requireClientCertificate", _listener(tls={**_TLS, "requireClientCertificate": "yes"})),
    _router(
        "peerNames", _listener(role="edge", tls={**_TLS, "requireClientCertificate": True}, peerNames=[])
    ),
    _router(
        "peerNames", _listener(role="edge", tls={**_TLS, "requireClientCertificate": True}, peerNames=["a*"])
    ),
    _router("peerNames", _listener(tls={**_TLS, "requireClientCertificate": True}, peerNames=["a"])),
    _router("peerNames", _listener(role="edge", tls=_TLS, peerNames=["a"])),
    _router("peerNames", _listener(role="route-container", peerNames=["a"])),
    _router("peerNames", _listener(role="edge", sasl={"mechanisms": ["ANONYMOUS"]}, peerNames=["a"])),
    _router("allowPlainWithoutTls", _listener(sasl=_PLAIN)),
    _router("allowPlainWithoutTls", _listener(sasl={**_PLAIN, "allowPlainWithoutTls": False})),
    _router("allowPlainWithoutTls", _listener(role="edge", sasl=_PLAIN, tls={"disabled": True})),
    _router("minimumVersion", _listener(tls={**_TLS, "minimumVersion": "SSLv3"})),
    _router("mechanisms", _listener(sasl={})),
    _router("mechanisms", _listener(sasl={"mechanisms": []})),
    _router("mechanisms", _listener(sasl={"mechanisms": ["KERBEROS"]})),
    _router("mechanisms", _listener(sasl={"mechanisms": ["EXTERNAL"]})),
    _router("mechanisms", _listener(sasl={"mechanisms": ["ANONYMOUS", "ANONYMOUS"]})),
    _router("usersSecretRef", _listener(sasl={"mechanisms": ["SCRAM-SHA-256"]})),
    _router("name", _listener(sasl={"mechanisms": ["SCRAM-SHA-256"], "usersSecretRef": {}})),
    _router(
        "listeners",
        {
            "listeners": [
                {
                    "name": name,
                    "port": port,
                    "sasl": {"mechanisms": ["SCRAM-SHA-256"], "usersSecretRef": {"name": name}},
                }
                for name, port in (("a", 1000), ("b", 1001))
            ]
        },
    ),
    _router(
        "mechanisms",
        _listener(sasl={"mechanisms": ["ANONYMOUS"]}, tls={**_TLS, "requireClientCertificate": True}),
    ),
    _router("exposure", _listener(exposure="Ingress")),
    _router("nodePort", _listener(exposure="NodePort", nodePort=0)),
    _router("nodePort", _listener(nodePort=30000)),
    _router("serviceAnnotations", _listener(serviceAnnotations={"a": "b"})),
    _router("serviceAnnotations", _listener(exposure="LoadBalancer", serviceAnnotations={"a": 1})),
    _router("maxFrameSize", _listener(maxFrameSize=511)),
    _router("maxSessions", _listener(maxSessions=0)),
    _router("idleTimeoutSeconds", _listener(idleTimeoutSeconds=-1)),
    _router("initialHandshakeTimeoutSeconds", _listener(initialHandshakeTimeoutSeconds=-1)),
    _router("maxLinks", _listener(maxLinks=0)),
    _router("maxConnections", _listener(maxConnections=0)),
    _router("maxHandshakes", _listener(maxHandshakes=0)),
    _router("maxHandshakesPerHost", _listener(maxHandshakesPerHost=2**31)),
    _router("management", _listener(management="write")),
    _router("linkCapacity", _listener(linkCapacity=0)),
    _router("maxMessageSize", _listener(maxMessageSize=-1)),
    _router("stripAnnotations", _listener(stripAnnotations="all")),
    _router("healthPort", {"healthPort": 0}),
    _router("healthPort", {"healthPort": 5672}),
    _router("spec.listeners: ", {**_listener(), "healthPort": 5672}),
    _router("a listener has the port of healthPort (default: 9090)", _listener(port=9090)),
    _router("prefix", {"addresses": [{"distribution": "closest"}]}),
    _router("prefix", {"addresses": [{"prefix": "a", "pattern": "b", "distribution": "closest"}]}),
    _router("prefix", {"addresses": [{"prefix": "", "distribution": "closest"}]}),
    _router("pattern", {"addresses": [{"pattern": _LONG, "distribution": "closest"}]}),
    _router("prefix", {"addresses": [{"prefix": _NUL, "distribution": "closest"}]}),
    _router("pattern", {"addresses": [{"pattern": _NUL, "distribution": "closest"}]}),
    *(
        _router(message, {"addresses": [{**match, "distribution": "closest"}]})
        for message, match in (
            ("prefix has a wildcard; use pattern", {"prefix": "news/#"}),
            ("prefix has a wildcard; use pattern", {"prefix": "*"}),
            ("prefix has nothing but separators", {"prefix": "/"}),
            ("pattern has nothing but separators", {"pattern": ".."}),
            ("a wildcard in pattern must be a whole token", {"pattern": "a/#/b#"}),
            ("a wildcard in pattern must be a whole token", {"pattern": "news/*b"}),
        )
    ),
    _router("distribution", {"addresses": [{"prefix": "a"}]}),
    _router("distribution", {"addresses": [{"prefix": "a", "distribution": "random"}]}),
    *(
        _router(field, {"addresses": [{"prefix": "a", "distribution": "closest", **wrong}]})
        for field, wrong in (
            ("priority", {"priority": 10}),
            ("resendReleased", {"resendReleased": 1}),
            ("waypoint", {"waypoint": "yes"}),
            ("waypoint", {"waypoint": True, "egressPhase": 2}),
            ("ingressPhase", {"ingressPhase": -1}),
            ("egressPhase", {"egressPhase": 10}),
        )
    ),
    _router("addresses", {"addresses": [{"prefix": "a", "distribution": "closest"}] * 2}),
    _router("addresses", {"addresses": [{"prefix": f"a{n}", "distribution": "closest"} for n in range(129)]}),
    _router("workers", {"workers": 0}),
    _router("workers", {"workers": 65}),
    _router("flowIntervalSeconds", {"flowIntervalSeconds": -1}),
    _router("flowIntervalSeconds", {"flowIntervalSeconds": 3601}),
    _router("defaultDistribution", {"defaultDistribution": "none"}),
    _router("module", {"log": [{"module": "ROUTERS", "level": "info"}]}),
    _router("level", {"log": [{"module": "ROUTER", "level": "loud"}]}),
    _router("log", {"log": [{"module": "ROUTER", "level": "info"}, {"module": "ROUTER", "level": "debug"}]}),
    _router("policy", {"policy": {}}),
    _router("users", {"policy": {"groups": [{"name": "a"}]}}),
    _router("users", {"policy": {"groups": [{"name": "a", "users": []}]}}),
    _router("users", {"policy": {"groups": [{"name": "a", "users": ["*"]}]}}),
    _router("name", {"policy": {"groups": [{"name": "$default", "users": ["u"]}]}}),
    _router("groups", {"policy": {"groups": [{"name": "a", "users": ["u"]}] * 2}}),
    _router("sources", {"policy": {"defaultGroup": {"sources": ["news*"]}}}),
    _router("sources", {"policy": {"defaultGroup": {"sources": ["a b"]}}}),
    _router("targets", {"policy": {"defaultGroup": {"targets": ["a/${group}"]}}}),
    _router("targets", {"policy": {"groups": [{"name": "a", "users": ["u"], "targets": ["#a"]}]}}),
    _router("remoteHosts", {"policy": {"defaultGroup": {"remoteHosts": ["mq.example"]}}}),
    _router("maxSenders", {"policy": {"defaultGroup": {"maxSenders": -1}}}),
    _router("maxMessageSize", {"policy": {"defaultGroup": {"maxMessageSize": 0}}}),
    _router("maxConnections", {"policy": {"defaultGroup": {}, "maxConnections": "many"}}),
    _router("image", {"image": ""}),
    _router("requests", {"resources": {"requests": {"cpu": "a lot"}}}),
    _router("limits", {"resources": {"limits": {"memory": "much"}}}),
    _router("networkPolicy", {"networkPolicy": "Egress"}),
    _router("podTemplate", {"podTemplate": "none"}),
)

CONNECTOR: tuple[Bad, ...] = (
    Bad("Connector", {key: value for key, value in _CONNECTOR.items() if key != "from"}, "from"),
    Bad("Connector", {key: value for key, value in _CONNECTOR.items() if key != "to"}, "to"),
    Bad("Connector", {key: value for key, value in _CONNECTOR.items() if key != "role"}, "role"),
    _connector("routerRef", **{"from": {}}),
    _connector("name", **{"from": {"routerRef": {"name": "West"}}}),
    _connector("name", **{"from": {"routerRef": {"name": "east"}}}),
    _connector("name", to={"routerRef": {"name": ""}}),
    _connector("listener", to={"routerRef": {"name": "east", "listener": "Amqp"}}),
    _connector("to", to={}),
    _connector("to", to={"routerRef": {"name": "east"}, "host": "h", "port": 1}),
    _connector("port", to={"host": "mq.example"}),
    _connector("port", to={"routerRef": {"name": "east"}, "port": 5672}),
    _connector("port", to={"host": "mq.example", "port": 70000}),
    _connector("host", to={"host": "not a host", "port": 1}),
    _connector("role", role="uplink"),
    _connector("cost", cost=0),
    _connector("cost", cost=1_000_001),
    _connector("cost", cost="low"),
    _connector("dataConnections", dataConnections=17),
    _connector("dataConnections", dataConnections=1, role="normal"),
    _connector("secretName", tls={}),
    _connector("secretName", tls={"secretName": "-"}),
    _connector("secretName", tls={"secretName": "ca", "sslProfile": "net"}),
    _connector("sslProfile", tls={"sslProfile": "Net"}),
    _connector("verifyHostname", tls={"secretName": "ca", "verifyHostname": "no"}),
    _connector("sasl", sasl={}),
    _connector("mechanisms", sasl={"mechanisms": []}),
    _connector("secretName", tls={"disabled": True, "sslProfile": "net"}),
    _connector("mechanisms", role="normal", sasl={"mechanisms": ["EXTERNAL"]}),
    _connector("username", sasl={"username": "", "passwordSecretRef": {"name": "s"}}),
    _connector("username", sasl={"username": _NUL, "passwordSecretRef": {"name": "s"}}),
    _connector("passwordSecretRef", sasl={"username": "guest"}),
    _connector("name", sasl={"username": "guest", "passwordSecretRef": {}}),
    _connector("key", sasl={"username": "guest", "passwordSecretRef": {"name": "s", "key": "a/b"}}),
    _connector("name", sasl={"credentialsSecretRef": {}}),
    _connector("name", sasl={"credentialsSecretRef": {"name": "Login"}}),
    _connector("credentialsSecretRef", sasl={"credentialsSecretRef": {"name": "s"}, "username": "guest"}),
    _connector(
        "credentialsSecretRef",
        sasl={
            "credentialsSecretRef": {"name": "s"},
            "username": "guest",
            "passwordSecretRef": {"name": "s"},
        },
    ),
    _connector("allowPlainWithoutTls", to=_HOST, role="normal", sasl=_LOGIN),
    _connector("allowPlainWithoutTls", role="normal", sasl=_LOGIN),
    _connector("allowPlainWithoutTls", to=_HOST, tls={"disabled": True}, sasl=_LOGIN),
    _connector("maxFrameSize", maxFrameSize=0),
    _connector("maxSessions", maxSessions=40000),
    _connector("idleTimeoutSeconds", idleTimeoutSeconds=100_000),
    _connector("linkCapacity", linkCapacity=0),
    _connector("autoLinks", autoLinks=[{"address": "orders", "direction": "in"}]),
    *(
        _connector(field, role="route-container", autoLinks=links)
        for field, links in (
            ("autoLinks", [{"address": "orders", "direction": "in"}] * 2),
            ("autoLinks", [{"address": f"a{number}", "direction": "in"} for number in range(65)]),
            ("address", [{"direction": "in"}]),
            ("address", [{"address": "", "direction": "in"}]),
            ("address", [{"address": _LONG, "direction": "in"}]),
            ("address", [{"address": _NUL, "direction": "in"}]),
            ("externalAddress", [{"address": "orders", "direction": "in", "externalAddress": _NUL}]),
            *(
                ("address is for routers", [{"address": address, "direction": "out"}])
                for address in (
                    "mc/sfe.all",
                    "/sfe.a:0",
                    "_topo/0/all/qdrouter",
                    "_$phase.1/mc/sfe.all",
                    "$x",
                )
            ),
            ("direction", [{"address": "orders"}]),
            ("direction", [{"address": "orders", "direction": "both"}]),
            ("externalAddress", [{"address": "orders", "direction": "in", "externalAddress": ""}]),
            ("phase", [{"address": "orders", "direction": "in", "phase": 10}]),
            ("phase", [{"address": "orders", "direction": "in", "phase": "1"}]),
        )
    ),
)


def _profile(field: str, **wrong: Any) -> Bad:
    return Bad("SslProfile", {"secretName": "net", **wrong}, field)


SSL_PROFILE: tuple[Bad, ...] = (
    Bad("SslProfile", {}, "secretName"),
    _profile("secretName", secretName="Not_A_Name"),
    _profile("secretName", secretName=_LONG),
    _profile("crlKey", crlKey=""),
    _profile("crlKey", crlKey="a/b"),
    _profile("policy", retention={"policy": "Never"}),
    _profile("oldOrdinals", retention={"oldOrdinals": -1}),
    _profile("oldOrdinals", retention={"oldOrdinals": 17}),
    _profile("delaySeconds", retention={"delaySeconds": -1}),
    _profile("delaySeconds", retention={"delaySeconds": "10m"}),
    _profile("request", rotation={"request": -1}),
    _profile("request", rotation={"request": 2**31}),
    _profile("revoke", rotation={"revoke": "yes"}),
    _profile("expiringDays", expiringDays=0),
    _profile("oldestValidOrdinal", oldestValidOrdinal=-1),
)


def _link_route(field: str, **wrong: Any) -> Bad:
    spec = {"prefix": "b2", "connector": "broker", **wrong}
    return Bad("LinkRoute", {key: value for key, value in spec.items() if value is not None}, field)


LINK_ROUTE: tuple[Bad, ...] = (
    _link_route("exactly one of prefix and pattern", prefix=None),
    _link_route("exactly one of prefix and pattern", pattern="b2.#"),
    _link_route("prefix", prefix=""),
    _link_route("prefix", prefix=_LONG),
    _link_route("prefix has a wildcard; use pattern", prefix="b2.#"),
    _link_route("prefix has a wildcard; use pattern", prefix="*"),
    _link_route("prefix has nothing but separators", prefix="./"),
    _link_route("pattern", prefix=None, pattern=""),
    _link_route("pattern has nothing but separators", prefix=None, pattern="/"),
    _link_route("a wildcard in pattern must be a whole token", prefix=None, pattern="b2*"),
    _link_route("prefix is for routers", prefix="amqp:/_topo"),
    _link_route("prefix is for routers", prefix="mc/sfe.all"),
    _link_route("pattern is for routers", prefix=None, pattern="$management"),
    _link_route("direction", direction="inout"),
    _link_route("exactly one of connector and containerId", connector=None),
    _link_route("exactly one of connector and containerId", containerId="broker"),
    _link_route("connector", connector="Broker"),
    _link_route("containerId", connector=None, containerId=""),
    _link_route("routers", routers=[]),
    _link_route("routers", routers="west"),
    _link_route("routers", routers=["west", "west"]),
    _link_route("routers", routers=["West"]),
    _link_route("routers", routers=[f"r{number}" for number in range(65)]),
    _link_route("addExternalPrefix", addExternalPrefix=""),
    _link_route("delExternalPrefix", delExternalPrefix=_LONG),
    _link_route("prefix", prefix=_NUL),
    _link_route("pattern", prefix=None, pattern=_NUL),
    _link_route("containerId", connector=None, containerId=_NUL),
    _link_route("addExternalPrefix", addExternalPrefix=_NUL),
    _link_route("delExternalPrefix", delExternalPrefix=_NUL),
)

SITES = tuple(
    Bad(kind, spec, field)
    for kind, rows in (("RelaySite", RELAY_SITE), ("GossipRouter", GOSSIP_ROUTER))
    for field, spec in rows
)

FLOWS = tuple(
    Bad(kind, spec, field)
    for kind, rows in (("FlowLog", FLOW_LOG), ("FlowAnalysis", FLOW_ANALYSIS))
    for field, spec in rows
)

ALL = ROUTER + CONNECTOR + SSL_PROFILE + LINK_ROUTE + SITES + FLOWS
IDS = [f"{bad.kind}-{bad.field}-{number}" for number, bad in enumerate(ALL)]
