"""What pods may reach: the rules of NetworkPolicies."""

from __future__ import annotations

from typing import Any

METADATA: dict[str, tuple[str, ...]] = {
    "0.0.0.0/0": (
        # Link-local. Most clouds use 169.254.169.254. A network plugin sees where the node redirects a connection to,
        # as 169.254.169.252 of GKE.
        "169.254.0.0/16",
        "100.100.100.200/32",  # Alibaba Cloud
        "168.63.129.16/32",  # Azure, whose agents get certificates and settings of the node there
        "192.0.0.192/32",  # Oracle Cloud
    ),
    "::/0": (
        "fe80::/10",
        "fd00:ec2::254/128",  # AWS
        "fd00:ec2::23/128",  # AWS, identities of pods
        "fd20:ce::254/128",  # Google Cloud
        "fd00:c1::a9fe:a9fe/128",  # Oracle Cloud
        "fd00:100::100:200/128",  # Alibaba Cloud
        "fd00:42::42/128",  # Scaleway
        "fd00:a9fe:a9fe::1/128",  # Akamai
    ),
}
"""All addresses of a family, and those at which clouds hand out the identity of a node."""


def all_but_metadata() -> list[dict[str, Any]]:
    """Everything but the metadata services of clouds. DNS is everywhere, as nodes have caches with link-local
    addresses. Some network plugins do not count pods as addresses."""
    blocks = [{"ipBlock": {"cidr": every, "except": list(some)}} for every, some in METADATA.items()]
    dns = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    return [{"to": [*blocks, {"namespaceSelector": {}}]}, {"ports": dns}]
