"""An executor of Spark on Kubernetes: what its pod's image runs for the argument `executor`.

The driver's Kubernetes scheduler tells the rest in the environment. Source: Spark's `KubernetesExecutorBackend` and
what `BasicExecutorFeatureStep` sets for it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from isthmus_flows.authentication import write_secret

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_OPTION = "SPARK_JAVA_OPT_"
_MASTER = "-Dspark.master=k8s://https://kubernetes.default.svc:443"
"""Spark reads a secret from a file only if it has a master of Kubernetes. An executor gets the driver's settings, and
its master, over a connection for which it needs the secret already."""


def command(environment: Mapping[str, str], java: str, jars: Path) -> list[str]:
    """The command line of the JVM. Raises ValueError if the environment is not that of an executor."""
    missing = [name for name in (*_ARGUMENTS.values(), "SPARK_EXECUTOR_MEMORY") if not environment.get(name)]
    if missing:
        raise ValueError(
            f"{missing[0]} is not set: `executor` is what Spark runs in its pods, not a command for people"
        )
    numbered = {
        int(name.removeprefix(_OPTION)): value
        for name, value in environment.items()
        if name.startswith(_OPTION) and name.removeprefix(_OPTION).isdigit()
    }
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    arguments = [word for option, name in _ARGUMENTS.items() for word in (option, environment[name])]
    options = [value for _, value in sorted(numbered.items())]
    return [
        java,
        *options,
        _MASTER,
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        f"{jars}/*",
        BACKEND,
        *arguments,
    ]


def run() -> None:
    """Become the executor. Raises ValueError."""
    import pyspark  # noqa: PLC0415  # only for where its jars are

    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin{os.pathsep}{os.environ['PATH']}")
    if java is None:
        raise ValueError("there is no java in PATH and JAVA_HOME")
    words = command(os.environ, java, Path(pyspark.__file__).parent / "jars")
    write_secret(os.environ, os.environ["SPARK_APPLICATION_ID"])
    os.execv(java, words)
