"""Installing Isthmus into a test cluster, as a user would: images and the Helm chart."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

from .harness.cluster import Cluster

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "crds"
RELEASE = "isthmus"


@functools.cache
def router_image(cluster: Cluster) -> str:
    """The router image, built from this tree and known to all nodes; one for all tests of a session."""
    return cluster.image("isthmus-router:test", ROOT / "router-image" / "Containerfile", ROOT)


@functools.cache
def operator_image(cluster: Cluster) -> str:
    """The operator image, built from this tree and known to all nodes."""
    return cluster.image("isthmus-operator:test", ROOT / "operator" / "Containerfile", ROOT)


@contextlib.contextmanager
def schemas(cluster: Cluster) -> Iterator[None]:
    """The schemas as `kubectl apply -f crds/` makes them; removed at the end unless they were there."""
    before = cluster.kubectl("get", "crd", "--output=name")
    apply_schemas(cluster)
    yield
    if "routers.isthmus.dev" not in before:
        cluster.kubectl("delete", f"--filename={CRDS}")


def apply_schemas(cluster: Cluster) -> None:
    """The schemas of this tree, whatever was there."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={CRDS}")
    cluster.kubectl("wait", "--for=condition=Established", f"--filename={CRDS}", "--timeout=30s")


@contextlib.contextmanager
def release(cluster: Cluster, namespace: str, *arguments: str) -> Iterator[None]:
    """The chart installed in `namespace` with further `arguments` of `helm install`; uninstalled at the
    end unless the test has done it."""
    values = []
    for prefix, image in (("image", operator_image(cluster)), ("router.image", router_image(cluster))):
        name, _, tag = image.rpartition(":")
        registry, _, repository = name.partition("/")
        values += [
            f"{prefix}.registry={registry}",
            f"{prefix}.repository={repository}",
            f"{prefix}.tag={tag}",
            f"{prefix}.pullPolicy=Never",
        ]
    settings = [word for value in values for word in ("--set", value)]
    place = (f"--namespace={namespace}", "--wait")
    cluster.helm(
        "install", RELEASE, str(ROOT / "charts" / "isthmus"), *place, "--timeout=120s", *settings, *arguments
    )
    try:
        yield
    finally:
        cluster.helm("uninstall", RELEASE, *place, "--timeout=60s", "--ignore-not-found")


@contextlib.contextmanager
def operator(cluster: Cluster, namespace: str, *others: str, node: str | None = None) -> Iterator[None]:
    """An operator in `namespace`, with rights there and in `others` only. The schemas must be there. `node`
    is where it shall run, if that matters."""
    values = f"watchNamespaces={{{','.join((namespace, *others))}}},rbac.aggregate=false,replicas=1"
    if node:
        values += f",nodeSelector.kubernetes\\.io/hostname={node}"
    with release(cluster, namespace, "--skip-crds", "--set", values):
        yield
