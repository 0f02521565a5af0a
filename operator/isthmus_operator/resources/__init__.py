"""The resource kinds of `isthmus.dev/v1alpha1`: one model per kind, the source of schemas and docs."""

from .base import API_VERSION, GROUP, VERSION, Metadata
from .connector import Connector, ConnectorSpec
from .kinds import RESOURCE_KINDS
from .linkroute import LinkRoute, LinkRouteSpec
from .manifests import InvalidResourceError, Resource, parse
from .router import AddressTreatment, Listener, Router, RouterSpec
from .sslprofile import SslProfile, SslProfileSpec

__all__ = [
    "API_VERSION",
    "GROUP",
    "RESOURCE_KINDS",
    "VERSION",
    "AddressTreatment",
    "Connector",
    "ConnectorSpec",
    "InvalidResourceError",
    "LinkRoute",
    "LinkRouteSpec",
    "Listener",
    "Metadata",
    "Resource",
    "Router",
    "RouterSpec",
    "SslProfile",
    "SslProfileSpec",
    "parse",
]
