"""What the installation tells the operator, from environment variables."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast, get_args

import kopf

from .decoding import LIST_CHUNK
from .fetch import MAX_ANSWER_BYTES
from .kopf_storage import NO_FINALIZER, NoDiffBase, NoProgress
from .render import RenderSettings
from .render.restrictions import Level, Restrictions
from .room import DEFAULT_MEMORY_BYTES

_SERVICE_ACCOUNT_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class SettingsError(ValueError):
    """An environment variable is missing or wrong; the text names it."""


@dataclass(frozen=True)
class Settings:
    """All settings. The names of the variables are in `from_environment`."""

    watch_namespaces: tuple[str, ...]
    """Empty: all namespaces."""
    render: RenderSettings
    namespace: str
    """Where the operator itself runs; its Lease is there."""
    lease_name: str | None
    """None: no leader election, this is the only instance."""
    identity: str
    health_port: int
    log_format: str
    """`json` or `plain`."""
    log_level: str
    poll_seconds: float
    secrets_require_label: bool
    """Resources may use only Secrets with the label `isthmus.dev/use: "true"`."""
    poll_max_bytes: int
    """The longest answer of a pod that is read."""
    memory_bytes: int
    """The memory that the operator may use."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Raises SettingsError."""
        image = environment.get("ROUTER_IMAGE", "")
        if not image:
            raise SettingsError("ROUTER_IMAGE: the image of router pods must be given")
        lease = environment.get("LEASE_NAME", "isthmus-operator")
        namespace = environment.get("POD_NAMESPACE") or _own_namespace()
        return cls(
            watch_namespaces=_words(environment.get("WATCH_NAMESPACES", "")),
            render=RenderSettings(
                router_image=image,
                image_pull_policy=environment.get("ROUTER_IMAGE_PULL_POLICY", "IfNotPresent"),
                image_pull_secrets=_words(environment.get("IMAGE_PULL_SECRETS", "")),
                collector_image=environment.get("COLLECTOR_IMAGE", ""),
                analysis_image=environment.get("ANALYSIS_IMAGE", ""),
                driver_role=_role(environment, "DRIVER_ROLE"),
                restrictions=Restrictions(
                    pod_template=_level(environment, "RESTRICT_POD_TEMPLATE"),
                    spark_conf=_level(environment, "RESTRICT_SPARK_CONF"),
                    cloud_identity=_level(environment, "RESTRICT_CLOUD_IDENTITY"),
                    allowed_images=_words(environment.get("ALLOWED_IMAGES", "")),
                    allowed_metadata=_words(environment.get("ALLOWED_METADATA", "")),
                    allowed_priority_classes=_words(environment.get("ALLOWED_PRIORITY_CLASSES", "")),
                    allowed_claims=_words(environment.get("ALLOWED_CLAIMS", "")),
                    allowed_exposures=_words(environment.get("ALLOWED_EXPOSURES", "")),
                ),
                operator_namespace=namespace,
                monitoring_namespaces=_words(environment.get("MONITORING_NAMESPACES", "")),
            ),
            namespace=namespace,
            lease_name=lease if lease != "none" else None,
            identity=environment.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
            health_port=_number(environment, "HEALTH_PORT", 8080),
            log_format=_choice(environment, "LOG_FORMAT", ("json", "plain")),
            log_level=_choice(environment, "LOG_LEVEL", ("info", "debug", "warning", "error")),
            poll_seconds=_number(environment, "POLL_SECONDS", 3),
            secrets_require_label=_choice(environment, "SECRETS_REQUIRE_LABEL", ("true", "false")) == "true",
            poll_max_bytes=_number(environment, "POLL_MAX_BYTES", MAX_ANSWER_BYTES),
            memory_bytes=_number(environment, "MEMORY_LIMIT", DEFAULT_MEMORY_BYTES),
        )


def kopf_settings() -> kopf.OperatorSettings:
    """kopf's settings; why each differs from the default is in docs/operator.md."""
    out = kopf.OperatorSettings()
    out.persistence.finalizer = NO_FINALIZER
    out.persistence.progress_storage = NoProgress()
    out.persistence.diffbase_storage = NoDiffBase()
    out.posting.enabled = False
    out.peering.standalone = True
    out.scanning.disabled = True
    out.watching.server_timeout = 300
    out.watching.chunk_size = LIST_CHUNK
    out.watching.client_timeout = 310
    out.watching.connect_timeout = 30
    out.watching.reconnect_backoff = 1
    out.networking.request_timeout = 30
    out.networking.connect_timeout = 10
    out.networking.enforce_retry_after = True
    # Not limited: a worker holds its slot while it waits until all objects are indexed, so with more
    # objects than slots that would never be. The handlers do nothing that had to be limited.
    out.queueing.worker_limit = None
    out.queueing.error_delays = ()
    out.execution.default_backoff = 15
    return out


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    if not text.isdigit() or int(text) == 0:
        raise SettingsError(f"{name}: {text!r} is not a positive number")
    return int(text)


def _role(environment: Mapping[str, str], name: str) -> str:
    text = environment.get(name, RenderSettings.driver_role)
    if text.partition("/")[0] not in {"Role", "ClusterRole"} or not text.partition("/")[2]:
        raise SettingsError(f"{name}: {text!r} is not Role/NAME or ClusterRole/NAME")
    return text


def _level(environment: Mapping[str, str], name: str) -> Level:
    text = environment.get(name, "Safe")
    if text not in get_args(Level):
        raise SettingsError(f"{name}: {text!r} is not one of {', '.join(get_args(Level))}")
    return cast(Level, text)


def _choice(environment: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = environment.get(name, choices[0]).lower()
    if text not in choices:
        raise SettingsError(f"{name}: {text!r} is not one of {', '.join(choices)}")
    return text


def _own_namespace() -> str:
    try:
        with open(_SERVICE_ACCOUNT_NAMESPACE) as file:
            return file.read().strip()
    except OSError:
        return "default"
