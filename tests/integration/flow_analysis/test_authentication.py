"""Whom a driver and an executor of an analysis answer, with the settings that the operator makes for them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from tests.integration.support.spark_rpc import ANSWERED, ask_own, with_secret
from tests.unit.operator.support import driver_files, flow_analysis, flow_log, model, router

from isthmus_flows.authentication import KEY_FILE, SECRET_FILE, secret_of, write_secret
from isthmus_flows.executor import command
from isthmus_operator.render import RenderSettings, render

KEY, RUN = bytes(range(32)), "run-1"
POD = {
    **{f"SPARK_{name}": "1" for name in ("DRIVER_URL", "EXECUTOR_ID", "EXECUTOR_CORES", "APPLICATION_ID")},
    **{f"SPARK_EXECUTOR_{name}": "1" for name in ("POD_IP", "POD_NAME", "MEMORY")},
    "SPARK_RESOURCE_PROFILE_ID": "0",
}
SETTINGS = RenderSettings("router:1", analysis_image="analysis:1", collector_image="collector:1")


@pytest.fixture
def server(tmp_path: Path) -> dict[str, str]:
    """Settings of a driver, and the file with the secret of its run."""
    found = render(model(router("hub"), flow_log("flows"), flow_analysis("daily")), SETTINGS)
    lines = driver_files(found.flow_analyses["daily"].objects)["spark-defaults.conf"].splitlines()
    settings = dict(line.split(" ", 1) for line in lines)
    (tmp_path / "key").write_bytes(KEY)
    write_secret({KEY_FILE: str(tmp_path / "key"), SECRET_FILE: str(tmp_path / "secret")}, RUN)
    file = {"spark.authenticate.secret.file": str(tmp_path / "secret")}
    return {key: file.get(key, value) for key, value in settings.items()}


def text(secret: bytes) -> str:
    """A secret as Spark has it that it reads from a file."""
    return base64.b64encode(secret).decode()


def executor_at_its_start(driver: dict[str, str]) -> dict[str, str]:
    """Settings of Spark on the command line of an executor. Spark passes those that are needed to ask for the rest."""
    passed = {
        f"SPARK_JAVA_OPT_{number}": f"-D{key}={value}"
        for number, (key, value) in enumerate(driver.items())
        if key.startswith(("spark.authenticate", "spark.network"))
    }
    words = command({**POD, **passed}, "java", Path("jars"))
    found = [word.removeprefix("-D").partition("=") for word in words if word.startswith("-Dspark.")]
    return {key: value for key, _, value in found}


def test_only_clients_with_the_secret_of_the_run_are_answered(server: dict[str, str]) -> None:
    right = text(secret_of(KEY, RUN))
    clients = {
        "right": with_secret(right, **{key: value for key, value in server.items() if "crypto" in key}),
        "executor": executor_at_its_start(server),
        "none": {},
        "wrong": with_secret(text(secret_of(KEY, "another run"))),
        "the key": with_secret(text(KEY)),
        "right, but without encryption": {
            "spark.authenticate": "true",
            "spark.authenticate.secret": right,
        },
    }
    found = ask_own(server, clients)
    answered = {name for name, outcome in found.items() if outcome == ANSWERED}
    assert answered == {"right", "executor"}, found
