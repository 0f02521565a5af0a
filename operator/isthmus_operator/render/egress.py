"""What pods may reach: the rules of NetworkPolicies."""

from __future__ import annotations

from typing import Any

METADATA = {"0.0.0.0/0": "169.254.169.254/32", "::/0": "fd00:ec2::254/128"}
"""All addresses of a family, and the one at which clouds hand out the identity of a node."""


def all_but_metadata() -> list[dict[str, Any]]:
    """Everything but the metadata service of the cloud. Some network plugins do not count pods as addresses."""
    blocks = [{"ipBlock": {"cidr": every, "except": [one]}} for every, one in METADATA.items()]
    return [{"to": [*blocks, {"namespaceSelector": {}}]}]
