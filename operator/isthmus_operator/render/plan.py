"""`plan(model)`: resources become router instances and findings. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property

from ..authority import router_profile
from ..model import NamespaceModel
from ..names import instance_id
from ..resources import Connector, Listener, Router
from ..resources.listener import Role
from ..rotation.ledger import TLS_KEYS
from ..seniority import oldest_first
from .flows.collector import RefusedError, destination
from .flows.listener import LISTENER, CollectorsListener, collectors_listener
from .instances import (
    ConnectorInstance,
    Finding,
    HostTarget,
    InstanceTarget,
    LinkRouteInstance,
    ListenerInstance,
    Plan,
    RouterInstance,
    SiteInstance,
    mesh_connector_name,
)
from .linkroutes import plan_link_routes
from .material import AUTHORITY_UNUSABLE, AnyTls, Material, MaterialError, OwnTls, Used, User
from .peers import certificate_attributes, own_certificate_attributes
from .policy import CLIENT_ROLES, policy_problems
from .sites import Membership, memberships, site_instance

OLDEST_TLS = "TLSv1.2"
"""With certificates of the namespace's own authority."""

_ACCEPTED_BY: Mapping[Role, tuple[Role, ...]] = {
    "inter-router": ("inter-router",),
    "edge": ("edge",),
    "route-container": ("route-container", "normal"),
    "normal": ("normal", "route-container"),
}
"""Connector role to the listener roles it may go to, preferred one first."""


MAX_CONNECTOR_SECTIONS = 4096
"""Of the replicas of one Router, for Connectors. A Secret has no room for more."""
MAX_PARTS = 200_000
"""Replicas of all Routers of a namespace, and their connectors. The operator holds each of them."""


class _RefusedError(Exception):
    """A resource cannot be put into effect; carries the finding's reason and message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def plan(model: NamespaceModel) -> Plan:
    """The instances of all Routers of `model`.

    A part that cannot be put into effect (a Secret or Router that does not exist yet) is left out and
    named in a finding; the rest of its Router runs.
    """
    findings: list[Finding] = []
    outgoing: dict[str, list[Connector]] = {}
    for connector in model.connectors.values():
        source = connector.spec.from_.router_ref.name
        if source in model.routers:
            outgoing.setdefault(source, []).append(connector)
        else:
            message = f'Router "{source}" (spec.from.routerRef) does not exist'
            findings.append(Finding("Connector", connector.name, "Pending", message))
    routes = plan_link_routes(model)
    sections = routes.by_router
    findings += routes.findings
    members, unfit = memberships(model)
    findings += unfit
    excessive = {
        item.name: item for item in _excessive(model, {name: len(items) for name, items in outgoing.items()})
    }
    findings += excessive.values()
    plans: dict[str, _RouterPlan] = {}
    instances: dict[str, tuple[RouterInstance, ...]] = dict.fromkeys(model.routers, ())
    expiries: dict[tuple[str, str], datetime] = {}
    for router in model.routers.values():
        if router.name in excessive:
            continue
        try:
            found = _RouterPlan(
                model,
                router,
                outgoing.get(router.name, []),
                sections.get(router.name, ()),
                members.get(router.name),
                findings,
            )
            moments = found.certificate_expiries()
            instances[router.name] = found.instances()
        except Exception as error:  # it concerns this Router alone
            findings.append(Finding.failed("Router", router.name, error))
            continue
        plans[router.name] = found
        expiries |= {(router.name, secret): moment for secret, moment in moments.items()}
    return Plan(
        instances,
        tuple(sorted(findings, key=lambda item: (item.kind, item.name, item.reason, item.message))),
        expiries,
        routes.sections,
        {found.relay.name: found.relay for found in plans.values() if found.relay is not None},
    )


def _excessive(model: NamespaceModel, outgoing: Mapping[str, int]) -> Iterator[Finding]:
    """About Routers that are not planned, because they, or all in the namespace, have too many parts. The oldest ones
    are planned first. `outgoing`: Router to the number of Connectors from it."""
    left = MAX_PARTS
    for router in oldest_first(model.routers.values(), model.juniors):
        replicas, connectors = router.spec.replicas, outgoing.get(router.name, 0)
        if router.spec.mode == "edge":
            sections, parts = connectors, replicas + connectors
        else:
            sections = replicas * connectors
            parts = replicas + sections + replicas * (replicas - 1) // 2
        if replicas and sections > MAX_CONNECTOR_SECTIONS:
            message = (
                f"its {connectors} Connectors make more than {MAX_CONNECTOR_SECTIONS} sections in the configurations "
                f"of its {replicas} replicas, which no Secret can hold; have fewer Connectors or fewer replicas"
            )
        elif replicas and parts > left:
            message = (
                f"the replicas of all Routers of the namespace, and their connectors, are more than {MAX_PARTS}; have "
                "fewer, or move some to another namespace"
            )
        else:
            left -= parts if replicas else 0
            continue
        yield Finding("Router", router.name, "TooLarge", message, blocking=True)


class _RouterPlan:
    """The instances of one Router."""

    def __init__(
        self,
        model: NamespaceModel,
        router: Router,
        connectors: list[Connector],
        link_routes: tuple[LinkRouteInstance, ...],
        membership: Membership | None,
        findings: list[Finding],
    ) -> None:
        self._model = model
        self._router = router
        self._link_routes = link_routes
        self._findings = findings
        self._found: set[Finding] = set()
        """About the Router itself."""
        self._material = Material(model, model.delivered.get(router.name, {}))
        self._users_file: str | None = None
        self._of_collectors = self._shared_with_collectors()
        self._collectors = collectors_listener(router, model)
        self._listeners = self._plan_listeners()
        if model.authority_problem:
            self._find(AUTHORITY_UNUSABLE, model.authority_problem, in_effect=True)
        if router.spec.policy is not None:
            for problem in policy_problems(router.spec.policy, self._who_authenticates()):
                self._find("PolicyUnusable", problem)
        self._connectors = [
            planned for connector in connectors if (planned := self._checked_connector(connector)) is not None
        ]

        self.relay = self._plan_site(membership) if membership is not None else None

    def instances(self) -> tuple[RouterInstance, ...]:
        replicas = range(self._router.spec.replicas)
        if self._router.spec.mode == "interior":
            return tuple(map(self.instance, replicas))
        made = [self.instance(0)] if replicas else []
        made += [
            replace(made[0], id=instance_id(self._router.name, ordinal), ordinal=ordinal)
            for ordinal in replicas[1:]
        ]
        return tuple(made)

    def certificate_expiries(self) -> Mapping[str, datetime]:
        """Secret to the end of validity of its certificate."""
        return self._material.expiries()

    def instance(self, ordinal: int) -> RouterInstance:
        spec = self._router.spec
        mesh = self._mesh_connectors[:ordinal] if ordinal else []
        connectors = [
            item for planned in self._connectors for item in self._connector_instances(planned, ordinal)
        ]
        return RouterInstance(
            id=instance_id(self._router.name, ordinal),
            router=self._router.name,
            ordinal=ordinal,
            mode=spec.mode,
            site=spec.site,
            default_distribution=spec.default_distribution,
            health_port=spec.health_port,
            workers=spec.workers,
            flow_interval_seconds=spec.flow_interval_seconds,
            listeners=tuple(self._listeners),
            connectors=tuple(mesh + connectors),
            addresses=tuple(spec.addresses or ()),
            policy=spec.policy,
            log=tuple(spec.log or ()),
            tls=self._material.profiles(),
            users_file=self._users_file,
            files=self._material.files(),
            link_routes=self._link_routes,
            relay=self.relay,
            collectors=self._collectors.peer_names if self._collectors is not None else (),
        )

    def _plan_site(self, membership: Membership) -> SiteInstance | None:
        """A site whose certificates are not there is left out: it never runs without them."""
        try:
            found, kept = site_instance(membership, self._router, self._model.namespace, self._material)
        except MaterialError as missing:
            self._findings.append(Finding("RelaySite", membership.site.name, missing.reason, str(missing)))
            return None
        self._findings += [Finding("RelaySite", found.name, *item, in_effect=True) for item in kept]
        return found

    # -- listeners

    def _plan_listeners(self) -> list[ListenerInstance]:
        planned = []
        for listener in self._router.spec.effective_listeners():
            try:
                planned.append(self._listener_instance(listener))
            except MaterialError as missing:
                self._find(missing.reason, f'listener "{listener.name}": {missing}')
        if self._collectors is not None:
            try:
                planned.append(self._collectors_instance(self._collectors))
            except MaterialError as missing:
                self._find(missing.reason, f"the listener for collectors of flow records: {missing}")
        return planned

    def _shared_with_collectors(self) -> set[str]:
        """Names of the declared listeners that collectors of flow records connect to."""
        names = set()
        for flow_log in self._model.flow_logs_of.get(self._router.name, ()):
            if flow_log.own_tls:
                continue
            with suppress(RefusedError):
                names.add(destination(flow_log, self._model).listener)
        return names

    def _collectors_instance(self, listener: CollectorsListener) -> ListenerInstance:
        """Raises MaterialError."""
        used = self._material.profile(
            ("listener", LISTENER), self._own_tls, TLS_KEYS, OLDEST_TLS, dialled=False
        )
        self._find_kept("the listener for collectors of flow records", used, "certificates")
        attributes = listener.attributes(policy=self._router.spec.policy is not None)
        return ListenerInstance(LISTENER, "normal", listener.port, "", attributes, used.name)

    def _who_authenticates(self) -> list[str]:
        """Names of the listeners whose clients are somebody."""
        return [
            listener.name
            for listener in self._router.spec.effective_listeners()
            if listener.role in CLIENT_ROLES and set(listener.mechanisms) != {"ANONYMOUS"}
        ]

    def _listener_instance(self, listener: Listener) -> ListenerInstance:
        tls = None
        if listener.encrypted:
            needed = ["tls.crt", "tls.key"]
            if listener.own_tls or (listener.tls is not None and listener.tls.require_client_certificate):
                needed.append("ca.crt")
            tls = self._profile(listener, f'listener "{listener.name}"', needed)
        if listener.sasl is not None and listener.sasl.users_secret_ref is not None:
            users = self._material.users(listener.sasl.users_secret_ref.name)
            self._users_file = users.name
            self._find_kept(f'listener "{listener.name}"', users, "users")
        mechanisms = listener.mechanisms
        attributes: dict[str, str | int | bool] = {
            "cost": listener.cost,
            "saslMechanisms": " ".join(mechanisms),
            "authenticatePeer": "ANONYMOUS" not in mechanisms,
            "requireSsl": listener.encrypted,
            **certificate_attributes(self._model, self._router, listener),
            "allowPlainWithoutTls": listener.plain_in_clear,
            "maxFrameSize": listener.max_frame_size,
            "maxSessions": listener.max_sessions,
            "idleTimeoutSeconds": listener.idle_timeout_seconds,
            "initialHandshakeTimeoutSeconds": listener.initial_handshake_timeout_seconds,
            "linkCapacity": listener.link_capacity,
            "maxMessageSize": listener.max_message_size,
            "stripAnnotations": listener.strip_annotations,
        }
        stated = {
            "maxLinks": listener.max_links,
            "maxConnections": listener.max_connections,
            "maxHandshakes": listener.max_handshakes,
            "maxHandshakesPerHost": listener.max_handshakes_per_host,
            "management": listener.management,
        }
        attributes |= {name: value for name, value in stated.items() if value is not None}
        if listener.name in self._of_collectors:
            attributes["allowFlowRecords"] = True
        if listener.own_tls and "EXTERNAL" in mechanisms:
            attributes |= own_certificate_attributes(self._model, self._router, listener)
        return ListenerInstance(
            listener.name, listener.role, listener.port, listener.host or "", attributes, tls
        )

    def _profile(self, listener: Listener, user: str, needed: Sequence[str], *, dialled: bool = False) -> str:
        key: User = ("listener", listener.name)
        tls, version = listener.given_tls, OLDEST_TLS
        if tls is not None:
            version = tls.minimum_version
        used = self._material.profile(key, tls or self._own_tls, needed, version, dialled=dialled)
        self._find_kept(user, used, "certificates")
        return used.name

    @property
    def _own_tls(self) -> OwnTls:
        """The certificate that the namespace's own authority gives the Router."""
        return OwnTls(router_profile(self._router.name))

    def _find_kept(self, user: str, used: Used, what: str) -> None:
        if used.complaint is not None:
            message = f"{user}: {used.complaint.kept(what)}"
            self._find(used.complaint.reason, message, in_effect=True)

    # -- the mesh of the interior replicas

    @cached_property
    def _mesh_connectors(self) -> list[ConnectorInstance]:
        """Those of the last replica. Each replica connects to all that come before it, so every pair has one link."""
        if self._router.spec.mode != "interior":
            return []
        listener = next((item for item in self._listeners if item.role == "inter-router"), None)
        if listener is None:
            return []
        declared = next(
            item for item in self._router.spec.effective_listeners() if item.name == listener.name
        )
        usable = [item for item in declared.mechanisms if item in {"EXTERNAL", "ANONYMOUS"}]
        if not usable:
            self._find(
                "MeshRefused",
                f'listener "{listener.name}" accepts passwords only, so the replicas cannot connect to each '
                "other; allow EXTERNAL or ANONYMOUS",
            )
            return []
        attributes: dict[str, str | int | bool] = {
            "cost": 1,
            "saslMechanisms": " ".join(usable),
            "maxFrameSize": declared.max_frame_size,
            "idleTimeoutSeconds": declared.idle_timeout_seconds,
            "linkCapacity": declared.link_capacity,
        }
        tls = None
        if declared.encrypted:
            links = f'links between replicas through listener "{listener.name}"'
            try:
                tls = self._profile(declared, links, ["ca.crt"], dialled=True)
            except MaterialError as missing:
                self._find(missing.reason, f"{links}: {missing}")
                return []
            attributes["verifyHostname"] = True
        return [
            ConnectorInstance(
                name=mesh_connector_name(self._router.name, peer),
                role="inter-router",
                target=InstanceTarget(
                    self._router.name, peer, listener.name, listener.port, any_replica=False
                ),
                attributes=attributes,
                tls=tls,
            )
            for peer in range(self._router.spec.replicas - 1)
        ]

    # -- connectors

    def _checked_connector(self, connector: Connector) -> _PlannedConnector | None:
        try:
            return self._plan_connector(connector)
        except _RefusedError as refused:
            self._findings.append(Finding("Connector", connector.name, refused.reason, refused.message))
        except MaterialError as missing:
            self._findings.append(Finding("Connector", connector.name, missing.reason, str(missing)))
        return None

    def _plan_connector(self, connector: Connector) -> _PlannedConnector:
        spec = connector.spec
        self._check_modes(connector)
        target = _target_listener(self._model, connector)
        tls, with_certificate = None, False
        given = connector.given_tls
        wanted: AnyTls | None = given
        if target is not None and target[1].own_tls:
            wanted = self._own_tls
        if wanted is not None:
            key: User = ("connector", connector.name)
            needed, version = (TLS_KEYS, OLDEST_TLS) if given is None else (("ca.crt",), None)
            used = self._material.profile(key, wanted, needed, version, dialled=True)
            tls, with_certificate = used.name, used.has_certificate
            self._complain(connector, used, "certificates")
        attributes: dict[str, str | int | bool] = {
            "cost": spec.cost,
            "maxFrameSize": spec.max_frame_size,
            "maxSessions": spec.max_sessions,
            "idleTimeoutSeconds": spec.idle_timeout_seconds,
            "linkCapacity": spec.link_capacity,
        }
        if wanted is not None:
            attributes["verifyHostname"] = given.verify_hostname if given is not None else True
        if spec.allow_peer_links:
            attributes["allowPeerLinks"] = True
        if spec.data_connections is not None:
            attributes["dataConnectionCount"] = spec.data_connections
        mechanisms = spec.sasl.mechanisms if spec.sasl is not None else None
        attributes["allowPlainWithoutTls"] = (
            spec.sasl is not None and spec.sasl.allow_plain_without_tls and wanted is None
        )
        if mechanisms:
            attributes["saslMechanisms"] = " ".join(mechanisms)
        elif spec.sasl is None:
            attributes["saslMechanisms"] = "EXTERNAL ANONYMOUS" if with_certificate else "ANONYMOUS"
        password_file = None
        if spec.sasl is not None and spec.sasl.username and spec.sasl.password_secret_ref:
            attributes["saslUsername"] = spec.sasl.username
            reference = spec.sasl.password_secret_ref
            password = self._material.password(connector.name, reference.name, reference.key)
            password_file = password.name
            self._complain(connector, password, "password")
        elif spec.sasl is not None and spec.sasl.credentials_secret_ref is not None:
            login = self._material.login(connector.name, spec.sasl.credentials_secret_ref.name)
            attributes["saslUsername"], password_file = login.user, login.password.name
            self._complain(connector, login.password, "user name and password")
        return _PlannedConnector(connector, target, attributes, tls, password_file)

    def _complain(self, connector: Connector, used: Used, what: str) -> None:
        if used.complaint is not None:
            message = used.complaint.kept(what)
            finding = Finding("Connector", connector.name, used.complaint.reason, message, in_effect=True)
            self._findings.append(finding)

    def _check_modes(self, connector: Connector) -> None:
        role, mode = connector.spec.role, self._router.spec.mode
        if role == "inter-router" and mode != "interior":
            raise _RefusedError(
                "RoleMismatch",
                "spec.role inter-router needs an interior Router in spec.from.routerRef, "
                f'"{self._router.name}" is {mode}',
            )
        if role == "edge" and mode != "edge":
            raise _RefusedError(
                "RoleMismatch",
                f'spec.role edge needs an edge Router in spec.from.routerRef, "{self._router.name}" is {mode}',
            )

    def _connector_instances(self, planned: _PlannedConnector, ordinal: int) -> list[ConnectorInstance]:
        """The connections of one replica: to another interior Router two, where it has two replicas.

        With one each, the loss of a node that has replica 0 of one Router and replica 1 of the other would
        leave no connection between two Routers of two replicas.
        """
        # Replicas share those that are the same, as there may be thousands.
        number = ordinal % planned.listener[0].spec.replicas if planned.listener is not None else 0
        if number not in planned.instances:
            planned.instances[number] = self._new_instances(planned, number)
        return planned.instances[number]

    def _new_instances(self, planned: _PlannedConnector, ordinal: int) -> list[ConnectorInstance]:
        spec = planned.connector.spec
        targets: list[InstanceTarget | HostTarget] = []
        if planned.listener is None:
            assert spec.to.host is not None
            assert spec.to.port is not None
            targets.append(HostTarget(spec.to.host, spec.to.port))
        else:
            peer, listener = planned.listener
            replicas, any_replica = peer.spec.replicas, spec.role != "inter-router"
            count = 1 if any_replica else min(2, replicas)
            targets += (
                InstanceTarget(
                    router=peer.name,
                    ordinal=(ordinal + step) % replicas,
                    listener=listener.name,
                    port=listener.port,
                    any_replica=any_replica,
                )
                for step in range(count)
            )
        name = planned.connector.name
        return [
            ConnectorInstance(
                name=name if number == 1 else f"{name}/{number}",
                role=spec.role,
                target=target,
                attributes=planned.attributes,
                resource=name,
                tls=planned.tls,
                password_file=planned.password_file,
                auto_links=tuple(spec.auto_links or ()),
            )
            for number, target in enumerate(targets, 1)
        ]

    def _find(self, reason: str, message: str, *, in_effect: bool = False) -> None:
        finding = Finding("Router", self._router.name, reason, message, in_effect=in_effect)
        if finding not in self._found:
            self._found.add(finding)
            self._findings.append(finding)


class _PlannedConnector:
    """A Connector whose references resolve."""

    def __init__(
        self,
        connector: Connector,
        listener: tuple[Router, Listener] | None,
        attributes: Mapping[str, str | int | bool],
        tls: str | None,
        password_file: str | None,
    ) -> None:
        self.connector = connector
        self.listener = listener
        self.attributes = attributes
        self.tls = tls
        self.password_file = password_file
        self.instances: dict[int, list[ConnectorInstance]] = {}
        """By the replica of the other Router that they prefer."""


def _target_listener(model: NamespaceModel, connector: Connector) -> tuple[Router, Listener] | None:
    """The listener that the connector goes to, or None when it goes to a host."""
    reference = connector.spec.to.router_ref
    if reference is None:
        if connector.spec.tls is None and connector.spec.role in {"inter-router", "edge"}:
            raise _RefusedError(
                "TlsRequired",
                f"a connector of role {connector.spec.role} to spec.to.host needs spec.tls: name a Secret or an "
                "SslProfile with the authority of the other side, or set spec.tls.disabled to connect in clear text",
            )
        return None
    peer = model.routers.get(reference.name)
    if peer is None:
        raise _RefusedError("Pending", f'Router "{reference.name}" (spec.to.routerRef) does not exist')
    if peer.spec.replicas == 0:
        raise _RefusedError("Pending", f'Router "{peer.name}" (spec.to.routerRef) is scaled to zero')
    listener = _fitting_listener(connector, peer, reference.listener)
    mismatch = _tls_mismatch(connector, listener)
    if mismatch:
        raise _RefusedError("TlsMismatch", f'listener "{listener.name}" of Router "{peer.name}": {mismatch}')
    if listener.exposure == "None" and connector.spec.role != "inter-router":
        raise _RefusedError(
            "ListenerNotExposed",
            f'listener "{listener.name}" of Router "{peer.name}" has exposure None, so it has no '
            "Service to connect to",
        )
    return peer, listener


def _tls_mismatch(connector: Connector, listener: Listener) -> str:
    """Why the two ends cannot agree on transport security, or nothing."""
    given = connector.given_tls is not None
    if listener.own_tls and connector.spec.tls is None:
        return ""
    if listener.own_tls and given:
        return "the listener uses certificates of the namespace's own authority; remove spec.tls"
    if given and not listener.encrypted:
        return "the connector uses TLS, the listener does not"
    if listener.encrypted and not given:
        return "the listener uses TLS, the connector does not"
    return ""


def _fitting_listener(connector: Connector, peer: Router, wanted: str | None) -> Listener:
    if peer.spec.mode == "edge" and connector.spec.role in {"edge", "inter-router"}:
        raise _RefusedError(
            "RoleMismatch",
            f"spec.role {connector.spec.role} needs an interior Router in spec.to.routerRef, "
            f'"{peer.name}" is edge',
        )
    roles = _ACCEPTED_BY[connector.spec.role]
    listeners = peer.spec.effective_listeners()
    if wanted is not None:
        named = next((item for item in listeners if item.name == wanted), None)
        if named is None:
            raise _RefusedError(
                "Pending", f'Router "{peer.name}" has no listener "{wanted}" (spec.to.routerRef.listener)'
            )
        if named.role not in roles:
            raise _RefusedError(
                "RoleMismatch",
                f'listener "{wanted}" of Router "{peer.name}" has role {named.role}, the connector has role '
                f"{connector.spec.role}",
            )
        return named
    for role in roles:
        for item in listeners:
            if item.role == role:
                return item
    raise _RefusedError("RoleMismatch", f'Router "{peer.name}" has no listener of role {" or ".join(roles)}')
