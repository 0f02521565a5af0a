"""One view of a network, whatever it runs on.

A platform (`local`, `cluster`) gathers a `RouterReport` per router, the document the router serves at
`/status` among it. `network_view(...)` makes rows and a list of problems of them; `render` draws these
as tables, `as_json` as one JSON document.
"""

from .flows import FlowAnalysisRow, FlowLogRow, flow_analysis_row, flow_log_row
from .linkroutes import LinkRouteRow, link_route_row
from .model import NetworkView, as_json, network_view
from .profiles import (
    Manifest,
    OrdinalCount,
    ProfileRow,
    condition,
    condition_problems,
    insecure_parts,
    profile_row,
)
from .report import RouterReport
from .sites import GossipRouterRow, RelaySiteRow, RemoteSiteRow, gossip_router_row, relay_site_row
from .table import natural_width, render

__all__ = [
    "FlowAnalysisRow",
    "FlowLogRow",
    "GossipRouterRow",
    "LinkRouteRow",
    "Manifest",
    "NetworkView",
    "OrdinalCount",
    "ProfileRow",
    "RelaySiteRow",
    "RemoteSiteRow",
    "RouterReport",
    "as_json",
    "condition",
    "condition_problems",
    "flow_analysis_row",
    "flow_log_row",
    "gossip_router_row",
    "insecure_parts",
    "link_route_row",
    "natural_width",
    "network_view",
    "profile_row",
    "relay_site_row",
    "render",
]
