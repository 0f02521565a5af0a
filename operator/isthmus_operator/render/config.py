"""The configuration file of one router, for any platform.

What differs between platforms (addresses, ports, where files lie) is behind `AddressResolver`.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import Protocol

from ..resources.autolink import AutoLink
from ..resources.listener import HEALTH_LISTENER
from .instances import (
    ConnectorInstance,
    HostTarget,
    InstanceTarget,
    LinkRouteInstance,
    ListenerInstance,
    RouterInstance,
    Value,
)
from .policy import policy_sections
from .sitesections import SiteResolver, site_sections

Config = list[tuple[str, dict[str, Value]]]
"""Sections in order, each with its name and attributes: the JSON form of the router's configuration."""

_SASL_NAME = "isthmus-sasl"
_SASL_FILE = f"{_SASL_NAME}.conf"


class AddressResolver(SiteResolver, Protocol):
    """Addresses and paths on one platform."""

    def bind(self, instance: RouterInstance, listener: ListenerInstance) -> tuple[str, int]:
        """Host and port that `listener` binds; an empty host is every address."""

    def health(self, instance: RouterInstance) -> tuple[str, int]:
        """Host and port of the health listener."""

    def dial(self, instance: RouterInstance, target: InstanceTarget) -> tuple[str, int]:
        """Host and port at which `instance` reaches another router."""

    def path(self, instance: RouterInstance, file: str) -> str:
        """Path of one of the files of `instance_files`."""


def router_config(instance: RouterInstance, resolver: AddressResolver, *, with_id: bool = True) -> Config:
    """The configuration of `instance`.

    Without the id, the file serves any replica and the id comes from the command line (`--id`).
    Attributes that have the router's default are written too: the resource's schema decides, whatever
    the router's version has as its default.
    """
    router: dict[str, Value] = {
        "mode": instance.mode,
        "defaultDistribution": instance.default_distribution,
        # Nobody would notice what a client has changed: the file would still be the one that is wanted.
        "managementReadOnly": True,
        "workerThreads": instance.workers,
        "flowRecords": instance.flow_interval_seconds > 0,
    }
    if instance.flow_interval_seconds:
        router["flowIntervalSeconds"] = instance.flow_interval_seconds
    if with_id:
        router["id"] = instance.id
    if instance.users_file is not None:
        router["saslConfigDir"] = posixpath.dirname(resolver.path(instance, _SASL_FILE))
        router["saslConfigName"] = _SASL_NAME
    config: Config = [("router", router)]
    if instance.site is not None:
        config.append(("site", {"name": instance.site}))
    config += [("log", {"module": item.module, "enable": f"{item.level}+"}) for item in instance.log]
    for profile in instance.tls:
        section: dict[str, Value] = {"name": profile.name}
        for key, attribute in (
            ("ca.crt", "caCertFile"),
            ("ca.crl", "crlFile"),
            ("tls.crt", "certFile"),
            ("tls.key", "privateKeyFile"),
        ):
            if key in profile.files:
                section[attribute] = resolver.path(instance, profile.files[key])
        if profile.protocols:
            section["protocols"] = profile.protocols
        if profile.uid_format is not None:
            section["uidFormat"] = profile.uid_format
        if profile.ordinals is not None:
            section["ordinal"], section["oldestValidOrdinal"] = profile.ordinals
        config.append(("sslProfile", section))
    for treatment in instance.addresses:
        match = (
            {"prefix": treatment.prefix}
            if treatment.prefix is not None
            else {"pattern": treatment.pattern or ""}
        )
        options = {
            "priority": treatment.priority,
            "resendReleased": treatment.resend_released or None,
            "waypoint": treatment.waypoint or None,
            "ingressPhase": treatment.ingress_phase,
            "egressPhase": treatment.egress_phase,
        }
        config.append(("address", {**match, "distribution": treatment.distribution, **_given(options)}))
    if instance.policy is not None:
        config += policy_sections(instance.policy, instance.collectors)
    config.append(("listener", _health(instance, resolver)))
    config += [("listener", _listener(instance, item, resolver)) for item in instance.listeners]
    for connector in instance.connectors:
        config.append(("connector", _connector(instance, connector, resolver)))
        config += [("autoLink", _auto_link(connector, link)) for link in connector.auto_links]
    config += [("linkRoute", _link_route(route)) for route in instance.link_routes]
    if instance.relay is not None:
        config += site_sections(instance, instance.relay, resolver)
    return config


def instance_files(instance: RouterInstance, resolver: AddressResolver) -> dict[str, bytes]:
    """All files that the configuration refers to, by name: certificates, passwords, and for users of
    password mechanisms the configuration of Cyrus SASL, which has to name a path."""
    files = dict(instance.files)
    if instance.users_file is not None:
        database = resolver.path(instance, instance.users_file)
        lines = ("pwcheck_method: auxprop", "auxprop_plugin: sasldb", f"sasldb_path: {database}")
        files[_SASL_FILE] = "".join(f"{line}\n" for line in lines).encode()
    return files


def config_bytes(config: Config) -> bytes:
    """The file's content. Its SHA-256 is what a router reports as `configHash`."""
    return (json.dumps([[name, attributes] for name, attributes in config], indent=1) + "\n").encode()


def _health(instance: RouterInstance, resolver: AddressResolver) -> dict[str, Value]:
    host, port = resolver.health(instance)
    return {"name": HEALTH_LISTENER, "host": host, "port": port, "role": "normal", "http": True}


def _listener(
    instance: RouterInstance, listener: ListenerInstance, resolver: AddressResolver
) -> dict[str, Value]:
    host, port = resolver.bind(instance, listener)
    section: dict[str, Value] = {"name": listener.name, "host": host, "port": port, "role": listener.role}
    if listener.tls is not None:
        section["sslProfile"] = listener.tls
    return {**section, **listener.attributes}


def _connector(
    instance: RouterInstance, connector: ConnectorInstance, resolver: AddressResolver
) -> dict[str, Value]:
    target = connector.target
    host, port = (
        (target.host, target.port) if isinstance(target, HostTarget) else resolver.dial(instance, target)
    )
    section: dict[str, Value] = {"name": connector.name, "host": host, "port": port, "role": connector.role}
    if connector.tls is not None:
        section["sslProfile"] = connector.tls
    if connector.password_file is not None:
        section["saslPassword"] = f"file:{resolver.path(instance, connector.password_file)}"
    return {**section, **connector.attributes}


def _auto_link(connector: ConnectorInstance, link: AutoLink) -> dict[str, Value]:
    optional = {"externalAddress": link.external_address, "phase": link.phase}
    return {
        "connection": connector.name,
        "address": link.address,
        "direction": link.direction,
        **_given(optional),
    }


def _link_route(route: LinkRouteInstance) -> dict[str, Value]:
    optional = {
        "prefix": route.prefix,
        "pattern": route.pattern,
        "connection": route.connection,
        "containerId": route.container_id,
        "addExternalPrefix": route.add_external_prefix,
        "delExternalPrefix": route.del_external_prefix,
    }
    return {"name": route.name, "direction": route.direction, **_given(optional)}


def _given(attributes: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in attributes.items() if value is not None}
