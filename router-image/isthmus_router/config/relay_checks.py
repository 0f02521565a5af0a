"""What must hold in and between the sections relaySite, relayRemote and relayAddress."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from isthmus_router.config.entities import Entity, suggestion
from isthmus_router.config.errors import Problem
from isthmus_router.config.model import Mode
from isthmus_router.config.relay_model import ALL_SITES, Discovery, Endpoint

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PEER_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_][-A-Za-z0-9_.]*")
_PARTIAL_WILDCARD = re.compile(r"[^./][*#]|[*#][^./]")
_PLAIN_ADDRESS = re.compile(r"[^_$/.\s*#][^\s*#]{0,150}(?<![/.])")
_NOT_PLAIN = "is not an address without wildcards"
_HOSTS = ("memberHost", "bridgeHost")
MOST_HOST_BYTES = 253
MOST_ADDRESSES = 16
"""That a member announces."""


def check_relay(entities: list[Entity], mode: Mode | None, profiles: set[str]) -> Iterator[Problem]:
    """Every rule about them; `mode` is the router's, `profiles` are the names of its sslProfiles."""
    site = next((e for e in entities if e.section.name == "relaySite"), None)
    remotes = [e for e in entities if e.section.name == "relayRemote"]
    addresses = [e for e in entities if e.section.name == "relayAddress"]
    if site is None:
        for entity in (*remotes, *addresses):
            yield entity.problem(None, "needs a relaySite section, which says what site this router is in")
        return
    if mode is Mode.EDGE:
        yield site.problem(None, "an edge router cannot be a member; put it into interior routers")
    yield from _site(site, profiles)
    for remote in remotes:
        yield from _remote(remote, site)
    names = {str(e.values["site"]) for e in remotes}
    for address in addresses:
        yield from _address(address, names)


def _site(entity: Entity, profiles: set[str]) -> Iterator[Problem]:
    values = entity.values
    for name in ("group", "site"):
        yield from _label(entity, name)
    for name in ("memberName", "domain"):
        value = values[name]
        if isinstance(value, str) and len(value.encode(errors="replace")) > 255:
            yield entity.problem(name, f"{value[:20]!r}... is longer than 255 bytes")
    state = values["stateAddress"]
    if isinstance(state, str) and not _PLAIN_ADDRESS.fullmatch(state):
        yield entity.problem("stateAddress", f"{state[:80]!r} {_NOT_PLAIN}, as trades/state")
    if isinstance(state, str) and state == f"relay/{values['group']}":
        yield entity.problem("stateAddress", f"{state!r} is where others receive; give another address")
    for name in ("sslProfile", "bridgeSslProfile", "gossipSslProfile"):
        profile = values[name]
        if isinstance(profile, str) and profile not in profiles:
            hint = suggestion(profile, profiles, "they") if profiles else "there is none"
            yield entity.problem(name, f"no sslProfile is named {profile!r}; {hint}")
    yield from _plain_text(entity)
    yield from check_peer_names(entity, "sslProfile" if values["sslProfile"] is None else None)
    yield from _discovery(entity)
    for name in _HOSTS:
        yield from _hosts(entity, name, str(values[name] or ""))
    same_port = values["memberPort"] == values["bridgePort"] != 0 and "bridgePort" not in entity.broken
    if same_port and (values["memberHost"] == values["bridgeHost"] or not all(map(values.get, _HOSTS))):
        yield entity.problem("bridgePort", f"{values['bridgePort']} is memberPort as well; give each its own")
    for name in ("announce", "announceBridge", "discoveryHosts"):
        given = values[name]
        if isinstance(given, tuple):
            yield from _hosts(entity, name, *(host for host, _ in given))
            if len(given) > MOST_ADDRESSES and name != "discoveryHosts":
                yield entity.problem(name, f"has {len(given)} addresses; {MOST_ADDRESSES} is the most")


def _plain_text(entity: Entity) -> Iterator[Problem]:
    values = entity.values
    if values["plainText"] or entity.broken & {"plainText", "discovery"}:
        return
    asks_routers = values["discovery"] in (Discovery.GOSSIP_ROUTER, Discovery.TUNNEL)
    for name, whom, used in (
        ("sslProfile", "other members", True),
        ("bridgeSslProfile", "other sites", True),
        ("gossipSslProfile", "gossip routers", asks_routers),
    ):
        if used and values[name] is None:
            yield entity.problem(
                name,
                f"is required, as connections with {whom} need TLS; name an sslProfile, or state plainText: yes to "
                "allow anyone who reaches the port",
            )


def _hosts(entity: Entity, attribute: str, *hosts: str) -> Iterator[Problem]:
    for host in hosts:
        try:
            usable = len(host.encode("idna")) <= MOST_HOST_BYTES
        except UnicodeError:
            usable = False
        if not usable:
            yield entity.problem(attribute, f"{host[:80]!r} is neither a host name nor an IP address")


def _discovery(entity: Entity) -> Iterator[Problem]:
    values, kind = entity.values, entity.values["discovery"]
    if entity.broken & {"discovery", "discoveryHosts"} or not isinstance(kind, Discovery):
        return
    hosts: tuple[Endpoint, ...] = values["discoveryHosts"] or ()  # type: ignore[assignment]
    if kind is Discovery.MULTICAST:
        if hosts:
            yield entity.problem("discoveryHosts", "has no use with discovery multicast; remove it")
        yield from _multicast_address(entity)
    elif kind is Discovery.DNS and len(hosts) != 1:
        yield entity.problem(
            "discoveryHosts", f"needs exactly one name with discovery dns; {len(hosts) or 'none'} given"
        )
    elif kind in (Discovery.GOSSIP_ROUTER, Discovery.TUNNEL) and not hosts:
        yield entity.problem("discoveryHosts", f"needs the gossip routers with discovery {kind}")
    if values["portRange"] and kind is not Discovery.HOST_LIST:
        yield entity.problem("portRange", f"needs discovery hostList; it is {kind}")
    if values["gossipSslProfile"] is not None and kind not in (Discovery.GOSSIP_ROUTER, Discovery.TUNNEL):
        yield entity.problem("gossipSslProfile", f"needs discovery gossipRouter or tunnel; it is {kind}")


def _multicast_address(entity: Entity) -> Iterator[Problem]:
    text = entity.values["multicastAddress"]
    try:
        multicast = ipaddress.IPv4Address(str(text)).is_multicast
    except ValueError:
        multicast = False
    if not multicast and "multicastAddress" not in entity.broken:
        yield entity.problem(
            "multicastAddress", f"{text!r} is not an IPv4 multicast address, as 239.192.78.0 is"
        )


def _remote(entity: Entity, own: Entity) -> Iterator[Problem]:
    values = entity.values
    yield from _label(entity, "site")
    if isinstance(values["endpoints"], tuple):
        yield from _hosts(entity, "endpoints", *(host for host, _ in values["endpoints"]))
    if values["site"] is not None and values["site"] == own.values["site"]:
        yield entity.problem(
            "site", f"{values['site']!r} is the own site (relaySite, attribute site); name another one"
        )
    if values["over"]:
        yield from _over(entity)
    needs = "bridgeSslProfile in relaySite" if own.values["bridgeSslProfile"] is None else None
    needs = "endpoints in place of over" if values["over"] else needs
    yield from check_peer_names(entity, needs, any_name=True)


def _over(entity: Entity) -> Iterator[Problem]:
    address = entity.values["over"]
    if entity.values["endpoints"]:
        yield entity.problem("over", "is in place of endpoints; give one of them")
    if isinstance(address, str) and not _PLAIN_ADDRESS.fullmatch(address):
        yield entity.problem("over", f"{address[:80]!r} {_NOT_PLAIN}, as bridges/trades")


def _address(entity: Entity, remotes: set[str]) -> Iterator[Problem]:
    pattern, sites = entity.values["pattern"], entity.values["sites"]
    if isinstance(pattern, str) and _PARTIAL_WILDCARD.search(pattern):
        yield entity.problem("pattern", f"{pattern!r}: a wildcard is a whole token, as in orders/# or a/*/b")
    if isinstance(pattern, str) and pattern and not pattern.strip("./"):
        yield entity.problem("pattern", f"{pattern!r} has nothing between its separators")
    if not isinstance(sites, tuple):
        return
    if ALL_SITES in sites and len(sites) > 1:
        yield entity.problem("sites", "* is all sites; name no others beside it")
    for name in sites:
        if name != ALL_SITES and name not in remotes:
            hint = suggestion(name, remotes, "they") if remotes else "there is none"
            yield entity.problem("sites", f"no relayRemote has the site {name!r}; {hint}")


def _label(entity: Entity, attribute: str) -> Iterator[Problem]:
    value = str(entity.values[attribute] or "")
    if attribute not in entity.broken and not _LABEL.fullmatch(value):
        yield entity.problem(
            attribute,
            f"{value[:80]!r} is not a name of lower case letters, digits and '-' (not first or last), at most 63",
        )


def check_peer_names(entity: Entity, needs: str | None, *, any_name: bool = False) -> Iterator[Problem]:
    """Rules about the names in `peerNames`; `needs` is what is missing for certificates. `any_name`: `*` is allowed."""
    names = entity.values["peerNames"]
    if not isinstance(names, tuple) or not names:
        return
    if needs:
        yield entity.problem("peerNames", f"needs {needs}: without TLS there are no certificates")
    for name in names:
        if not (any_name and name == "*") and not _PEER_NAME.fullmatch(name):
            yield entity.problem(
                "peerNames", f"{name[:80]!r} is not a name in a certificate, as a.example or *.example"
            )
