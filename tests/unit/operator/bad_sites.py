"""Values that RelaySites and GossipRouters must refuse; part of the table in `bad_values.py`."""

from __future__ import annotations

from typing import Any

_SITE: dict[str, Any] = {"routerRef": {"name": "nyc"}, "group": "trades", "site": "nyc"}
_REMOTE = {"site": "sfo", "endpoints": ["sfo.example:7900"]}
_TLS = {"secretName": "net"}
_GOSSIP = {"type": "gossipRouter", "gossipRouterRef": {"name": "g"}}

Row = tuple[str, dict[str, Any]]


def _without(name: str) -> dict[str, Any]:
    return {key: value for key, value in _SITE.items() if key != name}


def _discovery(field: str, **wrong: Any) -> Row:
    return field, {**_SITE, "discovery": wrong}


def _bridge(field: str, **wrong: Any) -> Row:
    return field, {**_SITE, "bridge": wrong}


def _remote(field: str, **wrong: Any) -> Row:
    remote = {key: value for key, value in {**_REMOTE, **wrong}.items() if value is not None}
    return field, {**_SITE, "remoteSites": [remote]}


def _address(field: str, **wrong: Any) -> Row:
    return field, {**_SITE, "remoteSites": [_REMOTE], "addresses": [{"pattern": "orders/#", **wrong}]}


RELAY_SITE: tuple[Row, ...] = (
    ("routerRef", _without("routerRef")),
    ("group", _without("group")),
    ("site", _without("site")),
    ("name", {**_SITE, "routerRef": {"name": "Nyc"}}),
    ("group", {**_SITE, "group": "Trades"}),
    ("group", {**_SITE, "group": "x" * 64}),
    ("site", {**_SITE, "site": "nyc.east"}),
    ("site", {**_SITE, "site": "-nyc"}),
    ("memberPort", {**_SITE, "memberPort": 0}),
    _discovery("type", type="bonjour"),
    _discovery("discovery.hosts goes with discovery.type hostList", type="hostList"),
    _discovery("discovery.hosts goes with discovery.type hostList", hosts=["a"]),
    _discovery("hosts", type="hostList", hosts=[]),
    _discovery("hosts", type="hostList", hosts=["a b"]),
    _discovery("hosts", type="hostList", hosts=["a:0"]),
    _discovery("hosts", type="hostList", hosts=["a:port"]),
    _discovery("hosts", type="hostList", hosts=["a:99999"]),
    _discovery("hosts", type="hostList", hosts=["a:65536"]),
    _discovery("hosts", type="hostList", hosts=["a..b"]),
    _discovery("hosts", type="hostList", hosts=["x" * 64]),
    _discovery("portRange", type="hostList", hosts=["a"], portRange=101),
    _discovery("discovery.portRange needs discovery.type hostList", portRange=1),
    _discovery("discovery.multicast needs discovery.type multicast", multicast={"port": 1}),
    _discovery("address", type="multicast", multicast={"address": "group"}),
    _discovery("address", type="multicast", multicast={"address": "ff15::78"}),
    _discovery("address", type="multicast", multicast={"address": "10.0.0.1"}),
    _discovery("port", type="multicast", multicast={"port": 0}),
    _discovery("gossipRouters goes with discovery.type gossipRouter or tunnel", type="tunnel"),
    _discovery("gossipRouters goes with discovery.type gossipRouter or tunnel", gossipRouters=["g"]),
    _discovery("only one of discovery.gossipRouterRef and", **_GOSSIP, gossipRouters=["g"]),
    _discovery("name", type="tunnel", gossipRouterRef={"name": "G"}),
    _discovery("gossipRouters", type="tunnel", gossipRouters=["g:h"]),
    _discovery("discovery.gossipTls needs discovery.gossipRouterRef", gossipTls=_TLS),
    _discovery("exactly one of secretName, sslProfile and disabled", **_GOSSIP, gossipTls={}),
    ("exactly one of secretName, sslProfile and", {**_SITE, "tls": {**_TLS, "sslProfile": "net"}}),
    ("exactly one of secretName, sslProfile and", {**_SITE, "tls": {**_TLS, "disabled": True}}),
    ("exactly one of secretName, sslProfile and", {**_SITE, "bridge": {"tls": {"disabled": False}}}),
    ("peerNames needs tls: without it there are no certificates", {**_SITE, "peerNames": ["a"]}),
    ("peerNames", {**_SITE, "tls": _TLS, "peerNames": []}),
    ("peerNames", {**_SITE, "tls": _TLS, "peerNames": ["a b"]}),
    ("peerNames", {**_SITE, "tls": _TLS, "peerNames": ["a.*.example"]}),
    _bridge("port", port=65536),
    _bridge("bridge.port must not be memberPort", port=7800),
    ("bridge.port must not be memberPort", {**_SITE, "memberPort": 7900}),
    _bridge("expose", expose="Ingress"),
    _bridge("bridge.nodePort needs bridge.expose NodePort or LoadBalancer", nodePort=30000),
    _bridge("nodePort", expose="NodePort", nodePort=80),
    _bridge("bridge.serviceAnnotations needs a Service", expose="None", serviceAnnotations={"a": "b"}),
    _bridge("secretName", tls={"secretName": "-"}),
    _remote("site", site="SFO"),
    _remote("remoteSites must not name the own site (spec.site)", site="nyc"),
    ("remoteSites", {**_SITE, "remoteSites": [_REMOTE, _REMOTE]}),
    ("remoteSites", {**_SITE, "remoteSites": [{**_REMOTE, "site": f"s{n}"} for n in range(33)]}),
    _remote("endpoints", endpoints=[]),
    _remote("endpoints", endpoints=["sfo.example:"]),
    _remote("only one of endpoints, relaySiteRef and over may be set", over="bridges/sfo"),
    _remote("only one of endpoints, relaySiteRef and over may be set", relaySiteRef={"name": "sfo"}),
    _remote("over", endpoints=None, over="bridges/#"),
    _remote("over", endpoints=None, over="a b"),
    _remote("over", endpoints=None, over="a\0b"),
    _remote("over must not be an address below relay/", endpoints=None, over="relay/x"),
    _remote("acceptInsecure of a remote site needs over", acceptInsecure=True),
    _remote("name", endpoints=None, relaySiteRef={"name": ""}),
    _remote("remoteSites[].peerNames needs bridge.tls", peerNames=["*.sfo.example"]),
    _address("pattern", pattern=""),
    _address("pattern", pattern="a\0b"),
    _address("a wildcard in pattern must be a whole token", pattern="orders#"),
    _address("pattern has nothing but separators", pattern="/."),
    _address("pattern must not begin with relay/", pattern="relay/#"),
    _address("pattern must not begin with relay/", pattern="/relay"),
    _address("pattern must not begin with relay/", pattern="$management"),
    _address("pattern must not begin with relay/", pattern="_topo/#"),
    _address("addresses[].sites must be sites of remoteSites", sites=["lon"]),
    _address("sites", sites=["*"]),
    ("addresses", {**_SITE, "addresses": [{"pattern": "a"}, {"pattern": "a"}]}),
    ("relays", {**_SITE, "relays": 0}),
    ("relays", {**_SITE, "relays": 9}),
    ("copies", {**_SITE, "copies": 4}),
    ("messages", {**_SITE, "buffer": {"messages": 0}}),
    ("bytes", {**_SITE, "buffer": {"bytes": "64Mi"}}),
    ("seconds", {**_SITE, "buffer": {"seconds": -1}}),
    ("maxMessageBytes", {**_SITE, "maxMessageBytes": 100}),
    ("stateAddress", {**_SITE, "stateAddress": ""}),
    ("stateAddress must not be an address below relay/", {**_SITE, "stateAddress": "relay/trades"}),
    ("stateAddress must not be an address below relay/", {**_SITE, "stateAddress": "relay"}),
    ("stateAddress", {**_SITE, "stateAddress": "relay/#"}),
    ("stateAddress", {**_SITE, "stateAddress": "a b"}),
    ("stateAddress", {**_SITE, "stateAddress": "$management"}),
    ("stateAddress", {**_SITE, "stateAddress": "trades/"}),
)

GOSSIP_ROUTER: tuple[Row, ...] = (
    ("replicas", {"replicas": 9}),
    ("port", {"port": 0}),
    ("healthPort must not be port", {"healthPort": 12001}),
    ("healthPort", {"healthPort": "http"}),
    ("secretName", {"tls": {}}),
    ("expirySeconds", {"expirySeconds": 0}),
    ("expose", {"expose": "None"}),
    ("nodePort needs expose NodePort or LoadBalancer", {"nodePort": 30000}),
    ("nodePort", {"expose": "NodePort", "nodePort": 80}),
    ("serviceAnnotations needs expose NodePort or LoadBalancer", {"serviceAnnotations": {"a": "b"}}),
    ("networkPolicy", {"networkPolicy": "Egress"}),
    ("image", {"image": ""}),
    ("limits", {"resources": {"limits": {"memory": "much"}}}),
    ("podTemplate", {"podTemplate": "none"}),
)
