"""From resources to the files of a local network, and on from there as rotations advance. The planning and the
decisions are the operator's own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from isthmus_cli.errors import CliError
from isthmus_cli.manifests import Manifests
from isthmus_operator.model import NamespaceModel
from isthmus_operator.names import gossip_name, instance_id
from isthmus_operator.render import (
    Config,
    Finding,
    GossipTarget,
    InstanceTarget,
    ListenerInstance,
    RouterInstance,
    SiteInstance,
    SiteTarget,
    config_bytes,
    instance_files,
    plan,
    router_config,
)
from isthmus_operator.render.flows.listener import LISTENER

from . import authority, flowlogs, gossip, rotation, wanted
from .observed import router_facts
from .ports import LOOPBACK, LOOPBACK_NAME, assign, is_free
from .probe import certificate_users, reports
from .state import Network, NetworkState, WantedRouter, write_atomically
from .wanted import config_path, files_folder

_HEALTH = "health"
_MEMBER, _BRIDGE = "relay/member", "relay/bridge"
_RESTART_SECTIONS = frozenset({"router", "site"})
"""Sections of the configuration that a running router does not take over (docs/configuration.md)."""
_LIVE_ATTRIBUTES = frozenset({"defaultDistribution"})
"""What it does take over of them."""


class LoopbackResolver:
    """The operator's `AddressResolver` for processes on this machine."""

    def __init__(self, state: NetworkState, ports: Mapping[str, int]) -> None:
        self._state = state
        self._ports = ports

    def bind(self, instance: RouterInstance, listener: ListenerInstance) -> tuple[str, int]:
        return LOOPBACK, self._ports[f"{instance.id}/{listener.name}"]

    def health(self, instance: RouterInstance) -> tuple[str, int]:
        return LOOPBACK, self._ports[f"{instance.id}/{_HEALTH}"]

    def dial(self, instance: RouterInstance, target: InstanceTarget) -> tuple[str, int]:
        # By name, since proton compares the names in a certificate with host names only.
        return LOOPBACK_NAME, self._ports[_listener_key(target)]

    def member(self, instance: RouterInstance, site: SiteInstance) -> tuple[str, int]:
        return LOOPBACK, self._ports[f"{instance.id}/{_MEMBER}"]

    def bridge(self, instance: RouterInstance, site: SiteInstance) -> tuple[str, int]:
        return LOOPBACK, self._ports[f"{instance.id}/{_BRIDGE}"]

    def members(self, instance: RouterInstance, site: SiteInstance) -> tuple[str, list[str]]:
        return "hostList", self._each(site.router, site.replicas, _MEMBER)

    def bridges(self, target: SiteTarget) -> list[str]:
        return self._each(target.router, target.replicas, _BRIDGE)

    def gossip(self, target: GossipTarget) -> list[str]:
        name = gossip_name(target.name)
        ports = (self._ports[f"{name}-{number}/{gossip.PORT}"] for number in range(target.replicas))
        return [f"{LOOPBACK}:{port}" for port in ports]

    def _each(self, router: str, replicas: int, port: str) -> list[str]:
        """`host:port` of every replica."""
        ids = (instance_id(router, number) for number in range(replicas))
        return [f"{LOOPBACK}:{self._ports[f'{each}/{port}']}" for each in ids]

    def path(self, instance: RouterInstance, file: str) -> str:
        return str(files_folder(self._state, instance.id) / file)


@dataclass(frozen=True)
class Step:
    """What a look at the rotations has led to."""

    changed: bool
    """Files were written that routers and supervisor should take over."""
    pause: float | None
    """Seconds until the next look; None when nothing is to come."""


def write(state: NetworkState, manifests: Manifests, running: Collection[str] = ()) -> Network:
    """Writes the files of every router and then `network.json`; nothing is started here.

    The routers `running`, by id, hold the ports of the last time; those of others somebody else may have.

    Files of routers that are no longer wanted stay until their processes are gone. Certificates must be
    valid now; those that cannot be used do not replace the ones that were written before.
    """
    wanted.write(state, manifests)
    now = datetime.now(UTC)
    authority.ensure(state, now)
    model = wanted.model_at(state, now)
    assert model is not None
    return _put(state, model, rotation.adopted(state, model, now), now, running)


def rotate(state: NetworkState, names: Collection[str], *, revoke: bool) -> Network:
    """Raises the ordinals of the SslProfiles `names`. Raises CliError when one of them cannot be rotated now;
    nothing is changed then."""
    now = datetime.now(UTC)
    model = wanted.model_at(state, now)
    assert model is not None
    facts = rotation.adopted(state, model, now, dict.fromkeys(names, revoke))
    for name in names:
        refusal = facts[name].refusal
        if refusal is not None:
            raise CliError(f"not rotated: SslProfile {name}: {refusal.reason}: {refusal.message}")
    return _put(state, model, facts, now, _running(state))


def advance(state: NetworkState) -> Step:
    """Goes on with the rotations from what the routers use now."""
    network, now = state.network(), datetime.now(UTC)
    if network is not None:
        authority.ensure(state, now)
    model = wanted.model_at(state, now)
    if network is None or model is None or not model.profiles:
        return Step(changed=False, pause=None)
    facts = rotation.adopted(state, model, now)
    serving = model.serving(rotation.ledgers(facts))
    routers = router_facts(plan(serving), model, reports(state, network), now)
    others = certificate_users(network, serving, now)
    facts = rotation.retired(rotation.used(facts, routers.values(), others, model), now)
    changed = any(item.ledger != rotation.read(state, name) for name, item in facts.items())
    if changed:
        _put(state, model, facts, now, _running(state))
    return Step(changed, rotation.pause(facts, now))


def _running(state: NetworkState) -> Collection[str]:
    processes = state.processes()
    return processes.running() if processes is not None else ()


def _put(
    state: NetworkState,
    model: NamespaceModel,
    facts: rotation.Facts,
    now: datetime,
    running: Collection[str],
) -> Network:
    rotation.keep(state, facts)
    earlier = state.network()
    model = model.serving(rotation.ledgers(facts))
    planned = plan(model)
    instances = [instance for group in planned.instances.values() for instance in group]
    held = earlier.ports if earlier else {}
    held = {key: port for key, port in held.items() if key.partition("/")[0] in running or is_free(port)}
    keys = [*_port_keys(instances), *gossip.port_keys(model), *flowlogs.port_keys(model)]
    ports = assign(keys, held)
    taken = {item.id for item in instances}
    gossip_routers, gossip_findings = gossip.write(state, model, ports, taken)
    collectors, log_findings = flowlogs.write(
        state, model, ports, {*taken, *(item.id for item in gossip_routers)}
    )
    resolver = LoopbackResolver(state, ports)
    network = Network(
        name=state.name,
        generation=earlier.generation + 1 if earlier else 1,
        routers=tuple(_write_router(state, instance, resolver, ports) for instance in instances),
        findings=tuple(
            _sentence(finding) for finding in (*planned.findings, *gossip_findings, *log_findings)
        ),
        ports=ports,
        expiries={
            f"{router}/{secret}": moment.isoformat()
            for (router, secret), moment in planned.expiries.items()
            if moment > now
        },
        services=(*gossip_routers, *collectors),
        sites=tuple(planned.relay_sites),
    )
    state.write_network(network)
    return network


def _port_keys(instances: Iterable[RouterInstance]) -> list[str]:
    """Of every listener, and of those that connectors go to though something keeps them from being there yet."""
    keys: dict[str, None] = {}
    for instance in instances:
        for name in (_HEALTH, *(listener.name for listener in instance.listeners)):
            keys[f"{instance.id}/{name}"] = None
        for name in (_MEMBER, _BRIDGE) if instance.relay is not None else ():
            keys[f"{instance.id}/{name}"] = None
        for target in instance.relay.targets.values() if instance.relay is not None else ():
            for number in range(target.replicas):
                keys[f"{instance_id(target.router, number)}/{_BRIDGE}"] = None
        for connector in instance.connectors:
            if isinstance(connector.target, InstanceTarget):
                keys[_listener_key(connector.target)] = None
    return list(keys)


def _listener_key(target: InstanceTarget) -> str:
    return f"{instance_id(target.router, target.ordinal)}/{target.listener}"


def _write_router(
    state: NetworkState, instance: RouterInstance, resolver: LoopbackResolver, ports: Mapping[str, int]
) -> WantedRouter:
    folder = files_folder(state, instance.id)
    files = instance_files(instance, resolver)
    for name, content in files.items():
        write_atomically(folder / name, content)
    config = router_config(instance, resolver)
    content = config_bytes(config)
    # The configuration comes after the files it names and before those it no longer names go.
    write_atomically(config_path(state, instance.id), content)
    if folder.is_dir():
        for stale in folder.iterdir():
            if stale.name not in files:
                stale.unlink()
    return WantedRouter(
        id=instance.id,
        router=instance.router,
        mode=instance.mode,
        site=instance.site,
        health_port=ports[f"{instance.id}/{_HEALTH}"],
        endpoints=tuple(
            _url(listener, ports[f"{instance.id}/{listener.name}"])
            for listener in instance.listeners
            if listener.role == "normal" and listener.name != LISTENER
        ),
        config_hash=hashlib.sha256(content).hexdigest(),
        restart_hash=_restart_hash(config),
        files_hash=wanted.files_hash(files),
    )


def _url(listener: ListenerInstance, port: int) -> str:
    return f"amqps://{LOOPBACK_NAME}:{port}" if listener.tls else f"amqp://{LOOPBACK}:{port}"


def _restart_hash(config: Config) -> str:
    sections = [
        (name, {key: value for key, value in attributes.items() if key not in _LIVE_ATTRIBUTES})
        for name, attributes in config
        if name in _RESTART_SECTIONS
    ]
    return hashlib.sha256(json.dumps(sections, sort_keys=True).encode()).hexdigest()


def _sentence(finding: Finding) -> str:
    return f"{finding.kind} {finding.name}: {finding.reason}: {finding.message}"
