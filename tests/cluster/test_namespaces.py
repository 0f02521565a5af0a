"""An administrator of one namespace takes the operator's rights there away; others are served all the same."""

from __future__ import annotations

import json

from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.support.network import Network
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
        selector = "--selector=app.kubernetes.io/name=isthmus-operator"
        cluster.kubectl("delete", "pods", selector, f"--namespace={left}")
        is_served(cluster, left, "meanwhile")
        log = cluster.kubectl("logs", "deployment/isthmus-operator", f"--namespace={left}")
        assert f"the operator does nothing in namespace {home}" in log, log
        for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            binding["metadata"].pop(field, None)
        cluster.kubectl("create", f"--namespace={home}", "--filename=-", input=json.dumps(binding))
        is_served(cluster, home, "afterwards")
