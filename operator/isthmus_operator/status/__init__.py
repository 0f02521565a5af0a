"""Status of Routers and Connectors: pure functions of what was rendered, applied and observed."""

from .conditions import Verdict, invalid_status, normal, readiness
from .connector import connector_status
from .inputs import PodView, RouterFacts
from .router import router_status

__all__ = [
    "PodView",
    "RouterFacts",
    "Verdict",
    "connector_status",
    "invalid_status",
    "normal",
    "readiness",
    "router_status",
]
