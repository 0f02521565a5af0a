"""FlowAnalyses become a Job or CronJob with a driver of Spark; status comes from them and what drivers say."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from tests.unit.operator.support import driver_files, flow_analysis, flow_log, model, opaque_secret, router

from isthmus_flows.authentication import KEY_FILE, SECRET_FILE
from isthmus_operator.apply import owned
from isthmus_operator.flow_facts import flow_facts, targets
from isthmus_operator.flow_reports import parse_progress
from isthmus_operator.model import SecretView
from isthmus_operator.names import driver_binding
from isthmus_operator.render import Rendered, RenderSettings, render
from isthmus_operator.render.flows.analysis import mebibytes
from isthmus_operator.render.restrictions import Restrictions
from isthmus_operator.report import Observation
from isthmus_operator.resources import InvalidResourceError, parse
from isthmus_operator.resources.flowanalysis import RESERVED
from isthmus_operator.status import AnalysisFacts

SETTINGS = RenderSettings(
    router_image="router:1",
    collector_image="collector:1",
    analysis_image="analysis:1",
    driver_role="Role/isthmus-flow-driver",
)
OPEN = replace(SETTINGS, restrictions=Restrictions("Any", "Any", ("*",)))
"""What an installation allows that trusts all authors of resources."""
NOW = "2026-11-23T10:00:00Z"
AT = datetime.fromisoformat(NOW)
LABELS = {"isthmus.dev/flowanalysis": "daily"}


STORE = opaque_secret("keys", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def rendered(
    *manifests: dict[str, Any], settings: RenderSettings = SETTINGS, secrets: Sequence[SecretView] = ()
) -> Rendered:
    return render(model(router("hub"), *manifests, secrets=secrets), settings)


def objects(found: Rendered, name: str = "daily") -> dict[str, dict[str, Any]]:
    return {item["kind"]: item for item in found.flow_analyses[name].objects}


def one(**spec: Any) -> dict[str, dict[str, Any]]:
    return objects(rendered(flow_log("flows"), flow_analysis("daily", **spec)))


def driver(job: dict[str, Any]) -> dict[str, Any]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return dict(container)


def conf(made: dict[str, dict[str, Any]]) -> dict[str, str]:
    lines = driver_files(made.values())["spark-defaults.conf"].splitlines()
    return dict(line.split(" ", 1) for line in lines)


def test_without_a_schedule_it_is_a_job() -> None:
    made = one()
    assert set(made) == {"ServiceAccount", "RoleBinding", "NetworkPolicy", "Secret", "Job"}
    assert made["RoleBinding"]["roleRef"]["kind"] == "Role"
    assert made["RoleBinding"]["roleRef"]["name"] == "isthmus-flow-driver"
    assert made["RoleBinding"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "daily-analysis", "namespace": "net"}
    ]
    job = made["Job"]
    assert job["metadata"]["name"].startswith("daily-analysis-")
    assert (job["spec"]["backoffLimit"], job["spec"]["activeDeadlineSeconds"]) == (2, 21_600)
    assert job["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [2]
    pod = job["spec"]["template"]["spec"]
    assert (pod["restartPolicy"], pod["serviceAccountName"]) == ("Never", "daily-analysis")
    assert driver(job)["args"] == [
        "run",
        "--log=/var/isthmus/flows",
        "--output=/var/isthmus/flows/analyses/daily",
        "--bucket=60s",
        "--baseline-days=7",
        "--keep=30",
        "--termination-log=/dev/termination-log",
        "--last=24h",
    ]


def test_a_cluster_role_of_drivers_has_another_role_binding() -> None:
    """Kubernetes refuses changes of `roleRef`. The chart has a Role or a ClusterRole, as `watchNamespaces` states."""
    for kind, name in (("Role", "daily-analysis"), ("ClusterRole", "daily-analysis-cluster-role")):
        settings = replace(SETTINGS, driver_role=f"{kind}/isthmus-flow-driver")
        made = objects(rendered(flow_log("flows"), flow_analysis("daily"), settings=settings))["RoleBinding"]
        assert made["roleRef"]["kind"] == kind
        assert made["metadata"]["name"] == name
        assert len(driver_binding("a" * 200, kind)) <= 63


def test_the_settings_of_spark() -> None:
    made = one(
        executors={"instances": 3, "maxInstances": 8, "cores": 2, "memory": "4Gi", "cpu": "500m"},
        driver={"memory": "2Gi"},
        sparkConf={"spark.task.maxFailures": "9"},
    )
    settings = conf(made)
    assert settings["spark.master"].startswith("k8s://")
    assert settings["spark.kubernetes.namespace"] == "net"
    assert settings["spark.executor.memory"] == "3072m"
    assert settings["spark.executor.memoryOverhead"] == "1024m"
    assert settings["spark.driver.memory"] == "1126m"
    assert settings["spark.kubernetes.executor.request.cores"] == "500m"
    assert settings["spark.dynamicAllocation.maxExecutors"] == "8"
    assert settings["spark.task.maxFailures"] == "9"
    assert settings["spark.eventLog.dir"] == "/var/isthmus/flows/analyses/daily/_events"
    assert "spark.sql.shuffle.partitions" not in settings  # the analysis divides by what there is
    own = {"spark.sql.shuffle.partitions": "7"}
    assert conf(one(sparkConf=own))["spark.sql.shuffle.partitions"] == "7"
    small = conf(one(executors={"memory": "1Gi"}))
    assert (small["spark.executor.memory"], small["spark.executor.memoryOverhead"]) == ("640m", "384m")
    assert "spark.dynamicAllocation.enabled" not in conf(one())
    environment = {item["name"]: item.get("value", "") for item in driver(made["Job"])["env"]}
    assert "spark.app.id=$(POD_UID)" in environment["PYSPARK_SUBMIT_ARGS"]
    resources = driver(made["Job"])["resources"]
    assert resources["limits"] == {"memory": "2Gi"}


def test_what_the_operator_sets_is_not_to_be_set() -> None:
    s3 = {"url": "s3a://bucket/prod", "endpoint": "https://store:9000", "region": "eu", "secretName": "keys"}
    analysis = flow_analysis("daily", executors={"instances": 1, "maxInstances": 2})
    made = conf(objects(rendered(flow_log("flows", s3=s3), analysis, secrets=[STORE])))
    ours = set(made) - {"spark.driver.defaultJavaOptions", "spark.hadoop.fs.s3a.path.style.access"}
    assert {key for key in ours if not key.startswith(RESERVED)} == set()


def test_driver_and_executors_authenticate_and_encrypt() -> None:
    settings = conf(one())
    assert settings["spark.authenticate"] == settings["spark.network.crypto.enabled"] == "true"
    assert settings["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"
    assert settings["spark.network.crypto.authEngineVersion"] == "2"
    assert settings["spark.network.crypto.saslFallback"] == "false"
    assert "spark.authenticate.secret" not in settings


@pytest.mark.parametrize("schedule", [{}, {"schedule": "@hourly"}], ids=["job", "cron-job"])
def test_pods_refer_to_a_copy_of_the_keys_of_an_object_store(schedule: dict[str, str]) -> None:
    """The pods of later runs would get what is put into the Secret of others after it has lost its label."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    s3 = {"url": "s3a://bucket/prod", "secretName": "keys"}
    built = model(
        router("hub"),
        flow_log("flows", s3=s3),
        flow_analysis("daily", **schedule),
        secrets=[opaque_secret("keys", *names)],
    )
    made = render(built, SETTINGS).flow_analyses["daily"].objects
    (copied,) = (item for item in made if item["metadata"]["name"] == "daily-analysis-store-keys")
    assert {key: b64decode(value) for key, value in copied["data"].items()} == {
        key: f"keys {key}".encode() for key in names
    }
    for item in made:
        text = json.dumps(item).replace('\\"', '"')
        assert '"name": "keys"' not in text
        assert text.count("secretKeyRef") == text.count("daily-analysis-store-keys") - (item is copied)
    assert json.dumps(made[-1]).count("secretKeyRef") == 4, "two of the driver, two of executors"


@pytest.mark.parametrize("schedule", [{}, {"schedule": "@hourly"}], ids=["job", "cron-job"])
def test_driver_and_executors_have_the_key_as_a_file_only(schedule: dict[str, str]) -> None:
    made = one(**schedule)
    secret = made["Secret"]
    assert (secret["metadata"]["name"], secret["metadata"]["labels"]["app.kubernetes.io/managed-by"]) == (
        "daily-analysis",
        "isthmus-operator",
    )
    assert "data" not in secret, "what is rendered is the same each time"
    work = made["CronJob"]["spec"]["jobTemplate"] if schedule else made["Job"]
    executor = json.loads(driver_files(made.values())["executor.json"])
    for template in (work["spec"]["template"], executor):
        volumes = {item["name"]: item for item in template["spec"]["volumes"]}
        assert volumes["spark-key"]["secret"] == {"secretName": "daily-analysis", "defaultMode": 0o440}
        assert volumes["spark-secret"]["emptyDir"]["medium"] == "Memory"
        (container,) = template["spec"]["containers"]
        mounts = {item["name"]: item for item in container["volumeMounts"]}
        assert mounts["spark-key"]["readOnly"] is True
        environment = {item["name"]: item.get("value", "") for item in container["env"]}
        assert environment[KEY_FILE] == f"{mounts['spark-key']['mountPath']}/key"
        assert environment[SECRET_FILE] == conf(made)["spark.authenticate.secret.file"]
        assert environment[SECRET_FILE].startswith(f"{mounts['spark-secret']['mountPath']}/")
    kinds = set(made) - {"Secret"}
    assert not [kind for kind in kinds if "secretKeyRef" in json.dumps(made[kind])]


@pytest.mark.parametrize(
    "key",
    [
        "spark.authenticate",
        "spark.authenticate.enableSaslEncryption",
        "spark.authenticate.secret.file",
        "spark.authenticate.secret.driver.file",
        "spark.authenticate.secret.executor.file",
        "spark.network.auth.rpcTimeout",
        "spark.network.crypto.enabled",
        "spark.network.crypto.cipher",
        "spark.network.crypto.saslFallback",
    ],
)
def test_an_author_cannot_change_how_driver_and_executors_authenticate(key: str) -> None:
    with pytest.raises(InvalidResourceError, match="sparkConf must have names"):
        parse(flow_analysis("daily", sparkConf={key: "false"}))


def test_executors_meet_the_restricted_standard_and_have_the_volume() -> None:
    template = json.loads(driver_files(one().values())["executor.json"])
    (container,) = template["spec"]["containers"]
    assert container["name"] == "executor"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert template["spec"]["automountServiceAccountToken"] is False
    assert {"name": "flows", "mountPath": "/var/isthmus/flows"} in container["volumeMounts"]
    assert "affinity" not in template["spec"]


def test_pods_go_where_a_volume_of_one_node_is() -> None:
    made = objects(
        rendered(
            flow_log("flows", volume={"size": "1Gi", "accessMode": "ReadWriteOnce"}), flow_analysis("daily")
        )
    )
    for template in (
        made["Job"]["spec"]["template"],
        json.loads(driver_files(made.values())["executor.json"]),
    ):
        (term,) = template["spec"]["affinity"]["podAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        assert term["labelSelector"]["matchLabels"]["app.kubernetes.io/name"] == "isthmus-flow-collector"


def test_an_object_store() -> None:
    s3 = {"url": "s3a://bucket/prod", "endpoint": "https://store:9000", "secretName": "keys"}
    made = objects(rendered(flow_log("flows", s3=s3), flow_analysis("daily"), secrets=[STORE]))
    assert conf(made)["spark.hadoop.fs.s3a.endpoint"] == "https://store:9000"
    assert "--output=s3a://bucket/prod/analyses/daily" in driver(made["Job"])["args"]
    assert all(
        "persistentVolumeClaim" not in volume for volume in made["Job"]["spec"]["template"]["spec"]["volumes"]
    )


def test_with_a_schedule_it_is_a_cron_job() -> None:
    made = one(
        schedule="0 * * * *",
        timeZone="Europe/Berlin",
        concurrencyPolicy="Replace",
        suspend=True,
        history={"jobs": 5},
        window={"last": "1h"},
    )
    spec = made["CronJob"]["spec"]
    assert "Job" not in made
    assert (spec["schedule"], spec["timeZone"]) == ("0 * * * *", "Europe/Berlin")
    assert (spec["concurrencyPolicy"], spec["suspend"]) == ("Replace", True)
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (5, 5)
    assert spec["jobTemplate"]["metadata"]["labels"]["isthmus.dev/flowanalysis"] == "daily"
    assert "--last=1h" in driver(spec["jobTemplate"])["args"]


def test_an_incremental_one_goes_on_where_it_was() -> None:
    arguments = driver(one(incremental=True)["Job"])["args"]
    assert arguments[:3] == [
        "stream",
        "--available-now",
        "--checkpoint=/var/isthmus/flows/analyses/daily/_checkpoint",
    ]


def test_a_window_with_both_ends() -> None:
    window = {"from": "2026-11-22T00:00:00Z", "to": "2026-11-23T00:00:00Z"}
    assert driver(one(window=window)["Job"])["args"][-2:] == [
        "--from=2026-11-22T00:00:00Z",
        "--to=2026-11-23T00:00:00Z",
    ]


def test_it_runs_again_when_it_is_changed_or_asked_to_and_not_for_another_image() -> None:
    names = {
        "first": one()["Job"],
        "changed": one(bucketSeconds=30)["Job"],
        "suspended": one(suspend=True)["Job"],
        "asked": objects(
            rendered(
                flow_log("flows"), flow_analysis("daily", meta={"annotations": {"isthmus.dev/run": "again"}})
            )
        )["Job"],
        "upgraded": objects(
            rendered(
                flow_log("flows"),
                flow_analysis("daily"),
                settings=RenderSettings("router:2", analysis_image="analysis:2", collector_image="c:2"),
            )
        )["Job"],
    }
    found = {key: job["metadata"]["name"] for key, job in names.items()}
    assert found["first"] == found["suspended"] == found["upgraded"]
    assert len({found["first"], found["changed"], found["asked"]}) == 3
    assert names["suspended"]["spec"]["suspend"] is True


def test_a_template_of_the_users_for_both_pods() -> None:
    template = {
        "spec": {
            "nodeSelector": {"pool": "spark"},
            "containers": [{"name": "executor", "env": [{"name": "A", "value": "1"}]}],
        }
    }
    made = objects(rendered(flow_log("flows"), flow_analysis("daily", podTemplate=template), settings=OPEN))
    executor = json.loads(driver_files(made.values())["executor.json"])["spec"]
    pod = made["Job"]["spec"]["template"]["spec"]
    assert executor["nodeSelector"] == pod["nodeSelector"] == {"pool": "spark"}
    assert [item["name"] for item in pod["containers"]] == ["driver"]
    assert {"name": "A", "value": "1"} in executor["containers"][0]["env"]


@pytest.mark.parametrize(
    ("manifests", "reason", "message"),
    [
        (
            [flow_log("flow")],
            "Pending",
            'FlowLog "flows" (spec.flowLogRef) does not exist (did you mean "flow"?)',
        ),
        ([], "Pending", 'FlowLog "flows" (spec.flowLogRef) does not exist'),
    ],
)
def test_a_flow_log_that_is_missing(manifests: list[dict[str, Any]], reason: str, message: str) -> None:
    found = rendered(*manifests, flow_analysis("daily"))
    (item,) = found.findings_of("FlowAnalysis", "daily")
    assert (item.reason, item.message) == (reason, message)
    assert found.flow_analyses == {}


def test_files_that_are_too_long_for_annotations_are_told_before_anything_runs() -> None:
    conf = {f"spark.sql.x{number}": "v" * 4096 for number in range(64)}
    settings = replace(SETTINGS, restrictions=Restrictions(spark_conf="Any"))
    found = rendered(flow_log("flows"), flow_analysis("daily", sparkConf=conf), settings=settings)
    assert "daily" not in found.flow_analyses
    (finding,) = [item for item in found.findings if item.kind == "FlowAnalysis"]
    assert finding.reason == "TooLarge"
    assert "spec.sparkConf and spec.podTemplate need 26" in finding.message
    assert "Kubernetes allows 262144" in finding.message


def test_too_little_memory_is_told_before_anything_runs() -> None:
    found = rendered(flow_log("flows"), flow_analysis("daily", executors={"memory": "512Mi"}))
    (item,) = found.findings_of("FlowAnalysis", "daily")
    assert item.message == "spec.executors.memory: 512Mi is less than 1Gi, which Spark needs"


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        ("1Gi", 1024),
        ("1.5Gi", 1536),
        ("1G", 953),
        (1073741824, 1024),
        ("512Mi", 512),
        ("1500m", 0),
        ("2E", 0),
    ],
)
def test_quantities_of_memory(quantity: int | str, expected: int) -> None:
    assert mebibytes(quantity) == expected


def test_names_of_a_long_analysis_fit() -> None:
    long = "x" * 80
    found = rendered(flow_log("flows"), flow_analysis(long, schedule="@hourly"), flow_analysis(f"{long}y"))
    for analysis, most in ((long, 52), (f"{long}y", 63)):
        for name in (item["metadata"]["name"] for item in found.flow_analyses[analysis].objects):
            assert len(name) <= most, name


# Status


def job(
    name: str = "daily-analysis-1", started: str = "2026-11-23T09:00:00Z", **status: Any
) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "labels": LABELS, "creationTimestamp": started}
    return {
        "kind": "Job",
        "metadata": {**metadata, "ownerReferences": [{"uid": "uid-daily", "controller": True}]},
        "spec": {},
        "status": {"startTime": started, **status},
    }


def driver_pod(
    of: str = "daily-analysis-1", name: str = "p1", said: object = None, code: int = 0, **status: Any
) -> dict[str, Any]:
    ended = (
        {}
        if said is None
        else {"message": said if isinstance(said, str) else json.dumps(said), "exitCode": code}
    )
    state = (
        {"terminated": {"reason": "Completed" if code == 0 else "Error", **ended}}
        if ended
        else {"running": {}}
    )
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-11-23T09:00:0{name[-1]}Z",
            "labels": {**LABELS, "app.kubernetes.io/component": "flow-driver"},
            "ownerReferences": [{"uid": f"uid-{of}"}],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.7",
            "containerStatuses": [{"name": "driver", "state": state}],
            **status,
        },
    }


def done(kind: str, at: str = "2026-11-23T09:05:00Z", message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "lastTransitionTime": at, "message": message}]}


def status(
    jobs: list[dict[str, Any]],
    pods: list[dict[str, Any]] | None = None,
    previous: dict[str, Any] | None = None,
    observations: dict[str, Observation] | None = None,
    failures: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    resources = model(router("hub"), flow_log("flows"), flow_analysis("daily", **spec))
    live = {(item["kind"], item["metadata"]["name"]): item for item in jobs}
    if "schedule" in spec:
        owners = [{"uid": "uid-daily", "controller": True}]
        metadata = {"name": "daily-analysis", "uid": "uid-cron", "ownerReferences": owners}
        live["CronJob", "daily-analysis"] = {"kind": "CronJob", "metadata": metadata}
    facts = flow_facts(resources, live, pods or [], {}, observations or {}).explained(failures or {})
    told = facts.status_of_analysis(
        resources.flow_analyses["daily"], render(resources, SETTINGS), previous or {}, NOW
    )
    assert told is not None
    return told


@pytest.mark.parametrize("owner", [None, "uid-other"], ids=["no owner", "another owner"])
def test_a_job_that_only_has_the_labels_of_a_run_is_none(owner: str | None) -> None:
    forged = job(name="forged", completionTime="2026-11-23T09:00:04Z", **done("Complete"))
    forged["metadata"]["ownerReferences"] = [{"uid": owner, "controller": True}] if owner else []
    told = status([forged])
    assert condition(told, "Ready")[:2] == ("False", "Pending")
    assert told["runs"] == []
    assert [run["name"] for run in status([forged, job()])["runs"]] == ["daily-analysis-1"]


def test_a_job_of_the_cron_job_is_a_run() -> None:
    made = job(name="daily-analysis-2")
    made["metadata"]["ownerReferences"] = [{"uid": "uid-cron", "controller": True}]
    assert [run["name"] for run in status([made], schedule="@hourly")["runs"]] == ["daily-analysis-2"]


def condition(told: dict[str, Any], kind: str) -> tuple[str, str, str]:
    item = next(item for item in told["conditions"] if item["type"] == kind)
    return item["status"], item["reason"], item["message"]


SAID = {
    "state": "Succeeded",
    "run": "2026-11-23T09-00-00Z",
    "deliveries": 12_000,
    "findings": [
        {"severity": "critical", "kind": "stuck", "text": "7 deliveries wait"},
        {"severity": "strange", "kind": "x" * 100, "text": "y" * 2000},
        {"severity": ["critical"], "kind": {"a": 1}, "text": ["z"]},
        {"severity": "info"},
        "nonsense",
    ],
}
COUNTS = {"numCompletedStages": 2, "numSkippedStages": 1, "numCompletedTasks": 30, "numSkippedTasks": 4}
SPARK_JOB = {**COUNTS, "status": "RUNNING", "stageIds": [1, 2, 3, 4], "numTasks": 50, "description": "links"}


def test_before_and_while_it_runs() -> None:
    told = status([job()])
    assert (told["state"], told["runs"][0]["message"]) == ("Pending", "its pod does not run yet")
    assert condition(told, "Succeeded")[0] == "Unknown"
    assert condition(told, "Ready")[0] == "True"
    seen = {"p1": Observation(parse_progress([SPARK_JOB, {**SPARK_JOB, "status": "SUCCEEDED"}], AT))}
    told = status([job()], [driver_pod()], observations=seen)
    assert told["state"] == "Running"
    assert told["progress"] == {"stagesDone": 6, "stages": 8, "tasksDone": 68, "tasks": 100, "doing": "links"}
    assert told["percent"] == 68
    seen = {"p1": Observation(parse_progress([{**SPARK_JOB, "numTasks": 1}], AT))}
    assert status([job()], [driver_pod()], observations=seen)["percent"] == 100
    assert told["lastRunAt"] == "2026-11-23T09:00:00Z"


def test_drivers_are_asked_for_their_jobs() -> None:
    resources = model(router("hub"), flow_log("flows"), flow_analysis("daily"))
    asked = targets(resources, [driver_pod(), driver_pod(name="p2", phase="Succeeded")])
    path = "/api/v1/applications/uid-p1/jobs"
    found = {name: (item.ip, item.port, item.path) for name, item in asked.items()}
    assert found == {"p1": ("10.0.0.7", 4040, path)}
    with pytest.raises(ValueError, match="not the jobs of a Spark application"):
        parse_progress([{"status": "RUNNING"}], AT)


def test_a_run_that_succeeded_tells_what_it_found() -> None:
    told = status([job(**done("Complete"))], [driver_pod(said=SAID, phase="Succeeded")])
    (run,) = told["runs"]
    assert (run["state"], run["durationSeconds"], run["deliveries"]) == ("Succeeded", 300, 12_000)
    assert told["report"] == "pvc:flows-flowlog/analyses/daily/2026-11-23T09-00-00Z/report.html"
    assert [(item["severity"], len(item["kind"]), len(item["text"])) for item in told["findings"]] == [
        ("critical", 5, 17),
        ("info", 64, 1024),
        ("info", 8, 5),
    ]
    assert told["headline"] == "7 deliveries wait"
    assert condition(told, "Succeeded") == ("True", "RunSucceeded", "daily-analysis-1 took 300 s")
    assert "progress" not in told


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (driver_pod(said={"state": "Failed", "reason": "/x does not exist"}, code=1), "/x does not exist"),
        (driver_pod(said="Traceback ...", code=137), "p1: Error (exit code 137)"),
        (driver_pod(said={"state": "Failed"}, code=1), "p1: Error (exit code 1)"),
        (driver_pod(containerStatuses=[], phase="Failed", reason="Evicted"), "p1: Evicted"),
        (None, "deadline exceeded"),
    ],
)
def test_a_run_that_failed_says_why(pod: dict[str, Any] | None, message: str) -> None:
    failed = job(failed=3, **done("Failed", message="deadline exceeded"))
    told = status([failed], [pod] if pod else [])
    assert condition(told, "Ready") == ("False", "RunFailed", f"daily-analysis-1: {message}")
    assert told["headline"] == f"failed: {message}"
    assert told["runs"][0]["attempts"] == 3
    assert told["state"] == "Failed"


def test_what_was_found_stays_when_pods_and_jobs_are_gone() -> None:
    before = status([job(**done("Complete"))], [driver_pod(said=SAID)])
    told = status([], previous=before, schedule="@hourly")
    for key in ("runs", "findings", "report", "headline"):
        assert told[key] == before[key]
    assert told["state"] == "Scheduled"
    assert status([], previous=before, schedule="@hourly", suspend=True)["state"] == "Suspended"


def test_a_failure_does_not_hide_what_the_run_before_found() -> None:
    good = job(**done("Complete"))
    bad = job("daily-analysis-2", "2026-11-23T09:30:00Z", **done("Failed", message="no"))
    told = status([good, bad], [driver_pod(said=SAID)], schedule="@hourly")
    assert [run["name"] for run in told["runs"]] == ["daily-analysis-2", "daily-analysis-1"]
    assert told["findings"][0]["text"] == "7 deliveries wait"
    assert told["headline"] == "failed: no"
    better = job("daily-analysis-3", "2026-11-23T09:40:00Z", **done("Complete"))
    again = status([good, bad, better], [driver_pod("daily-analysis-3", said={**SAID, "findings": []})])
    assert condition(again, "Ready")[0] == "True"
    assert (again["findings"], "headline" in again) == ([], False)


def test_a_job_that_was_deleted_while_it_ran_has_failed() -> None:
    before = status([job()], [driver_pod()])
    told = status([], previous=before)
    assert told["runs"][0]["state"] == "Failed"
    assert told["runs"][0]["message"] == "its Job was deleted"


def test_a_later_job_of_the_same_name_is_another_run() -> None:
    """Such as that of a FlowAnalysis which was deleted and made again, after the Job of the earlier one is gone."""
    deleted = status([], previous=status([job()], [driver_pod()]))
    assert deleted["runs"][0]["state"] == "Failed"
    again = status([job(started="2026-11-23T09:45:00Z", **done("Complete"))], [], previous=deleted)
    assert [(run["name"], run["state"]) for run in again["runs"]] == [
        (deleted["runs"][0]["name"], "Succeeded")
    ]
    assert condition(again, "Ready")[0] == "True"


def test_runs_are_bounded() -> None:
    jobs = [job(f"daily-analysis-{n:02}", f"2026-11-23T09:{n:02}:00Z", **done("Complete")) for n in range(15)]
    told = status(jobs, schedule="@hourly")
    assert [run["name"][-2:] for run in told["runs"]] == [f"{n:02}" for n in range(14, 4, -1)]


@pytest.mark.parametrize(
    ("pod_status", "message"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no node fits"}]},
            "p1: no node fits",
        ),
        (
            {"containerStatuses": [{"name": "driver", "state": {"waiting": {"reason": "ErrImagePull"}}}]},
            "p1: ErrImagePull: ",
        ),
    ],
)
def test_what_a_run_waits_for(pod_status: dict[str, Any], message: str) -> None:
    told = status([job()], [driver_pod(phase="Pending", **pod_status)])
    assert (told["runs"][0]["state"], told["runs"][0]["message"]) == ("Pending", message)
    conditions = {
        item["type"]: (item["status"], item["reason"], item["message"]) for item in told["conditions"]
    }
    assert conditions["Submitted"] == conditions["Ready"] == ("False", "DriverWaits", message)


def test_a_run_whose_pod_cannot_be_created_waits() -> None:
    message = "its pod cannot be created: exceeded quota: pods"
    told = status([job()], [], failures={"uid-daily-analysis-1": "exceeded quota: pods"})
    assert (told["runs"][0]["state"], told["runs"][0]["message"]) == ("Pending", message)
    conditions = {item["type"]: (item["status"], item["reason"]) for item in told["conditions"]}
    assert conditions["Submitted"] == conditions["Ready"] == ("False", "DriverWaits")
    told = status([job()], [driver_pod(phase="Running")], failures={"uid-daily-analysis-1": "exceeded quota"})
    assert told["runs"][0]["state"] == "Running"


@pytest.mark.parametrize(
    ("live", "pods", "lacks"),
    [
        ({}, [], True),
        ({}, ["pod"], False),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, [], False),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, [], False),
        ({"conditions": [{"type": "FailureTarget", "status": "True"}]}, [], True),
    ],
)
def test_jobs_that_lack_a_pod(live: dict[str, Any], pods: list[str], *, lacks: bool) -> None:
    found = AnalysisFacts([job(**live)], pods=[driver_pod(name=name) for name in pods])
    assert found.without_pods == ({"uid-daily-analysis-1"} if lacks else set())
    suspended = {**job(**live), "spec": {"suspend": True}}
    assert not AnalysisFacts([suspended]).without_pods


def test_its_objects_belong_to_it() -> None:
    found = rendered(flow_log("flows"), flow_analysis("daily"))
    owner = found.flow_analyses["daily"].analysis
    for item in found.flow_analyses["daily"].objects:
        assert owned(item, owner)["metadata"]["ownerReferences"][0]["kind"] == "FlowAnalysis"
