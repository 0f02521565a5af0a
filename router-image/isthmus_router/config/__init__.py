"""The router's configuration: reading, validating, comparing and watching it.

`load` reads a file, `parse` reads text; both return a `Configuration` or raise a `ConfigError` that
lists every problem found with its line. The table in `schema.py` is the only place that says which
sections and attributes exist.
"""

from isthmus_router.config.errors import ConfigError, Problem
from isthmus_router.config.loader import load, parse
from isthmus_router.config.model import (
    AddressConfig,
    AddressFamily,
    AutoLinkConfig,
    Configuration,
    ConnectorConfig,
    Direction,
    Distribution,
    LinkRouteConfig,
    ListenerConfig,
    LogConfig,
    Mode,
    NetworkConfig,
    PolicyConfig,
    RouterConfig,
    SiteConfig,
    SslProfileConfig,
    UserGroupConfig,
    VhostConfig,
)
from isthmus_router.config.relay_model import (
    Discovery,
    Endpoint,
    PhysicalChoice,
    RelayAddressConfig,
    RelayRemoteConfig,
    RelaySiteConfig,
)

__all__ = [
    "AddressConfig",
    "AddressFamily",
    "AutoLinkConfig",
    "ConfigError",
    "Configuration",
    "ConnectorConfig",
    "Direction",
    "Discovery",
    "Distribution",
    "Endpoint",
    "LinkRouteConfig",
    "ListenerConfig",
    "LogConfig",
    "Mode",
    "NetworkConfig",
    "PhysicalChoice",
    "PolicyConfig",
    "Problem",
    "RelayAddressConfig",
    "RelayRemoteConfig",
    "RelaySiteConfig",
    "RouterConfig",
    "SiteConfig",
    "SslProfileConfig",
    "UserGroupConfig",
    "VhostConfig",
    "load",
    "parse",
]
