"""The certificate authority that Isthmus makes for each namespace, and the certificates of Routers, GossipRouters and
FlowLogs.

`issue.py` makes authorities and certificates. `own.py` decides which certificates a namespace needs, which names are in
them, and which names a listener accepts. `keeper.py` reads and writes the authority's Secret on Kubernetes; on one
machine `isthmus_cli.local.authority` does the same with a file.

A certificate of a Router is in service like that of an SslProfile, with a ledger and ordinals; the profile is implicit.
"""

from .issue import AUTHORITY_KEYS, Authority, Names, UnusableAuthorityError, new_authority, renewed
from .own import (
    AUTHORITY_SECRET,
    Own,
    flow_log_profile,
    gossip_profile,
    is_own,
    offer,
    own_profiles,
    peer_names,
    router_profile,
)

__all__ = [
    "AUTHORITY_KEYS",
    "AUTHORITY_SECRET",
    "Authority",
    "Names",
    "Own",
    "UnusableAuthorityError",
    "flow_log_profile",
    "gossip_profile",
    "is_own",
    "new_authority",
    "offer",
    "own_profiles",
    "peer_names",
    "renewed",
    "router_profile",
]
