"""Values that FlowLogs and FlowAnalyses must refuse; part of the table in `bad_values.py`."""

from __future__ import annotations

from typing import Any

_LOG: dict[str, Any] = {"routerRef": {"name": "hub"}, "volume": {"size": "1Gi"}}
_LOGIN = {"mechanisms": ["PLAIN"], "credentialsSecretRef": {"name": "login"}}
_RUN: dict[str, Any] = {"flowLogRef": {"name": "flows"}}

Row = tuple[str, dict[str, Any]]


def _volume(field: str, **wrong: Any) -> Row:
    return field, {**_LOG, "volume": wrong}


def _s3(field: str, **wrong: Any) -> Row:
    return field, {"routerRef": {"name": "hub"}, "s3": {"url": "s3a://bucket/flows", **wrong}}


def _run(field: str, **wrong: Any) -> Row:
    return field, {**_RUN, **wrong}


FLOW_LOG: tuple[Row, ...] = (
    ("routerRef", {"volume": {"size": "1Gi"}}),
    ("name", {**_LOG, "routerRef": {"name": "Hub"}}),
    ("listener", {**_LOG, "routerRef": {"name": "hub", "listener": "a b"}}),
    ("exactly one of volume and s3", {"routerRef": {"name": "hub"}}),
    ("exactly one of volume and s3", {**_LOG, "s3": {"url": "s3a://bucket"}}),
    ("allowPlainWithoutTls", {**_LOG, "sasl": _LOGIN}),
    ("allowPlainWithoutTls", {**_LOG, "sasl": _LOGIN, "tls": {"disabled": True}}),
    _volume("exactly one of volume.claimName and volume.size"),
    _volume("exactly one of volume.claimName and volume.size", claimName="a", size="1Gi"),
    _volume("volume.storageClassName needs volume.size", claimName="a", storageClassName="fast"),
    _volume("size", size="much"),
    _volume("claimName", claimName="A"),
    _volume("accessMode", size="1Gi", accessMode="ReadOnlyMany"),
    _s3("url", url="s3://bucket"),
    _s3("url", url="s3a://B"),
    _s3("url", url="s3a://bucket/a?b"),
    _s3("endpoint", endpoint="store:9000"),
    _s3("endpoint", endpoint="http://store:9000/path"),
    _s3("secretName", secretName="Keys"),
    ("seconds", {**_LOG, "rotation": {"seconds": 4}}),
    ("rows", {**_LOG, "rotation": {"rows": 999}}),
    ("retentionDays", {**_LOG, "retentionDays": 0}),
    ("include", {**_LOG, "routers": {"include": []}}),
    ("exclude", {**_LOG, "routers": {"exclude": [""]}}),
    ("exactly one of secretName, sslProfile and disabled", {**_LOG, "tls": {}}),
    ("sasl needs", {**_LOG, "sasl": {}}),
    ("healthPort", {**_LOG, "healthPort": 65536}),
)

FLOW_ANALYSIS: tuple[Row, ...] = (
    ("flowLogRef", {}),
    ("name", {"flowLogRef": {"name": "Flows"}}),
    _run("exactly one of window.last and window.from", window={}),
    _run(
        "exactly one of window.last and window.from",
        window={"last": "1h", "from": "2026-11-23T00:00:00Z"},
    ),
    _run("window.to needs window.from", window={"last": "1h", "to": "2026-11-23T00:00:00Z"}),
    _run(
        "window.to must be after window.from",
        window={"from": "2026-11-23T00:00:00Z", "to": "2026-11-23T01:00:00+01:00"},
    ),
    _run("last", window={"last": "1w"}),
    _run("last", window={"last": "0h"}),
    _run("from", window={"from": "yesterday"}),
    _run("from", window={"from": "2026-11-23T00:00:00"}),
    _run("bucketSeconds", bucketSeconds=0),
    _run("baselineDays", baselineDays=91),
    _run("schedule", schedule="hourly"),
    _run("schedule", schedule="* * * *"),
    _run("timeZone needs schedule", timeZone="Europe/Berlin"),
    _run("incremental needs window.last", incremental=True, window={"from": "2026-11-23T00:00:00Z"}),
    _run(
        "incremental needs concurrencyPolicy Forbid",
        incremental=True,
        schedule="@hourly",
        concurrencyPolicy="Allow",
    ),
    _run("concurrencyPolicy", schedule="@hourly", concurrencyPolicy="Queue"),
    _run("retries", retries=21),
    _run("deadlineSeconds", deadlineSeconds=59),
    _run("memory", driver={"memory": "much"}),
    _run("instances", executors={"instances": 0}),
    _run(
        "executors.maxInstances must not be less than executors.instances",
        executors={"instances": 3, "maxInstances": 2},
    ),
    _run("cores", executors={"cores": 0}),
    _run("reports", history={"reports": 0}),
    _run("jobs", history={"jobs": 51}),
    _run("sparkConf must have names", sparkConf={"mapreduce.x": "1"}),
    _run("sparkConf must have names", sparkConf={"spark.x y": "1"}),
    _run("sparkConf must have names", sparkConf={"spark.master": "local"}),
    _run("sparkConf must have names", sparkConf={"spark.executor.memoryOverhead": "2g"}),
    _run(
        "sparkConf must have names",
        sparkConf={"spark.kubernetes.namespace": "kube-system"},
    ),
)
