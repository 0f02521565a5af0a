"""The operator's Prometheus metrics. Labels are bounded: kinds, results, verbs, status codes.

Series about resources have names of tenants as labels. `publishing.py` bounds the number of each namespace."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

RECONCILIATIONS = Counter(
    "isthmus_operator_reconciliations_total", "Reconciliations of a namespace.", ["result"]
)
RECONCILE_SECONDS = Histogram(
    "isthmus_operator_reconcile_duration_seconds", "Duration of the reconciliation of a namespace."
)
PENDING = Gauge("isthmus_operator_pending_namespaces", "Namespaces that wait for reconciliation.")
UNREADABLE = Gauge(
    "isthmus_operator_unreadable_namespaces",
    "Namespaces of the installation that the operator may not or cannot read. 1 if it cannot read the cluster.",
)
WRITES = Counter("isthmus_operator_object_writes_total", "Objects applied or deleted.", ["kind", "action"])
CONTESTS = Counter(
    "isthmus_operator_contests_total",
    "Pauses in the writes of an object, or of the status of a resource, that another writer changes each time.",
    ["kind"],
)
MISSED_DELETIONS = Counter(
    "isthmus_operator_missed_deletions_total",
    "Resources that the watchdog discarded because the watches had not delivered their deletion.",
)
WATCH_FAILURES = Counter(
    "isthmus_operator_watch_failures_total", "Watches that failed and began again.", ["resource"]
)
API_REQUESTS = Counter(
    "isthmus_operator_api_requests_total",
    "Requests to the API server; code 0: no answer, or cut.",
    ["verb", "code"],
)
POLLS = Counter("isthmus_operator_router_polls_total", "Polls of a router's status.", ["result"])
OBJECTS = Gauge("isthmus_operator_objects", "Resources by readiness.", ["kind", "ready"])
CERTIFICATE_EXPIRY = Gauge(
    "isthmus_operator_certificate_expiry_timestamp_seconds",
    "End of validity of a certificate that routers use, in seconds since the epoch.",
    ["namespace", "router", "secret"],
)
PROFILE_EXPIRY = Gauge(
    "isthmus_operator_ssl_profile_certificate_expiry_timestamp_seconds",
    "End of validity of the certificate in service, in seconds since the epoch.",
    ["namespace", "profile"],
)
PROFILE_REVOCATIONS_EXPIRY = Gauge(
    "isthmus_operator_ssl_profile_revocation_list_expiry_timestamp_seconds",
    "End of validity of the certificate revocation list that expires first, in seconds since the epoch.",
    ["namespace", "profile"],
)
PROFILE_ORDINAL = Gauge(
    "isthmus_operator_ssl_profile_ordinal",
    "Ordinal of the certificates in service.",
    ["namespace", "profile"],
)
PROFILE_OLDEST = Gauge(
    "isthmus_operator_ssl_profile_oldest_valid_ordinal", "Oldest valid ordinal.", ["namespace", "profile"]
)
PROFILE_ROTATING = Gauge(
    "isthmus_operator_ssl_profile_rotating_since_timestamp_seconds",
    "When the rotation under way began, in seconds since the epoch; absent without one.",
    ["namespace", "profile"],
)
OMITTED = Gauge(
    "isthmus_operator_omitted_series",
    "Series about the certificates of a namespace beyond the maximum, which are not exposed.",
    ["namespace"],
)
ROTATIONS = Counter(
    "isthmus_operator_ssl_profile_rotations_total",
    "Certificates of Secrets that were adopted or refused.",
    ["result"],
)
ROTATION_SECONDS = Histogram(
    "isthmus_operator_ssl_profile_rotation_duration_seconds",
    "Time from the adoption of a certificate until routers have connected with it everywhere.",
    buckets=(1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 900, 3600),
)
LEADER = Gauge("isthmus_operator_leader", "1 while this process leads.")
INFO = Gauge("isthmus_operator_build_info", "1; the labels tell the version.", ["version"])
