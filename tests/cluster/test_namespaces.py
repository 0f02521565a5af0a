"""An administrator of one namespace takes the operator's rights there away; others are served all the same."""

from __future__ import annotations

import json

import pytest
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.support.network import OPERATOR, Network
from tests.unit.operator.support import router

BINDING = "rolebinding/isthmus-operator"


def is_served(cluster: Cluster, namespace: str, name: str) -> None:
    """Wait until the operator has written the status of a new Router. Its Secrets do not wait for pods."""
    Network(cluster, namespace).apply(router(name, replicas=0))
    cluster.wait("condition=Configured", f"router/{name}", namespace=namespace, timeout=90)


def test_an_operator_without_rights_in_one_namespace_serves_the_others(cluster: Cluster) -> None:
    with (
        installation.schemas(cluster),
        cluster.namespace("home") as home,
        cluster.namespace("left") as left,
        installation.operator(cluster, left, home),
    ):
        is_served(cluster, home, "before")
        is_served(cluster, left, "before")
        binding = cluster.get(BINDING, namespace=home)
        cluster.kubectl("delete", BINDING, f"--namespace={home}")
        cluster.kubectl("delete", "pods", f"--selector={OPERATOR}", f"--namespace={left}")
        is_served(cluster, left, "meanwhile")
        log = cluster.kubectl("logs", "deployment/isthmus-operator", f"--namespace={left}")
        assert f"the operator does nothing in namespace {home}" in log, log
        for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            binding["metadata"].pop(field, None)
        cluster.kubectl("create", f"--namespace={home}", "--filename=-", input=json.dumps(binding))
        is_served(cluster, home, "afterwards")


def test_an_operator_that_ends_fails_its_test(cluster: Cluster) -> None:
    """Kubernetes starts it again, and everything else goes on."""
    with pytest.raises(AssertionError, match="has ended"):
        end_operator(cluster)


def end_operator(cluster: Cluster) -> None:
    with (
        installation.schemas(cluster),
        cluster.namespace("home") as home,
        installation.operator(cluster, home),
    ):
        pod = cluster.get("pods", f"--selector={OPERATOR}", namespace=home)["items"][0]["metadata"]["name"]
        cluster.exec(pod, "python3", "-c", "import os, signal; os.kill(1, signal.SIGTERM)", namespace=home)
        restarted = "jsonpath={.status.containerStatuses[0].restartCount}=1"
        cluster.wait(restarted, f"pod/{pod}", namespace=home)
        is_served(cluster, home, "afterwards")
