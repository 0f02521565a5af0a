"""What must hold between attributes and between sections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from isthmus_router.config.entities import Entity, first_line, nearest, suggestion
from isthmus_router.config.errors import Problem
from isthmus_router.config.failover import failover_servers
from isthmus_router.config.model import Direction, Mode
from isthmus_router.config.policy_checks import check_policies, policy_warnings
from isthmus_router.config.relay_checks import check_peer_names, check_relay
from isthmus_router.config.tables.router import LOG_LEVELS
from isthmus_router.core.address import Purpose, normalise, purpose
from isthmus_router.core.patterns import pattern_problem
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import COORDINATOR
from isthmus_router.message.encoder import encode
from isthmus_router.message.sections import LONGEST_ADDRESS_BYTES
from isthmus_router.message.values import EncodeError

RESERVED_OPEN_PROPERTIES = ("product", "version", "failover-server-list", "network-host", "port")
"""Open properties that the router itself sets, and those it understands from a peer."""
RESERVED_OPEN_PREFIXES = ("qd.", "x-opt-qd.")

TLS_VERSIONS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
SASL_MECHANISMS = frozenset(
    [f"SCRAM-SHA-{bits}{plus}" for bits in (1, 224, 256, 384, 512) for plus in ("", "-PLUS")]
    + ["ANONYMOUS", "EXTERNAL", "PLAIN", "LOGIN", "CRAM-MD5", "DIGEST-MD5", "NTLM", "OTP", "SRP"]
    + ["GSSAPI", "GS2-KRB5", "GS2-IAKERB", "GSS-SPNEGO", "OAUTHBEARER", "XOAUTH2"]
)
"""Those that Cyrus SASL has plugins for."""
LONGEST_NAME = 1000
"""Characters of a name of an entity, and of names by which link routes and auto-links refer to others."""
_NAMES = ("name", "containerId", "connection")
_ADDRESSES = ("address", "externalAddress", "addExternalPrefix", "delExternalPrefix")
_WILDCARD_HOSTS = ("", "0.0.0.0", "::")
_ILLEGAL_IN_ID = re.compile(r"[\s/\x00-\x1f\x7f]")
_UID_FORMAT = re.compile(r"[125csloun]+")


def cross_check(entities: list[Entity], mode: Mode | None) -> Iterator[Problem]:
    """Every rule over all sections; `mode` is the router's, None when unknown."""
    yield from _duplicates(entities)
    named = {str(e.values["name"]): e for e in entities if e.section.name == "sslProfile"}
    profiles = set(named)
    roles = {
        e.values["name"]: (e.section.name, e.values["role"])
        for e in entities
        if e.section.name in ("listener", "connector") and "role" not in e.broken
    }
    for entity in entities:
        yield from _lengths(entity)
        match entity.section.name:
            case "router":
                yield from _router(entity)
            case "listener" | "connector":
                yield from _endpoint(entity, mode, profiles)
                if entity.section.name == "listener":
                    yield from _client_certificates(entity, named)
            case "sslProfile":
                yield from _ssl_profile(entity)
            case "address":
                yield from _prefix_or_pattern(entity)
            case "linkRoute":
                yield from _prefix_or_pattern(entity)
                yield from _control_address(entity, "prefix", "pattern")
                yield from _route_container(entity, roles)
            case "autoLink":
                yield from _auto_link(entity, roles)
                yield from _control_address(entity, "address")
            case "log":
                yield from _log(entity)
    yield from check_policies(entities)
    yield from check_relay(entities, mode, profiles)


def cross_warnings(entities: list[Entity]) -> Iterator[Problem]:
    """What is valid and probably not meant."""
    yield from policy_warnings(entities)
    endpoints = [e for e in entities if e.section.name in ("listener", "connector")]
    names = {str(e.values["name"]) for e in endpoints}
    for endpoint in endpoints:
        mechanisms = endpoint.values["saslMechanisms"]
        for mechanism in mechanisms if isinstance(mechanisms, tuple) else ():
            if mechanism not in SASL_MECHANISMS:
                hint = suggestion(mechanism, SASL_MECHANISMS, "known ones")
                yield endpoint.problem("saslMechanisms", f"{mechanism!r} is not known as a mechanism; {hint}")
    for endpoint in endpoints:
        mechanisms = endpoint.values["saslMechanisms"]
        plain = isinstance(mechanisms, tuple) and "PLAIN" in mechanisms
        if plain and endpoint.values["sslProfile"] is None and not endpoint.values["allowPlainWithoutTls"]:
            reason = (
                "PLAIN without TLS is used with peers on this machine only, as others could read the password; add an "
                "sslProfile, use SCRAM-SHA-256, or set allowPlainWithoutTls: yes"
            )
            yield endpoint.problem("saslMechanisms", reason)
    for entity in entities:
        connection = entity.values["connection"] if entity.section.name == "autoLink" else None
        if connection is not None and connection not in names:
            hint = f"; {suggestion(str(connection), names, 'they')}" if names else ""
            yield entity.problem("connection", f"no listener or connector is named {connection!r}{hint}")
        # A linkRoute may name a connection of another router, but hardly one that is nearly called so.
        elsewhere = entity.values["connection"] if entity.section.name == "linkRoute" else None
        if elsewhere is not None and elsewhere not in names and (near := nearest(str(elsewhere), names)):
            reason = f"no listener or connector here is named {elsewhere!r}; did you mean {near!r}?"
            yield entity.problem("connection", reason)


def illegal_router_id(router_id: str) -> str | None:
    """Why an id cannot be used; it becomes one element of addresses such as `_topo/0/<id>/...`."""
    if not router_id:
        return "an empty router id"
    if found := _ILLEGAL_IN_ID.search(router_id):
        return f"{router_id!r} contains {found[0]!r}: no '/', white space or control characters"
    if len(router_id.encode(errors="replace")) > 127:
        return f"{router_id[:20]!r}... is longer than 127 bytes"
    return None


def _lengths(entity: Entity) -> Iterator[Problem]:
    """Names and addresses may come from peers, by management."""
    values = entity.values
    if entity.section.name not in ("address", "linkRoute", "autoLink"):
        name = values.get("name")
        if isinstance(name, str) and len(name) > LONGEST_NAME:
            yield entity.problem("name", f"it has more than {LONGEST_NAME} characters; use a shorter one")
        return
    for attribute, value in values.items():
        if not isinstance(value, str):
            continue
        if attribute in ("prefix", "pattern"):
            if problem := pattern_problem(value):
                yield entity.problem(attribute, problem)
        elif attribute in _NAMES and len(value) > LONGEST_NAME:
            yield entity.problem(attribute, f"it has more than {LONGEST_NAME} characters; use a shorter one")
        elif attribute in _ADDRESSES and len(value.encode(errors="replace")) > LONGEST_ADDRESS_BYTES:
            yield entity.problem(
                attribute, f"it has more than {LONGEST_ADDRESS_BYTES} bytes; use a shorter one"
            )


def _duplicates(entities: list[Entity]) -> Iterator[Problem]:
    seen: dict[tuple[object, ...], Entity] = {}
    for entity in entities:
        for attribute, key, words in _unique_keys(entity):
            first = seen.setdefault((entity.section.name, *key), entity)
            if first is not entity:
                problem = entity.problem(attribute, f"{words}{first_line(first.line)}")
                yield replace(problem, duplicate=True)


def _unique_keys(entity: Entity) -> Iterator[tuple[str | None, tuple[object, ...], str]]:
    values, section = entity.values, entity.section
    if section.singleton:
        yield None, (), "there can be only one such section"
        return
    if section.name == "log":
        yield "module", (values["module"],), "the module has two log sections"
        return
    if section.name in ("relayRemote", "relayAddress"):
        key = "site" if section.name == "relayRemote" else "pattern"
        yield key, (values[key],), f"{values[key]!r} is configured twice"
        return
    if section.name == "vhost":
        aliases = values["aliases"] if isinstance(values["aliases"], tuple) else ()
        for attribute, names in (("hostname", (values["hostname"],)), ("aliases", aliases)):
            for hostname in names:
                yield attribute, ("hostname", hostname), f"{hostname!r} is the name of two vhosts"
    if values["name"] is not None:
        yield "name", ("name", values["name"]), f"{values['name']!r} is used twice"
    if section.name == "listener" and values["port"] != 0 and not entity.broken & {"host", "port"}:
        host = str(values["host"]).lower()
        place = "*" if host in _WILDCARD_HOSTS else host
        yield (
            "port",
            ("place", place, values["port"], values["socketAddressFamily"]),
            f"two listeners on {host}:{values['port']}",
        )
    if section.name in ("linkRoute", "autoLink"):
        settings = tuple(values[a.name] for a in section.attributes if a.name != "name")
        yield None, ("all", *settings), f"the same {section.name} is configured twice"
    if section.name == "address":
        for attribute in ("prefix", "pattern"):
            if values[attribute] is not None:
                yield attribute, (attribute, values[attribute]), f"{values[attribute]!r} is configured twice"


def _router(entity: Entity) -> Iterator[Problem]:
    values = entity.values
    if isinstance(values["id"], str) and (why := illegal_router_id(values["id"])):
        yield entity.problem("id", why)
    count = values["dataConnectionCount"]
    if count != "auto" and not (isinstance(count, str) and re.fullmatch(r"[0-9]{1,3}", count)):
        yield entity.problem("dataConnectionCount", f"{count!r} is neither a number up to 999 nor 'auto'")
    for smaller, greater in (
        ("helloIntervalSeconds", "helloMaxAgeSeconds"),
        ("raIntervalFluxSeconds", "remoteLsMaxAgeSeconds"),
        ("raIntervalSeconds", "remoteLsMaxAgeSeconds"),
    ):
        low, high = values[smaller], values[greater]
        if isinstance(low, int) and isinstance(high, int) and low >= high:
            yield entity.problem(greater, f"{high} must be greater than {smaller} ({low})")


def _endpoint(entity: Entity, mode: Mode | None, profiles: set[str]) -> Iterator[Problem]:
    values = entity.values
    listening = entity.section.name == "listener"
    role = values["role"]
    if role is Role.INTER_ROUTER and mode not in (Mode.INTERIOR, None):
        yield entity.problem("role", f"inter-router needs router mode interior; the mode is {mode}")
    if role is Role.EDGE and listening and mode is Mode.EDGE:
        yield entity.problem("role", "an edge router cannot have an edge listener")
    if role is Role.EDGE and not listening and mode not in (Mode.EDGE, None):
        yield entity.problem("role", f"an edge connector needs router mode edge; the mode is {mode}")
    profile = values["sslProfile"]
    if isinstance(profile, str) and profile not in profiles:
        hint = suggestion(profile, profiles, "they") if profiles else "there is none"
        yield entity.problem("sslProfile", f"no sslProfile is named {profile!r}; {hint}")
    if listening and values["requireSsl"] and profile is None:
        yield entity.problem("requireSsl", "needs an sslProfile")
    if listening and values["http"]:
        if role is not Role.NORMAL:
            yield entity.problem("http", "needs role normal")
        if profile is not None:
            yield entity.problem("http", "HTTP over TLS is not supported; remove sslProfile")
    if listening and isinstance(values["failoverUrls"], str):
        try:
            failover_servers(values["failoverUrls"])
        except ValueError as error:
            yield entity.problem("failoverUrls", str(error))
    if not listening and values["port"] == 0:
        yield entity.problem("port", "0 is no port to connect to")
    if not listening and values["allowPeerLinks"] and role not in (Role.NORMAL, Role.ROUTE_CONTAINER):
        yield entity.problem("allowPeerLinks", "only for the roles normal and route-container")
    yield from _open_properties(entity)


def _client_certificates(entity: Entity, profiles: Mapping[str, Entity]) -> Iterator[Problem]:
    values = entity.values
    names = values["peerNames"]
    yield from check_peer_names(entity, "sslProfile" if values["sslProfile"] is None else None)
    if not names and not values["requireClientCertificate"]:
        return
    attribute = "peerNames" if names else "requireClientCertificate"
    profile = values["sslProfile"]
    if profile is None and attribute != "peerNames":
        yield entity.problem(attribute, "needs an sslProfile")
    found = profiles.get(str(profile))
    if found is not None and found.values["caCertFile"] is None and "caCertFile" not in found.broken:
        yield entity.problem(
            attribute, f"needs caCertFile in sslProfile {profile!r}, to verify certificates against"
        )


def _open_properties(entity: Entity) -> Iterator[Problem]:
    properties, role = entity.values["openProperties"], entity.values["role"]
    if not isinstance(properties, dict) or not properties:
        return
    if role not in (Role.NORMAL, Role.ROUTE_CONTAINER):
        yield entity.problem("openProperties", "only for the roles normal and route-container")
    reserved = [
        key
        for key in properties
        if key in RESERVED_OPEN_PROPERTIES or str(key).startswith(RESERVED_OPEN_PREFIXES)
    ]
    for key in properties:
        if not str(key).isascii():
            yield entity.problem("openProperties", f"{key!r}: keys are symbols, which are ASCII")
    for key, value in properties.items():
        try:
            encode(value)
        except EncodeError:
            # Deep inside or not: JSON knows more numbers and characters than AMQP.
            yield entity.problem(
                "openProperties",
                f"{key!r}: integers have 64 bits and text is Unicode without lone surrogates",
            )
    if reserved:
        names = ", ".join(map(repr, reserved))
        yield entity.problem("openProperties", f"{names} reserved for the router; use other names")


def _ssl_profile(entity: Entity) -> Iterator[Problem]:
    values = entity.values
    ordinal, oldest = values["ordinal"], values["oldestValidOrdinal"]
    if isinstance(ordinal, int) and isinstance(oldest, int) and oldest > ordinal:
        yield entity.problem(
            "oldestValidOrdinal", f"{oldest} is greater than ordinal ({ordinal}); it must be at most ordinal"
        )
    protocols = values["protocols"]
    unknown = [p for p in protocols if p not in TLS_VERSIONS] if isinstance(protocols, tuple) else []
    if unknown:
        yield entity.problem(
            "protocols", f"{', '.join(map(repr, unknown))} not among {', '.join(TLS_VERSIONS)}"
        )
    if values["crlFile"] is not None and values["caCertFile"] is None:
        yield entity.problem("crlFile", "needs caCertFile")
    if values["privateKeyFile"] is not None and values["certFile"] is None:
        yield entity.problem("privateKeyFile", "needs certFile")
    uid_format = values["uidFormat"]
    if isinstance(uid_format, str) and not _UID_FORMAT.fullmatch(uid_format):
        yield entity.problem("uidFormat", f"{uid_format!r} may only contain the characters 1 2 5 c s l o u n")


def _prefix_or_pattern(entity: Entity) -> Iterator[Problem]:
    if entity.broken & {"prefix", "pattern"}:
        return
    prefix, pattern = entity.values["prefix"], entity.values["pattern"]
    if (prefix is None) == (pattern is None):
        given = "neither" if prefix is None else "both"
        yield entity.problem(None, f"needs exactly one of prefix and pattern; {given} given")
    for name, value in (("prefix", prefix), ("pattern", pattern)):
        if isinstance(value, str) and not value.strip("./"):
            everything = (
                "; for all addresses, use the pattern '#'" if entity.section.name == "linkRoute" else ""
            )
            yield entity.problem(name, f"{value!r} has nothing between its separators{everything}")
    if isinstance(prefix, str) and {"*", "#"} & set(re.split(r"[./]", prefix)):
        yield entity.problem("prefix", f"{prefix!r} has wildcards; use pattern")


def _control_address(entity: Entity, *names: str) -> Iterator[Problem]:
    """A container is a client: what routers use among themselves goes to it no more than to others."""
    for name in names:
        value = entity.values[name]
        if not isinstance(value, str) or purpose(value) is Purpose.CLIENTS:
            continue
        if entity.section.name == "linkRoute" and normalise(value) == COORDINATOR:
            continue
        yield entity.problem(
            name,
            f"{value!r} is for routers, which use addresses that begin with _ or $, mc/sfe. or sfe.; "
            "use another address",
        )


def _auto_link(entity: Entity, roles: Mapping[object, tuple[str, object]]) -> Iterator[Problem]:
    values = entity.values
    given = any(values[name] is not None for name in ("containerId", "connection"))
    if not given and not entity.broken & {"containerId", "connection"}:
        yield entity.problem(None, "needs containerId or connection")
    if values["address"] is None and not entity.broken & {"address", "direction", "externalAddress"}:
        if values["direction"] is Direction.OUT:
            yield entity.problem("address", "is needed for direction out")
        elif values["externalAddress"] is None:
            yield entity.problem("address", "is needed where externalAddress is absent")
    yield from _route_container(entity, roles)


def _route_container(entity: Entity, roles: Mapping[object, tuple[str, object]]) -> Iterator[Problem]:
    """Only connections of role route-container are used."""
    values = entity.values
    what = "auto-links" if entity.section.name == "autoLink" else "link routes"
    section, role = roles.get(values["connection"], ("", Role.ROUTE_CONTAINER))
    if role is not Role.ROUTE_CONTAINER and isinstance(role, Role):
        yield entity.problem(
            "connection",
            f"{section} {values['connection']!r} has role {role.label}; {what} need role route-container",
        )


def _log(entity: Entity) -> Iterator[Problem]:
    words = [word.strip() for word in str(entity.values["enable"]).split(",")]
    known = {*LOG_LEVELS, *(f"{level}+" for level in LOG_LEVELS), "none", "default"}
    for word in words:
        if word.lower() not in known:
            levels = ", ".join(LOG_LEVELS)
            yield entity.problem(
                "enable", f"{word!r} is not a level: {levels}, each alone or with '+'; none; default"
            )
