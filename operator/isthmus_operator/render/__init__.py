"""Rendering: resources in, desired state out. No I/O, no clock, no randomness.

Two steps, the first of which every platform shares:

1. `plan(model) -> Plan`: which router processes there are. `Plan.instances` maps the name of a Router to
   its `RouterInstance`s (id, mode, listeners, connectors with their target, addresses, TLS profiles,
   `files`); `Plan.findings` says what could not be put into effect and why.
   A model is made with `NamespaceModel.from_manifests(namespace, manifests, secrets)` or, from parsed
   resources (`resources.parse(manifest, strict=True)`), with `NamespaceModel.of(...)`.
2. `router_config(instance, resolver) -> Config` and `config_bytes(config) -> bytes`: the configuration
   file of one instance. An `AddressResolver` of four methods says what listeners bind, how other
   instances are reached and where the files of `instance_files(instance, resolver)` (name to content)
   have been written.
   `KubernetesResolver` is one; a platform of local processes brings its own with loopback ports.

`render(model, settings) -> Rendered` does both for Kubernetes and adds the objects around them.
"""

from .config import AddressResolver, Config, config_bytes, instance_files, router_config
from .flows import (
    RenderedAnalysis,
    RenderedLog,
    collector_files,
    collector_settings,
    collector_tls,
)
from .gossip import RenderedGossip, gossip_arguments, gossip_files, gossip_tls
from .instances import (
    ConnectorInstance,
    Finding,
    GossipTarget,
    HostTarget,
    InstanceTarget,
    LinkRouteInstance,
    ListenerInstance,
    Plan,
    RouterInstance,
    SiteInstance,
    SiteTarget,
    TlsProfile,
)
from .kubernetes import KubernetesResolver, Manifest, Rendered, RenderedRouter, canonical, render
from .material import MaterialError, certificates_digest
from .plan import plan
from .sizes import LargeError
from .workload import RenderSettings

__all__ = [
    "AddressResolver",
    "Config",
    "ConnectorInstance",
    "Finding",
    "GossipTarget",
    "HostTarget",
    "InstanceTarget",
    "KubernetesResolver",
    "LargeError",
    "LinkRouteInstance",
    "ListenerInstance",
    "Manifest",
    "MaterialError",
    "Plan",
    "RenderSettings",
    "Rendered",
    "RenderedAnalysis",
    "RenderedGossip",
    "RenderedLog",
    "RenderedRouter",
    "RouterInstance",
    "SiteInstance",
    "SiteTarget",
    "TlsProfile",
    "canonical",
    "certificates_digest",
    "collector_files",
    "collector_settings",
    "collector_tls",
    "config_bytes",
    "gossip_arguments",
    "gossip_files",
    "gossip_tls",
    "instance_files",
    "plan",
    "render",
    "router_config",
]
