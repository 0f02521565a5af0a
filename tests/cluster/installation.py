"""Installing Isthmus into a test cluster, as a user would: images and the Helm chart."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

from .harness import images
from .harness.cluster import Cluster

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
    end unless the test has done it."""
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
    finally:
        cluster.helm("uninstall", RELEASE, *place, "--timeout=60s", "--ignore-not-found")


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
