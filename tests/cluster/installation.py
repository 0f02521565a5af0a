"""Installing Isthmus into a test cluster, as a user would: images and the Helm chart."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from pathlib import Path

from .harness import images
from .harness.cluster import Cluster
from .support.network import OPERATOR as OPERATOR_PODS

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "crds"
RELEASE = "isthmus"
ROUTER, OPERATOR = "isthmus-router:test", "isthmus-operator:test"
COLLECTOR, ANALYSIS = "isthmus-flow-collector:test", "isthmus-flow-analysis:test"
# The folder of each one's Containerfile; the whole tree is their context.
IMAGES = {ROUTER: "router-image", OPERATOR: "operator", COLLECTOR: "flow-log", ANALYSIS: "flow-analysis"}
JAVA = "openjdk-17-jre-headless"


def build(name: str) -> Path:
    """Builds one of IMAGES from this tree and returns its archive; quick if nothing has changed."""
    arguments = {}
    if name == ANALYSIS:
        arguments = {
            "BASE": images.base_image((*images.BASE_PACKAGES, JAVA)),
            "BUILD_BASE": images.base_image((*images.BASE_PACKAGES, JAVA, "maven")),
        }
    return images.build(name, ROOT / IMAGES[name] / "Containerfile", ROOT, arguments)


@functools.cache
def image(cluster: Cluster, name: str) -> str:
    """One of IMAGES, built and known to all nodes: its full name."""
    archive = build(name)
    cluster.load(archive)
    return images.name_in(archive)


def router_image(cluster: Cluster) -> str:
    return image(cluster, ROUTER)


def operator_image(cluster: Cluster) -> str:
    return image(cluster, OPERATOR)


def flow_images(cluster: Cluster) -> tuple[str, ...]:
    """What `helm install` needs for FlowLogs and FlowAnalyses."""
    built = {"flowCollector": image(cluster, COLLECTOR), "flowAnalysis": image(cluster, ANALYSIS)}
    return tuple(word for part, name in built.items() for word in _image_values(f"{part}.image", name))


def _image_values(prefix: str, image: str) -> list[str]:
    name, _, tag = image.rpartition(":")
    registry, _, repository = name.partition("/")
    values = {"registry": registry, "repository": repository, "tag": tag}
    return [word for key, value in values.items() for word in ("--set", f"{prefix}.{key}={value}")]


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
    end unless the test has done it. Raises AssertionError if the operator has ended meanwhile, other than by the loss
    of its lease."""
    settings = []
    for prefix, image in (("image", operator_image(cluster)), ("router.image", router_image(cluster))):
        settings += [*_image_values(prefix, image), "--set", f"{prefix}.pullPolicy=Never"]
    registry = operator_image(cluster).partition("/")[0]
    settings += ["--set", f"restrictions.allowedImages={{{registry}/}}"]
    for what, names in (
        ("PriorityClasses", "no-such-class"),
        ("Claims", "flows"),
        ("Exposures", "NodePort"),
        ("PullSecrets", "default-dockercfg-"),
    ):
        settings += ["--set", f"restrictions.allowed{what}={{{names}}}"]
    place = (f"--namespace={namespace}", "--wait")
    cluster.helm(
        "install", RELEASE, str(ROOT / "charts" / "isthmus"), *place, "--timeout=120s", *settings, *arguments
    )
    try:
        yield
        assert_operator_ran_on(cluster, namespace)
    finally:
        cluster.helm("uninstall", RELEASE, *place, "--timeout=60s", "--ignore-not-found")


def assert_operator_ran_on(cluster: Cluster, namespace: str) -> None:
    """Kubernetes starts an operator again that has ended, so that nothing else may fail."""
    for pod in cluster.get("pods", f"--selector={OPERATOR_PODS}", namespace=namespace)["items"]:
        for container in pod["status"].get("containerStatuses", ()):
            end = container["lastState"].get("terminated")
            if end is None:
                continue
            name = pod["metadata"]["name"]
            log = cluster.kubectl("logs", "--previous", f"--namespace={namespace}", name)
            is_lease = end["exitCode"] == 1 and _has_lost_its_lease(log)
            assert is_lease, f"{name} has ended: {end}\n{log[-8000:]}"


def _has_lost_its_lease(log: str) -> bool:
    records = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return any(
        (record["module"], record["level"]) == ("isthmus_operator.leader", "error") for record in records
    ) and not any("exception" in record for record in records if record["module"] == "isthmus_operator")


@contextlib.contextmanager
def operator(
    cluster: Cluster, namespace: str, *others: str, node: str | None = None, flows: bool = False
) -> Iterator[None]:
    """An operator in `namespace`, with rights there and in `others` only. The schemas must be there. `node`
    is where it shall run, if that matters; `flows`: it can run FlowLogs and FlowAnalyses."""
    values = f"watchNamespaces={{{','.join((namespace, *others))}}},rbac.aggregate=false,replicas=1"
    if node:
        values += f",nodeSelector.kubernetes\\.io/hostname={node}"
    more = flow_images(cluster) if flows else ()
    with release(cluster, namespace, "--skip-crds", "--set", values, *more):
        yield
