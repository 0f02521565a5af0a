"""A driver and two executors of Spark's Kubernetes scheduler, as processes: pods with the templates, settings and
variables that the operator renders, and an API that is enough for Spark."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.support.kubernetes_for_spark import Kubernetes, kubernetes
from tests.integration.support.spark_rpc import ANSWERED, ask, with_secret
from tests.unit.operator.support import driver_files, flow_analysis, flow_log, model, router

from isthmus_flows.authentication import secret_of
from isthmus_operator.render import RenderSettings, render
from isthmus_operator.render.flows.analysis import AUTHENTICATION

pytestmark = pytest.mark.timeout(2400)

KEY = bytes(range(100, 132))
SETTINGS = RenderSettings("router:1", analysis_image="analysis:1", collector_image="collector:1")
CRYPTO = {key: value for key, value in AUTHENTICATION.items() if "crypto" in key}
HERE = {
    "spark.kubernetes.executor.enableApiWatcher": "false",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}
"""What the API lacks, and event logs that can be read."""
TIMEOUT_S = 900
# A shuffle between the executors in place of the whole analysis.
_DRIVER = """
import sys
from isthmus_flows import batch, entry
def run(spark, *_):
    rows = spark.range(0, 200_000, 1, 8).selectExpr("id % 1000 AS k", "id").repartition(8, "k")
    assert rows.groupBy("k").count().where("count = 200").count() == 1000
    return {"run": "r", "totals": {"in": {"deliveries": 1}}, "findings": []}
batch.run = run
sys.exit(entry.main())
"""


@dataclass
class Run:
    """A driver whose executors have been made and not been started."""

    api: Kubernetes
    folder: Path
    driver: subprocess.Popen[bytes]
    secret: bytes
    executors: list[dict[str, Any]]

    @property
    def address(self) -> str:
        """The address of the driver that Spark gives to executors."""
        (container,) = self.executors[0]["spec"]["containers"]
        variables = {item["name"]: item.get("value", "") for item in container["env"]}
        return str(variables["SPARK_DRIVER_URL"].rpartition("@")[2])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("run")
    analysis = flow_analysis("daily", executors={"memory": "1Gi"}, driver={"memory": "1Gi"})
    found = render(model(router("hub"), flow_log("flows"), analysis), SETTINGS).flow_analyses["daily"]
    made = {item["kind"]: item for item in found.objects}
    for name in ("conf", "flows/analyses/daily/_events", "scratch", "spark-key", "spark-secret", "other-key"):
        (folder / name).mkdir(parents=True)
    (folder / "spark-key" / "key").write_bytes(KEY)
    (folder / "other-key" / "key").write_bytes(KEY[::-1])
    with kubernetes(folder) as (api, url):
        for name, text in driver_files(found.objects).items():
            text = _here(text, folder)
            if name == "spark-defaults.conf":
                text = text.replace("https://kubernetes.default.svc:443", url)
                text += "".join(f"{key} {value}\n" for key, value in HERE.items())
            (folder / "conf" / name).write_text(text)
        pod = json.loads(_here(json.dumps(made["Job"]["spec"]["template"]), folder))
        pod["metadata"] |= {"name": "driver-1"}
        pod["command"] = [sys.executable, "-c", _DRIVER]
        (container,) = pod["spec"]["containers"]
        container["args"] = [word for word in container["args"] if "termination-log" not in word]
        driver = api.run(api.add("pods", pod), "driver.log")
        try:
            secret = secret_of(KEY, pod["metadata"]["uid"])
            yield Run(api, folder, driver, secret, api.pods(2, TIMEOUT_S))
        finally:
            driver.kill()
            driver.wait()


def _here(text: str, folder: Path) -> str:
    """With the paths of this machine instead of those in pods."""
    return text.replace("/etc/isthmus", f"{folder}/conf").replace("/var/isthmus", str(folder))


def forms(secret: bytes) -> set[bytes]:
    """How a secret may be written."""
    return {secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"=")}


def test_the_secret_is_in_no_object(run: Run) -> None:
    text = json.dumps(run.api.seen).encode()
    assert b"spark-secret/secret" in text
    assert not [form for form in forms(KEY) | forms(run.secret) if form in text]
    assert b"_SPARK_AUTH_SECRET" not in text


def test_the_driver_answers_only_clients_with_the_secret(run: Run) -> None:
    right = base64.b64encode(run.secret).decode()
    clients = {
        "right": with_secret(right, **CRYPTO),
        "none": {},
        "wrong": with_secret(base64.b64encode(secret_of(KEY, "uid-0")).decode(), **CRYPTO),
        "the key": with_secret(base64.b64encode(KEY).decode(), **CRYPTO),
        "without encryption": {"spark.authenticate": "true", "spark.authenticate.secret": right},
    }
    found = ask(run.address, "CoarseGrainedScheduler", clients)
    assert {name for name, outcome in found.items() if outcome == ANSWERED} == {"right"}, found


def test_an_executor_with_another_key_is_refused(run: Run) -> None:
    (run.folder / "other-secret").mkdir()
    changes = {"spark-key": "other-key", "spark-secret": "other-secret"}
    executor = run.api.run(run.executors[0], "other.log", changes)
    assert executor.wait(TIMEOUT_S) != 0
    assert run.driver.poll() is None


def seen(folder: Path) -> dict[str, bytes]:
    """Arguments and variables of the processes of the run."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables, arguments = (process / "environ").read_bytes(), (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in variables:
            found[f"variables of {process.name}"], found[f"arguments of {process.name}"] = (
                variables,
                arguments,
            )
    return found


def test_executors_with_the_key_do_the_work(run: Run) -> None:
    run.api.start()
    texts: dict[str, bytes] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while run.driver.poll() is None and time.monotonic() < deadline:
        texts |= seen(run.folder)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.driver.wait(0.5)
    assert run.driver.poll() == 0, (run.folder / "driver.log").read_text()
    assert len(run.api.processes) >= 2
    for process in run.api.processes.values():
        process.wait(TIMEOUT_S)
    files = [item for item in run.folder.rglob("*") if item.is_file()]
    texts |= {str(item.relative_to(run.folder)): item.read_bytes() for item in files}
    for what, word in (
        ("arguments", b"SparkSubmit"),
        ("arguments", b"KubernetesExecutorBackend"),
        ("_events/", b"spark.authenticate.secret.file"),
        ("driver.log", b"deliveries"),
        ("exec-1.log", b"KubernetesExecutorBackend"),
    ):
        assert [name for name, text in texts.items() if what in name and word in text], (what, list(texts))
    holders = [
        name for name, text in texts.items() if any(form in text for form in forms(KEY) | forms(run.secret))
    ]
    assert sorted(holders) == ["spark-key/key", "spark-secret/secret"]
