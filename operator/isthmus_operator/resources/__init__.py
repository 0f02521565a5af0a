"""The resource kinds of `isthmus.dev/v1alpha1`: one model per kind, the source of schemas and docs."""

from .base import API_VERSION, GROUP, VERSION, Metadata
from .connector import Connector, ConnectorSpec
from .manifests import InvalidResourceError, parse
from .router import AddressTreatment, Listener, Router, RouterSpec

__all__ = [
    "API_VERSION",
    "GROUP",
    "VERSION",
    "AddressTreatment",
    "Connector",
    "ConnectorSpec",
    "InvalidResourceError",
    "Listener",
    "Metadata",
    "Router",
    "RouterSpec",
    "parse",
]
