"""Definitions that kubectl has applied before, of an earlier version: the way out that docs/install.md names."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
import yaml

from . import installation
from .harness.cluster import Cluster
from .harness.host import CommandError

CHART = str(installation.ROOT / "charts" / "isthmus")
REMEDY = "kubectl apply --server-side --force-conflicts -f crds/"


@pytest.fixture
def older(cluster: Cluster) -> Iterator[None]:
    """Definitions that lack a field of today's."""
    with installation.schemas(cluster):
        for path in sorted((installation.ROOT / "crds").iterdir()):
            definition = yaml.safe_load(path.read_text())
            (version,) = definition["spec"]["versions"]
            version["schema"]["openAPIV3Schema"]["properties"]["spec"]["description"] = (
                "of an earlier version"
            )
            text = yaml.safe_dump(definition)
            cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", input=text)
        yield
        installation.apply_schemas(cluster)


def test_helm_refuses_them_until_they_are_up_to_date(cluster: Cluster, namespace: str, older: None) -> None:
    page = (installation.ROOT / "docs" / "install.md").read_text()
    assert REMEDY in page.splitlines()
    install = (
        "install",
        "again",
        CHART,
        f"--namespace={namespace}",
        "--set=podDisruptionBudget.enabled=false",
    )
    with pytest.raises(CommandError) as refused:
        cluster.helm(*install)
    conflict = 'Apply failed with 1 conflict: conflict with "kubectl": .spec.versions'
    assert conflict in refused.value.output
    assert conflict in page
    words = shlex.split(REMEDY)[1:]
    words[-1] = str(installation.ROOT / words[-1])
    cluster.kubectl(*words)
    cluster.helm(*install)
    cluster.helm("uninstall", "again", f"--namespace={namespace}", "--wait", "--timeout=60s")
