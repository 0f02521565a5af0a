"""The sections of a site: what they mean, what is refused and how, and what a change needs."""

from __future__ import annotations

import pytest

from isthmus_router.config import (
    ConfigError,
    Configuration,
    Discovery,
    Endpoint,
    PhysicalChoice,
    RelaySiteConfig,
    parse,
)
from isthmus_router.config.diff import diff

SITE = """
router {
    mode: interior
    id: nyc-0
}
sslProfile {
    name: bridge
}
relaySite {
    group: trades
    site: nyc
    announce: 10.0.0.1, nyc-0.example:7801
    discovery: dns
    discoveryHosts: nyc-members.example
    bridgeSslProfile: bridge
    plainText: yes
    relays: 2
}
relayRemote {
    site: sfo
    endpoints: sfo.example, [2001:db8::1]:7901
    peerNames: *.sfo.example
}
relayRemote {
    site: lon
    over: bridges/lon
}
relayAddress {
    pattern: orders/#
    sites: sfo, lon
}
relayAddress {
    pattern: local/*
    sites:
}
"""


def read(*replacements: tuple[str, str]) -> Configuration:
    text = SITE
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return parse(text, "f")


def site(*replacements: tuple[str, str]) -> RelaySiteConfig:
    found = read(*replacements).relay_site
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("discovery", "missing"),
    [
        ("dns", ["sslProfile"]),
        ("gossipRouter", ["sslProfile", "gossipSslProfile"]),
        ("tunnel", ["sslProfile", "gossipSslProfile"]),
    ],
)
def test_connections_without_tls_are_refused_unless_stated(discovery: str, missing: list[str]) -> None:
    chosen = ("discovery: dns", f"discovery: {discovery}")
    with pytest.raises(ConfigError) as caught:
        read(("    plainText: yes\n", ""), chosen)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(missing)
    for line, name in zip(lines, missing, strict=True):
        assert f"relaySite, attribute {name}: is required, as connections with" in line
        assert "name an sslProfile, or state plainText: yes" in line
    kinds = {"sslProfile": "members", "gossipSslProfile": "gossip"}
    assert site(chosen).without_tls == tuple(kinds[name] for name in missing)


def test_a_bridge_without_tls_is_refused_unless_stated() -> None:
    every = ("    bridgeSslProfile: bridge\n", ""), ("    peerNames: *.sfo.example\n", "")
    with pytest.raises(
        ConfigError, match="attribute bridgeSslProfile: is required, as connections with other sites"
    ):
        read(*every, ("plainText: yes", "sslProfile: bridge"))
    assert site(*every).without_tls == ("members", "bridge")
    assert site(("plainText: yes", "sslProfile: bridge")).without_tls == ()


def test_a_site() -> None:
    configuration = read()
    found = site()
    assert (found.group, found.site, found.member_name, found.domain) == ("trades", "nyc", None, "")
    assert (found.member_port, found.bridge_port, found.relays, found.copies) == (7800, 7900, 2, 2)
    assert (found.buffer_messages, found.buffer_bytes, found.buffer_seconds) == (65536, 64 * 2**20, 60)
    assert found.max_message_bytes == 2**20
    assert found.discovery is Discovery.DNS
    assert found.address_choice is PhysicalChoice.FIRST
    sfo, lon = configuration.relay_remotes
    assert sfo.endpoints == (Endpoint("sfo.example"), Endpoint("2001:db8::1", 7901))
    assert sfo.peer_names == ("*.sfo.example",)
    assert (lon.endpoints, lon.over) == ((), "bridges/lon")
    orders, local = configuration.relay_addresses
    assert (orders.pattern, orders.sites) == ("orders/#", ("sfo", "lon"))
    assert (local.pattern, local.sites) == ("local/*", ())


def test_ports_that_are_not_given() -> None:
    found = site()
    assert found.announced == (("10.0.0.1", 7800), ("nyc-0.example", 7801))
    assert found.announced_bridges == (("10.0.0.1", 7900), ("nyc-0.example", 7900))
    assert found.whom_to_ask == (("nyc-members.example", 7800),)
    assert read().relay_remotes[0].bridges == (("sfo.example", 7900), ("2001:db8::1", 7901))
    gossip = site(("discovery: dns", "discovery: tunnel"), ("nyc-members.example", "g1, g2:7"))
    assert gossip.whom_to_ask == (("g1", 12001), ("g2", 7))
    told = site(("relays: 2", "announceBridge: lb.example:443"))
    assert told.announced_bridges == (("lb.example", 443),)


def test_without_a_site_there_is_none() -> None:
    assert parse("router {\n}\n", "f").relay_site is None


@pytest.mark.parametrize("text", ["::1", "[::1]:7800", "a_b.example:1", "fe80::1%eth0", "10.0.0.1", "h."])
def test_endpoints_are_written_as_they_are_read(text: str) -> None:
    (endpoint,) = site(("10.0.0.1, nyc-0.example:7801", text)).announce
    assert str(endpoint) == text


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "group: trades",
            "group: Trades",
            "f:10: relaySite, attribute group: 'Trades' is not a name of lower",
        ),
        ("group: trades", "group:", "f:10: relaySite, attribute group: '' is not a name of lower"),
        ("site: sfo\n", "site:\n", "attribute site: '' is not a name of lower"),
        ("relays: 2", "memberHost: " + "x" * 64, "x' is neither a host name nor an IP address"),
        ("relays: 2", "bridgeHost: a..b", "bridgeHost: 'a..b' is neither a host name nor an IP address"),
        ("relays: 2", "bridgeHost: a\u202eb", "bridgeHost: 'a\\u202eb' is neither a host name nor"),
        ("relays: 2", "domain: " + "d" * 256, "domain: 'dddddddddddddddddddd'... is longer than 255 bytes"),
        ("10.0.0.1,", "a.b." * 64 + ",", "announce: 'a.b."),
        ("nyc-members.example", "a..b", "discoveryHosts: 'a..b' is neither a host name nor an IP address"),
        ("sfo.example, ", "a..b, ", "endpoints: 'a..b' is neither a host name nor an IP address"),
        ("site: nyc", "site: -nyc", "f:11: relaySite, attribute site: '-nyc' is not a name of lower case"),
        ("group: trades", "", "relaySite, attribute group: required and missing"),
        (
            "mode: interior",
            "mode: edge",
            "f:9: relaySite: an edge router cannot be a member; put it into interior",
        ),
        (
            "SslProfile: bridge",
            "SslProfile: brigde",
            "no sslProfile is named 'brigde'; did you mean 'bridge'?",
        ),
        (
            "10.0.0.1,",
            "10.0.0.1:0,",
            "announce: '10.0.0.1:0' is not host or host:port, with a port from 1 to 65535",
        ),
        ("10.0.0.1,", "::1:7800:x,", "announce: '::1:7800:x' is not host or host:port"),
        ("10.0.0.1,", ",".join("abcdefghijklmnop") + ",", "announce: has 17 addresses; 16 is the most"),
        ("relays: 2", "relays: 9", "relays: '9' is out of range: 1 to 8"),
        ("relays: 2", "copies: 4", "copies: '4' is out of range: 1 to 3"),
        ("relays: 2", "memberPort: 7900", "bridgePort: 7900 is memberPort as well; give each its own"),
        ("relays: 2", "portRange: 2", "portRange: needs discovery hostList; it is dns"),
        (
            "relays: 2",
            "gossipSslProfile: bridge",
            "gossipSslProfile: needs discovery gossipRouter or tunnel; it is",
        ),
        (
            "relays: 2",
            "peerNames: a.example",
            "peerNames: needs sslProfile: without TLS there are no certificates",
        ),
        ("-members.example", "-a, b", "discoveryHosts: needs exactly one name with discovery dns; 2 given"),
        ("discoveryHosts: nyc-members.example", "", "needs exactly one name with discovery dns; none given"),
        (
            "discovery: dns",
            "discovery: multicast",
            "discoveryHosts: has no use with discovery multicast; remove it",
        ),
        ("site: sfo\n", "site: nyc\n", "f:20: relayRemote 'nyc', attribute site: 'nyc' is the own site"),
        (
            "site: lon\n",
            "site: sfo\n",
            "f:25: relayRemote 'sfo', attribute site: 'sfo' is configured twice, first in",
        ),
        ("over: bridges/lon", "over: b\nendpoints: a", "over: is in place of endpoints; give one of them"),
        (
            "*.sfo.example",
            "sfo.*",
            "peerNames: 'sfo.*' is not a name in a certificate, as a.example or *.example",
        ),
        ("    bridgeSslProfile: bridge\n", "", "peerNames: needs bridgeSslProfile in relaySite: without TLS"),
        (
            "sites: sfo, lon",
            "sites: sfo, lno",
            "sites: no relayRemote has the site 'lno'; did you mean 'lon'?",
        ),
        ("sites: sfo, lon", "sites: sfo, *", "sites: * is all sites; name no others beside it"),
        (
            "orders/#",
            "orders/x#",
            "pattern: 'orders/x#': a wildcard is a whole token, as in orders/# or a/*/b",
        ),
        ("orders/#", "//", "pattern: '//' has nothing between its separators"),
        ("local/*", "orders/#", "pattern: 'orders/#' is configured twice, first in line"),
    ],
)
def test_what_is_refused(old: str, new: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read((old, new))
    assert expected in str(caught.value)


@pytest.mark.parametrize("address", ["10.0.0.1", "x", "ff15::78"])
def test_a_multicast_address_is_one(address: str) -> None:
    with pytest.raises(ConfigError, match="is not an IPv4 multicast address, as 239"):
        read(
            ("discoveryHosts: nyc-members.example", f"multicastAddress: {address}"),
            ("discovery: dns", "discovery: multicast"),
        )


@pytest.mark.parametrize(
    ("replacement", "problem"),
    [
        (("over: bridges/lon", "over: bridges/#"), "not an address without wildcards"),
        (("over: bridges/lon", "over: _topo/all/x"), "not an address without wildcards"),
        (("over: bridges/lon", "over: bridges/"), "not an address without wildcards"),
        (
            ("over: bridges/lon", "over: bridges/lon\npeerNames: a.example"),
            "needs endpoints in place of over",
        ),
        (("relays: 2", "relays: 2\nstateAddress: trades/*"), "stateAddress: 'trades/\\*' is not an address"),
        (("relays: 2", "relays: 2\nstateAddress: relay/trades"), "is where others receive"),
        (("relays: 2", "relays: 2\nmaxMessageBytes: 15728641"), "is out of range: 1024 to 15728640"),
    ],
)
def test_what_is_no_address_for_it(replacement: tuple[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(replacement)


def test_remotes_and_addresses_need_a_site() -> None:
    text = SITE[: SITE.index("relaySite")] + SITE[SITE.index("relayRemote") :]
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    lines = str(caught.value).split("\n")
    assert len(lines) == 4
    assert all("needs a relaySite section" in line for line in lines)


@pytest.mark.parametrize(
    ("old", "new", "rejoin"),
    [
        ("relays: 2", "relays: 3", False),
        ("relays: 2", "relays: 2\nbufferSeconds: 5", False),
        ("site: nyc", "site: ewr", True),
        ("discovery: dns", "discovery: hostList", True),
        ("relays: 2", "relays: 2\nbridgePort: 7901", True),
    ],
)
def test_what_a_changed_site_needs(old: str, new: str, rejoin: bool) -> None:
    changes = diff(read(), read((old, new)))
    assert changes.relay_site is not None
    assert changes.relay_site.rejoin is rejoin
    assert not changes.needs_restart
    assert changes.summary() == {"changed": ["relaySite"]}


def test_a_site_comes_and_goes_while_the_router_runs() -> None:
    bare = parse(SITE[: SITE.index("relaySite")], "f")
    for old, new, verb in ((bare, read(), "added"), (read(), bare, "removed")):
        changes = diff(old, new)
        assert changes.relay_site is not None
        assert changes.relay_site.rejoin
        assert set(changes.summary()[verb]) >= {"relaySite", "relayRemote/sfo", "relayAddress/orders/#"}


def test_remotes_and_addresses_change_by_themselves() -> None:
    changes = diff(read(), read(("sfo.example,", "sfo2.example,"), ("sites: sfo, lon", "sites: *")))
    assert changes.relay_site is None
    ((old, new),) = changes.relay_remotes.changed
    assert (old.endpoints[0].host, new.endpoints[0].host) == ("sfo.example", "sfo2.example")
    ((_, address),) = changes.relay_addresses.changed
    assert address.sites == ("*",)
