"""The operator's Prometheus metrics. Labels are bounded: kinds, results, verbs, status codes."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

RECONCILIATIONS = Counter(
    "isthmus_operator_reconciliations_total", "Reconciliations of a namespace.", ["result"]
)
RECONCILE_SECONDS = Histogram(
    "isthmus_operator_reconcile_duration_seconds", "Duration of the reconciliation of a namespace."
)
PENDING = Gauge("isthmus_operator_pending_namespaces", "Namespaces that wait for reconciliation.")
WRITES = Counter("isthmus_operator_object_writes_total", "Objects applied or deleted.", ["kind", "action"])
API_REQUESTS = Counter(
    "isthmus_operator_api_requests_total", "Requests to the API server; code 0: no answer.", ["verb", "code"]
)
POLLS = Counter("isthmus_operator_router_polls_total", "Polls of a router's status.", ["result"])
OBJECTS = Gauge("isthmus_operator_objects", "Resources by readiness.", ["kind", "ready"])
CERTIFICATE_EXPIRY = Gauge(
    "isthmus_operator_certificate_expiry_timestamp_seconds",
    "End of validity of a certificate that routers use, in seconds since the epoch.",
    ["namespace", "router", "secret"],
)
LEADER = Gauge("isthmus_operator_leader", "1 while this process leads.")
INFO = Gauge("isthmus_operator_build_info", "1; the labels tell the version.", ["version"])
