"""The table of sections and attributes: the one source for validation, documentation and management.

Names, defaults and order are those of skupper-router 3.4.0 (and, for what it removed, qpid-dispatch
1.19), so that existing files run unchanged and management tools see the columns they expect.
"""

from __future__ import annotations

from collections.abc import Mapping

from isthmus_router.config.attributes import Section
from isthmus_router.config.tables.addresses import ADDRESS, AUTO_LINK, LINK_ROUTE
from isthmus_router.config.tables.endpoints import CONNECTOR, LISTENER, SSL_PROFILE
from isthmus_router.config.tables.policy import POLICY, VHOST
from isthmus_router.config.tables.relay import RELAY_ADDRESS, RELAY_REMOTE, RELAY_SITE
from isthmus_router.config.tables.router import LOG, NETWORK, ROUTER, SITE

SECTIONS: Mapping[str, Section] = {
    section.name: section
    for section in (
        ROUTER,
        NETWORK,
        SITE,
        SSL_PROFILE,
        LISTENER,
        CONNECTOR,
        ADDRESS,
        LINK_ROUTE,
        AUTO_LINK,
        RELAY_SITE,
        RELAY_REMOTE,
        RELAY_ADDRESS,
        POLICY,
        VHOST,
        LOG,
    )
}

UNSUPPORTED_SECTIONS: Mapping[str, str] = {
    "tcpListener": "TCP services are not carried",
    "tcpConnector": "TCP services are not carried",
    "listenerAddress": "TCP services are not carried",
    "httpListener": "HTTP services are not carried",
    "httpConnector": "HTTP services are not carried",
    "proxyProfile": "connections through an HTTP proxy are not made",
    "vhostUserGroupSettings": "write the groups into `groups` of the vhost",
    "authServicePlugin": "authentication is Cyrus SASL's or TLS's",
    "exchange": "exchanges are not supported",
    "binding": "exchanges are not supported",
    "console": "there is no console",
    "container": "set maxFrameSize and the like on listeners and connectors, the id on the router",
    "fixedAddress": "use `address` sections",
    "waypoint": "use `autoLink` sections",
    "management": "management is always there",
}
"""Sections of other routers that are known and refused, with the reason."""
