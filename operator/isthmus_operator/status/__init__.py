"""Status of resources: pure functions of what was rendered, applied and observed."""

from .certificate_user import CertificateUser
from .conditions import (
    INSECURE,
    Verdict,
    altered,
    condition_status,
    deleting_status,
    invalid_status,
    normal,
    readiness,
    without,
)
from .connector import connector_status
from .flowanalysis import AnalysisFacts, flowanalysis_status
from .flowlog import flowlog_status
from .gossiprouter import gossiprouter_status
from .inputs import PodView, RouterFacts, lacks_pods
from .insecure import (
    connector_insecure,
    flow_log_insecure,
    gossip_router_insecure,
    relay_site_insecure,
    router_insecure,
    shared_with_collectors,
)
from .linkroute import linkroute_status
from .relaysite import relaysite_status
from .router import router_status
from .sslprofile import is_under_way, next_change, sslprofile_status, stuck
from .usage import ProfileFacts, Usage, Users, usage

__all__ = [
    "INSECURE",
    "AnalysisFacts",
    "CertificateUser",
    "PodView",
    "ProfileFacts",
    "RouterFacts",
    "Usage",
    "Users",
    "Verdict",
    "altered",
    "condition_status",
    "connector_insecure",
    "connector_status",
    "deleting_status",
    "flow_log_insecure",
    "flowanalysis_status",
    "flowlog_status",
    "gossip_router_insecure",
    "gossiprouter_status",
    "invalid_status",
    "is_under_way",
    "lacks_pods",
    "linkroute_status",
    "next_change",
    "normal",
    "readiness",
    "relay_site_insecure",
    "relaysite_status",
    "router_insecure",
    "router_status",
    "shared_with_collectors",
    "sslprofile_status",
    "stuck",
    "usage",
    "without",
]
