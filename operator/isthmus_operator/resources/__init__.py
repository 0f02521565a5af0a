"""The resource kinds of `isthmus.dev/v1alpha1`: one model per kind, the source of schemas and docs."""

from .base import API_VERSION, GROUP, VERSION, Metadata
from .connector import Connector, ConnectorSpec
from .flowanalysis import FlowAnalysis, FlowAnalysisSpec
from .flowlog import FlowLog, FlowLogSpec
from .gossiprouter import GossipRouter, GossipRouterSpec
from .kinds import RESOURCE_KINDS
from .linkroute import LinkRoute, LinkRouteSpec
from .listener import Listener
from .manifests import InvalidResourceError, Resource, parse
from .relaysite import RelaySite, RelaySiteSpec
from .router import AddressTreatment, Router, RouterSpec
from .sslprofile import SslProfile, SslProfileSpec

__all__ = [
    "API_VERSION",
    "GROUP",
    "RESOURCE_KINDS",
    "VERSION",
    "AddressTreatment",
    "Connector",
    "ConnectorSpec",
    "FlowAnalysis",
    "FlowAnalysisSpec",
    "FlowLog",
    "FlowLogSpec",
    "GossipRouter",
    "GossipRouterSpec",
    "InvalidResourceError",
    "LinkRoute",
    "LinkRouteSpec",
    "Listener",
    "Metadata",
    "RelaySite",
    "RelaySiteSpec",
    "Resource",
    "Router",
    "RouterSpec",
    "SslProfile",
    "SslProfileSpec",
    "parse",
]
