"""Reads a whole configuration: text, schema, cross checks, typed result."""

from __future__ import annotations

import hashlib
import secrets
import string
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, TypeVar

from isthmus_router.config.checks import cross_check, cross_warnings
from isthmus_router.config.entities import Checked, Entity, check_sections, section_named
from isthmus_router.config.errors import ConfigError, Problem
from isthmus_router.config.model import (
    AddressConfig,
    AutoLinkConfig,
    Configuration,
    ConnectorConfig,
    LinkRouteConfig,
    ListenerConfig,
    LogConfig,
    Mode,
    NetworkConfig,
    PolicyConfig,
    RouterConfig,
    SiteConfig,
    SslProfileConfig,
    VhostConfig,
)
from isthmus_router.config.reading import read
from isthmus_router.config.relay_model import RelayAddressConfig, RelayRemoteConfig, RelaySiteConfig
from isthmus_router.config.schema import SECTIONS
from isthmus_router.config.sources import Sources, SystemSources, reason
from isthmus_router.config.tables.policy import POLICY, VHOST, VHOST_GROUP
from isthmus_router.config.tables.router import ROUTER

KEEPS_HASH = frozenset(
    a.name for s in (*SECTIONS.values(), VHOST_GROUP) for a in s.attributes if a.keeps_hash
)
POLICY_FILES = ".json"

_T = TypeVar("_T")


def load(
    path: str,
    router_id_override: str | None = None,
    *,
    default_router_id: str | None = None,
    sources: Sources | None = None,
) -> Configuration:
    """The configuration in the file `path`, and the files and variables it refers to.

    `router_id_override` replaces the id in the file, so that replicas can share it;
    `default_router_id` is used when there is none. Raises ConfigError, also when the file cannot be read.
    """
    sources = sources or SystemSources()
    try:
        text = sources.read(path).decode()
    except (OSError, ValueError) as error:
        raise ConfigError(path, [Problem(None, "", f"cannot be read: {reason(error)}")]) from None
    if not text.strip():
        # What a writer leaves for a moment that truncates the file first: not a router without listeners.
        raise ConfigError(path, [Problem(None, "", "is empty")])
    return parse(text, path, router_id_override, default_router_id=default_router_id, sources=sources)


def parse(
    text: str,
    origin: str,
    router_id_override: str | None = None,
    *,
    default_router_id: str | None = None,
    sources: Sources | None = None,
) -> Configuration:
    """The configuration written in `text`, `.conf` or JSON; `origin` names it in messages.

    Without `sources`, secrets that refer elsewhere are an error and referenced files are not read.
    Raises ConfigError with every problem found.
    """
    sections, problems = read(text, KEEPS_HASH)
    checked = check_sections(sections, sources)
    _read_policy_files(checked, sources)
    problems += checked.problems
    _complete_router(checked, router_id_override, default_router_id)
    problems += cross_problems(checked)
    if problems:
        raise ConfigError(origin, problems)
    checked.warnings += cross_warnings(checked.entities)
    checked.warnings += _sasl_warnings(checked, sources)
    return assemble(
        checked,
        config_hash=hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest(),
        warnings=tuple(warning.text(origin) for warning in checked.warnings),
    )


def cross_problems(checked: Checked) -> list[Problem]:
    """Fills in default names and applies the rules that span sections; `checked` has a router."""
    for entity in checked.entities:
        _add_default_name(entity)
    router = next(e for e in checked.entities if e.section is ROUTER)
    mode = None if "mode" in router.broken else router.values["mode"]
    return list(cross_check(checked.entities, mode if isinstance(mode, Mode) else None))


def assemble(checked: Checked, *, config_hash: str, warnings: tuple[str, ...]) -> Configuration:
    """The typed form of entities without problems."""
    return Configuration(
        router=_all(checked, "router", RouterConfig)[0],
        network=_singleton(checked, "network", NetworkConfig),
        site=_singleton(checked, "site", SiteConfig),
        listeners=_all(checked, "listener", ListenerConfig),
        connectors=_all(checked, "connector", ConnectorConfig),
        ssl_profiles={p.name: p for p in _all(checked, "sslProfile", SslProfileConfig)},
        addresses=_all(checked, "address", AddressConfig),
        auto_links=_all(checked, "autoLink", AutoLinkConfig),
        link_routes=_all(checked, "linkRoute", LinkRouteConfig),
        relay_site=next(iter(_all(checked, "relaySite", RelaySiteConfig)), None),
        relay_remotes=_all(checked, "relayRemote", RelayRemoteConfig),
        relay_addresses=_all(checked, "relayAddress", RelayAddressConfig),
        policy=_singleton(checked, "policy", PolicyConfig),
        vhosts=_all(checked, "vhost", VhostConfig),
        logs=_all(checked, "log", LogConfig),
        config_hash=config_hash,
        warnings=warnings,
    )


def _sasl_warnings(checked: Checked, sources: Sources | None) -> Iterator[Problem]:
    """Whether Cyrus SASL finds its configuration: without it, it looks for users elsewhere, and tells nobody."""
    router = next(e for e in checked.entities if e.section is ROUTER)
    folder, file = router.values["saslConfigDir"], f"{router.values['saslConfigName']}.conf"
    if not isinstance(folder, str) or not folder or sources is None:
        return
    try:
        if file in sources.names(folder):
            return
        why = f"there is no {file!r} in {folder!r}"
    except OSError as error:
        why = f"{folder!r} cannot be read: {reason(error)}"
    yield router.problem("saslConfigDir", f"{why}; users with passwords are looked for in /etc/sasldb2")


def _read_policy_files(checked: Checked, sources: Sources | None) -> None:
    """Adds the vhosts in the files of `policyDir`."""
    policy = next((e for e in checked.entities if e.section is POLICY), None)
    folder = str(policy.values["policyDir"]) if policy and "policyDir" not in policy.broken else ""
    if not policy or not folder or sources is None:
        return
    try:
        names = [name for name in sources.names(folder) if name.endswith(POLICY_FILES)]
    except OSError as error:
        checked.problems.append(policy.problem("policyDir", f"{folder!r} cannot be read: {reason(error)}"))
        return
    for name in sorted(names):
        path = f"{folder.rstrip('/')}/{name}"
        try:
            sections, problems = read(sources.read(path).decode(), KEEPS_HASH)
        except (OSError, ValueError) as error:
            problems, sections = [Problem(None, "", f"cannot be read: {reason(error)}")], []
        found = check_sections([s for s in sections if section_named(s.name) is VHOST], sources)
        for entity in found.entities:
            entity.line, entity.lines = None, dict.fromkeys(entity.lines)
        checked.entities += found.entities
        for kept, new in ((checked.problems, problems + found.problems), (checked.warnings, found.warnings)):
            kept += [Problem(None, f"{path}:{p.line or 1}: {p.where}", p.message) for p in new]


def _complete_router(checked: Checked, override: str | None, default: str | None) -> None:
    """Adds the router section when it is missing, and its id."""
    router = next((e for e in checked.entities if e.section is ROUTER), None)
    if router is None:
        router = Entity(ROUTER, None, {a.name: a.default for a in ROUTER.attributes})
        checked.entities.append(router)
    if override is not None:
        router.values["id"] = override
    elif router.values["id"] is None:
        router.values["id"] = default if default is not None else generated_router_id(router.values["mode"])


def generated_router_id(mode: object) -> str:
    """A random id for a router whose configuration gives none, e.g. `Edge_8hQ...`."""
    characters = string.ascii_letters + string.digits
    return f"{str(mode).capitalize()}_{''.join(secrets.choice(characters) for _ in range(15))}"


def _add_default_name(entity: Entity) -> None:
    values, section = entity.values, entity.section.name
    if section in ("listener", "connector") and not values["name"]:
        values["name"] = f"{section}/{values['host']}:{values['port']}"


def _build(entity: Entity, model: type[_T]) -> _T:
    if isinstance(entity.present, model):
        return entity.present
    values: dict[str, Any] = {
        attribute.field: entity.values[attribute.name] for attribute in entity.section.attributes
    }
    values["files_digest"] = entity.digest
    wanted = {field.name for field in fields(model)}  # type: ignore[arg-type]
    return model(**{name: value for name, value in values.items() if name in wanted})


def _all(checked: Checked, section: str, model: type[_T]) -> tuple[_T, ...]:
    return tuple(_build(entity, model) for entity in checked.entities if entity.section.name == section)


def _singleton(checked: Checked, section: str, model: type[_T]) -> _T:
    found = _all(checked, section, model)
    return found[0] if found else model()
