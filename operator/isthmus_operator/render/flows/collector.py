"""The objects of a FlowLog: one collector, its settings and credentials, and its volume."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...authority import flow_log_profile
from ...model import NamespaceModel
from ...names import (
    ANNOTATION_RESTART,
    base_name,
    digest,
    flow_log_labels,
    flow_log_name,
    flow_log_selector,
    scraped,
)
from ...resources import FlowLog, Listener, Router
from ...resources.tls import ConnectorTls, given
from ...rotation.ledger import REVOCATIONS, TLS_KEYS
from ..egress import all_but_metadata
from ..ingress import health_rule
from ..instances import Finding
from ..material import Material, MaterialError, OwnTls, certificates_digest, complaints
from ..podtemplate import overlaid
from ..workload import MOUNT, STARTUP_SECONDS, RenderSettings
from .listener import LISTENER, collectors_listener
from .place import KEYS, Place, container_security, pod_security

Manifest = dict[str, Any]
SETTINGS_FILE = "collector.json"
STAGING = "/var/isthmus/staging"
STOP_SECONDS = 30
"""In which the collector completes what it has."""
_USER, _PASSWORD = "username", "password"


@dataclass(frozen=True)
class RenderedLog:
    """The objects of one FlowLog, in the order in which they are to be applied."""

    flow_log: FlowLog
    objects: tuple[Manifest, ...]
    destination: Destination
    certificates: str
    """The digest of its certificates, as the collector reports it."""


@dataclass(frozen=True)
class Destination:
    """Where a collector connects to."""

    router: Router
    listener: str
    """Name of the listener in the router's configuration."""
    port: int
    declared: Listener | None
    """The listener of the resource; None for the one that only collectors use."""


class RefusedError(Exception):
    """What a FlowLog refers to cannot be used. `reason` is the reason of the condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def render_log(
    found: FlowLog, model: NamespaceModel, settings: RenderSettings
) -> tuple[RenderedLog | None, list[Finding]]:
    """Its objects. None while something it refers to cannot be used: what runs stays as it is."""
    place = Place(found)
    if not (found.spec.image or settings.collector_image):
        message = (
            "the operator was installed without an image of collectors; set spec.image, or flowCollector.image of "
            "the chart"
        )
        return None, [Finding("FlowLog", found.name, "NoImage", message, blocking=True)]
    try:
        to = destination(found, model)
        check_keys(found, model)
        files = collector_files(found, model)
    except (MaterialError, RefusedError) as refused:
        return None, [Finding("FlowLog", found.name, refused.reason, str(refused), blocking=True)]
    host = f"{base_name(to.router.name)}.{model.namespace}.svc"
    staging = STAGING if found.spec.s3 is not None else None
    document = collector_settings(
        found, (host, to.port), files, lambda file: f"{MOUNT}/{file}", place.url, staging
    )
    content = {**files, SETTINGS_FILE: json.dumps(document, indent=1, sort_keys=True).encode()}
    name = flow_log_name(found.name)
    account: Manifest = {"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": False}
    if settings.image_pull_secrets:
        account["imagePullSecrets"] = [{"name": secret} for secret in settings.image_pull_secrets]
    data = {key: b64encode(value).decode() for key, value in sorted(content.items())}
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data}
    keys = place.keys(name, model.secrets)
    policy = _network_policy(found, settings)
    objects = [account, *keys, secret, policy, _deployment(found, place, document, settings)]
    for item in objects:
        item["metadata"] = {
            "name": name,
            "labels": flow_log_labels(found.name),
            "namespace": model.namespace,
            **item.get("metadata", {}),
        }
    everything = (*place.claims(model.namespace), *objects)
    findings = [
        Finding("FlowLog", found.name, item.reason, str(item), in_effect=True)
        for item in complaints(collector_tls(found), model)
    ]
    return RenderedLog(found, everything, to, certificates_digest(files)), findings


def _network_policy(found: FlowLog, settings: RenderSettings) -> Manifest:
    """Its collector accepts connections on the health port only. It does not reach the identity of its node unless it
    has no other one for the object store."""
    shut = not found.uses_cloud_identity
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "spec": {
            "podSelector": {"matchLabels": flow_log_selector(found.name)},
            "policyTypes": ["Ingress", *(["Egress"] if shut else [])],
            "ingress": [health_rule(found.spec.health_port, settings)],
            **({"egress": all_but_metadata()} if shut else {}),
        },
    }


def destination(found: FlowLog, model: NamespaceModel) -> Destination:
    """Where the collector connects to. Raises RefusedError."""
    reference = found.spec.router_ref
    router = model.routers.get(reference.name)
    if router is None:
        raise RefusedError("Pending", f'Router "{reference.name}" (spec.routerRef) does not exist')
    if router.spec.replicas == 0:
        raise RefusedError("Pending", f'Router "{router.name}" (spec.routerRef) is scaled to zero')
    own = collectors_listener(router, model) if found.own_tls else None
    if own is not None:
        return Destination(router, LISTENER, own.port, None)
    listener = _fitting_listener(found, router)
    return Destination(router, listener.name, listener.port, listener)


def _fitting_listener(found: FlowLog, router: Router) -> Listener:
    """The declared listener that the collector uses. Raises RefusedError."""
    reference = found.spec.router_ref
    listeners = [
        item
        for item in router.spec.effective_listeners()
        if item.name == reference.listener or (reference.listener is None and item.role == "normal")
    ]
    if not listeners:
        what = f'listener "{reference.listener}"' if reference.listener else "listener of role normal"
        raise RefusedError("Pending", f'Router "{router.name}" has no {what} (spec.routerRef)')
    fitting = [item for item in listeners if item.encrypted == (given(found.spec.tls) is not None)]
    listener = (fitting or listeners)[0]
    if listener.role != "normal":
        raise RefusedError(
            "RoleMismatch",
            f'listener "{listener.name}" of Router "{router.name}" has role {listener.role}; a collector needs one '
            "of role normal (spec.routerRef.listener)",
        )
    if not fitting:
        has, fix = ("uses TLS", "set") if given(found.spec.tls) is None else ("does not use TLS", "remove")
        raise RefusedError(
            "TlsMismatch", f'listener "{listener.name}" of Router "{router.name}" {has}; {fix} spec.tls'
        )
    if listener.exposure == "None":
        raise RefusedError(
            "ListenerNotExposed",
            f'listener "{listener.name}" of Router "{router.name}" has exposure None, so it has no Service to '
            "connect to",
        )
    return listener


def collector_tls(found: FlowLog) -> ConnectorTls | OwnTls | None:
    """Where the certificates of its collector are from; None: it has none."""
    return OwnTls(flow_log_profile(found.name)) if found.own_tls else given(found.spec.tls)


def collector_files(found: FlowLog, model: NamespaceModel) -> Mapping[str, bytes]:
    """File name to content: certificates, and a password, under the same names whatever their ordinal, as the collector
    reads them again for each connection. Raises MaterialError."""
    tls, sasl = collector_tls(found), found.spec.sasl
    files: dict[str, bytes] = {}
    material = Material(model, {})
    if tls is not None:
        needed = TLS_KEYS if found.own_tls else ("ca.crt",)
        used = material.profile(("connector", found.name), tls, needed, dialled=True)
        named = next(item.files for item in material.profiles() if item.name == used.name)
        content = material.files()
        files |= {key: content[named[key]] for key in (*TLS_KEYS, REVOCATIONS) if key in named}
    if sasl is not None and sasl.credentials_secret_ref is not None:
        login = material.login(found.name, sasl.credentials_secret_ref.name)
        files |= {_USER: login.user.encode(), _PASSWORD: material.files()[login.password.name]}
    elif sasl is not None and sasl.username is not None:
        assert sasl.password_secret_ref is not None
        reference = sasl.password_secret_ref
        password = material.password(found.name, reference.name, reference.key)
        files |= {_USER: sasl.username.encode(), _PASSWORD: material.files()[password.name]}
    return files


def check_keys(found: FlowLog, model: NamespaceModel) -> None:
    """Raises MaterialError when pods cannot have the keys of the object store of `found`."""
    s3 = found.spec.s3
    if s3 is None or s3.secret_name is None:
        return
    secret = model.secrets.get(s3.secret_name)
    if secret is None:
        raise MaterialError.missing(s3.secret_name, model)
    for key in KEYS:
        if not secret.data.get(key):
            raise MaterialError.invalid(
                s3.secret_name, f' has no key "{key}" (spec.s3.secretName); put it there'
            )


def collector_settings(
    found: FlowLog,
    router: tuple[str, int],
    files: Mapping[str, bytes],
    path: Callable[[str], str],
    log: str,
    staging: str | None,
) -> Mapping[str, Any]:
    """The settings file of the collector. `router` is where it connects to, `path` says where each of `files` is, `log`
    where the log is, as the collector sees it, and `staging` where what is not complete is, if not there as well."""
    spec = found.spec
    document: dict[str, Any] = {
        "name": flow_log_name(found.name),
        "hosts": [router[0]],
        "port": router[1],
        "log": log,
        **({"staging": staging} if staging is not None else {}),
        "retentionDays": spec.retention_days,
        "httpPort": spec.health_port,
    }
    tls = given(spec.tls)
    if tls is not None or found.own_tls:
        document["tls"] = {
            "ca": path("ca.crt"),
            **({"cert": path("tls.crt"), "key": path("tls.key")} if "tls.crt" in files else {}),
            **({"crl": path(REVOCATIONS)} if REVOCATIONS in files else {}),
            "verifyHostname": tls.verify_hostname if tls is not None else True,
        }
    if _PASSWORD in files:
        document["sasl"] = {"userFile": path(_USER), "passwordFile": path(_PASSWORD)}
    if spec.sasl is not None and spec.sasl.mechanisms is not None:
        document.setdefault("sasl", {})["mechanisms"] = " ".join(spec.sasl.mechanisms)
    if spec.sasl is not None and spec.sasl.allow_plain_without_tls and tls is None:
        document.setdefault("sasl", {})["allowPlainWithoutTls"] = True
    if spec.s3 is not None:
        options = {"endpoint": spec.s3.endpoint, "region": spec.s3.region}
        document["s3"] = {key: value for key, value in options.items() if value is not None}
    if spec.rotation is not None:
        document["rotate"] = {"seconds": spec.rotation.seconds, "rows": spec.rotation.rows}
    if spec.routers is not None:
        for key, globs in (("include", spec.routers.include), ("exclude", spec.routers.exclude)):
            if globs:
                document[key] = list(globs)
    return document


def _deployment(
    found: FlowLog, place: Place, document: Mapping[str, Any], settings: RenderSettings
) -> Manifest:
    template = overlaid(_template(found, place, document, settings), found.spec.pod_template)
    template["metadata"]["labels"].update(flow_log_labels(found.name))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 3,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": flow_log_selector(found.name)},
            "template": template,
        },
    }


def _template(
    found: FlowLog, place: Place, document: Mapping[str, Any], settings: RenderSettings
) -> Manifest:
    name, spec = flow_log_name(found.name), found.spec
    container: Manifest = {
        "name": "collector",
        "image": spec.image or settings.collector_image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": ["-c", f"{MOUNT}/{SETTINGS_FILE}"],
        "env": place.environment(flow_log_name(found.name)),
        "ports": [{"name": "health", "containerPort": spec.health_port, "protocol": "TCP"}],
        "startupProbe": _probe("/healthz", periodSeconds=1, failureThreshold=STARTUP_SECONDS),
        "readinessProbe": _probe("/readyz", periodSeconds=2, failureThreshold=2),
        "livenessProbe": _probe("/healthz", periodSeconds=10, failureThreshold=3),
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": "config", "mountPath": MOUNT, "readOnly": True},
            *([{"name": "staging", "mountPath": STAGING}] if "staging" in document else []),
            {"name": "tmp", "mountPath": "/tmp"},
            *place.mounts(),
        ],
    }
    if spec.resources is not None:
        container["resources"] = spec.resources.model_dump(by_alias=True, exclude_none=True)
    pod: Manifest = {
        "serviceAccountName": name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": STOP_SECONDS,
        "securityContext": pod_security(),
        "containers": [container],
        "volumes": [
            {"name": "config", "secret": {"secretName": name, "defaultMode": 0o440}},
            *([{"name": "staging", "emptyDir": {"sizeLimit": "2Gi"}}] if "staging" in document else []),
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
            *place.volumes(),
        ],
    }
    if settings.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in settings.image_pull_secrets]
    restart = digest(json.dumps(document, sort_keys=True))[:16]
    return {
        "metadata": {
            "labels": flow_log_labels(found.name),
            "annotations": {ANNOTATION_RESTART: restart, **scraped(found.spec.health_port)},
        },
        "spec": pod,
    }


def _probe(path: str, **timing: int) -> Manifest:
    return {"httpGet": {"path": path, "port": "health"}, "timeoutSeconds": 5, **timing}
