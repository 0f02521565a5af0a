"""A relay site of two members with TLS at the ports for members and for other sites."""

from __future__ import annotations

from typing import Any

from tests.integration.sites.support.relay_sites import RelaySites
from tests.integration.support.certificates import Authority
from tests.integration.support.routers import Router, Routers, Section


def secure_site(
    routers: Routers, authority: Authority, *sections: Section, **certificate: Any
) -> tuple[Router, dict[str, int]]:
    """Start the members, and return the first one with its ports, by the name of the attribute.

    `sections` are for the first one; `certificate` has details of `Authority.issue`.
    """
    one, two = (
        routers.add(
            name,
            authority.issue(name, "localhost", **certificate).profile("tls", ordinal=1),
            *(sections if name == "nyc-0" else ()),
        )
        for name in ("nyc-0", "nyc-1")
    )
    sites = RelaySites()
    sites.site("nyc", one, two, plainText=False, sslProfile="tls", bridgeSslProfile="tls")
    routers.start_all()
    sites.formed()
    attributes = next(values for kind, values in one.sections if kind == "relaySite")
    return one, {name: int(str(attributes[name])) for name in ("memberPort", "bridgePort")}
