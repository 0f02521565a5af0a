"""`failoverUrls` of a listener: what clients may connect to instead.

Clients are told in the open frame, by the property `failover-server-list`, as Qpid's clients know it: a list of maps
with `network-host`, `port` and `scheme`, the last two only where the URL has them.
"""

from __future__ import annotations

import re

_URL = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(?::(?P<port>[A-Za-z0-9]+))?/?"
)


def failover_servers(urls: str) -> list[dict[str, str]]:
    """The servers that comma-separated URLs, `[scheme://]host[:port]`, name; ValueError names one that is none."""
    servers = []
    for url in filter(None, (part.strip() for part in urls.split(","))):
        found = _URL.fullmatch(url)
        if found is None:
            raise ValueError(f"{url!r} is not of the form [scheme://]host[:port]")
        parts = {"scheme": found["scheme"], "network-host": found["host"].strip("[]"), "port": found["port"]}
        servers.append({key: text for key, text in parts.items() if text is not None})
    return servers
