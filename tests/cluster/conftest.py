"""Fixtures of the tests on a real Kubernetes; see docs/test-cluster.md."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.provider import Faults
from tests.cluster.harness.selection import select
from tests.cluster.support.web import PROBE

NODES = 3
TEST_TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The time to build Kubernetes and images, which is bounded elsewhere, is not the test's."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S, func_only=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what went on in its namespace, which is about to be deleted."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    if report.when == "call" and report.failed and "namespace" in arguments:
        name = arguments["namespace"]
        report.sections.append((f"namespace {name}", arguments["cluster"].describe(name)))
    return report


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of three nodes. One that was up before is left up, and so is one of ours
    if ISTHMUS_TEST_KEEP_CLUSTER is set."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    provider, reason = select(os.environ.get("ISTHMUS_TEST_CLUSTER", "default"))
    with capture.global_and_fixture_disabled():
        print(f"\ncluster tests use {provider.what}: {reason}", flush=True)
        ours = provider.up(NODES)
    cluster = Cluster(provider)
    try:
        yield cluster
        cluster.await_end_of_namespaces()
    finally:
        if ours and not os.environ.get("ISTHMUS_TEST_KEEP_CLUSTER"):
            provider.down()


@pytest.fixture(scope="session")
def probe_image(cluster: Cluster) -> str:
    """Image of the web server of `support/web.py`."""
    return cluster.image("isthmus-test-probe:1", PROBE / "Containerfile", PROBE)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own, with Pod Security `restricted`."""
    with cluster.namespace() as name:
        yield name


@pytest.fixture
def faults(cluster: Cluster) -> Iterator[Faults]:
    """Ways to break the cluster; everything is healed after the test."""
    if cluster.provider.faults is None:
        pytest.skip(f"faults cannot be made in {cluster.provider.what}")
    yield cluster.faults
    cluster.faults.heal()
    cluster.eventually("all nodes Ready again", lambda: all(cluster.nodes().values()), timeout=90)
