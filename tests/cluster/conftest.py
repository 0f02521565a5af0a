"""Fixtures of the tests on a real Kubernetes; see docs/test-cluster.md."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cluster import rights
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.host import HarnessError
from tests.cluster.harness.local.provider import LocalProvider
from tests.cluster.harness.provider import Faults, Provider
from tests.cluster.harness.selection import select
from tests.cluster.support.web import PROBE

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

NODES = 3
WORKERS = 2
PROCESSORS_PER_CLUSTER = 2
TEST_TIMEOUT_S = 600
# With several workers, a file that takes long must not begin last. The rest follow in the usual order.
LONGEST_FIRST = (
    "flows",
    "relay",
    "network",
    "operator",
    "edges",
    "link_routes",
    "sites",
    "rotation",
    "harness_cleanup",
)
SPARK = "test_flows"
FILES = frozenset(Path(__file__).parent.glob("test_*.py"))
DESELECTED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that take long come first. A process alone begins with those that mostly wait, as `make test` runs other
    tests beside it, and ends with Spark. The time to build Kubernetes and images, which is bounded elsewhere, is not
    the test's."""
    items.sort(key=_begins)
    if not (hasattr(config, "workerinput") or config.getoption("numprocesses", None)):
        items.sort(key=lambda item: item.path.stem == SPARK)
    for item in items:
        if _is_ours(item) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S, func_only=True))


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        item.config.stash[DESELECTED] = True


def _begins(item: pytest.Item) -> int:
    """Place among the files; where other folders' tests run too, those come first."""
    topic = item.path.stem.removeprefix("test_")
    if not _is_ours(item):
        return -1
    return LONGEST_FIRST.index(topic) if topic in LONGEST_FIRST else len(LONGEST_FIRST)


def _is_ours(item: pytest.Item) -> bool:
    return item.path.is_relative_to(Path(__file__).parent)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: two workers if there can be a cluster for each and processors for it; else this process alone."""
    try:
        provider, _ = select(_name())
    except HarnessError:
        return 0  # the tests say so
    enough = len(os.sched_getaffinity(0)) >= WORKERS * PROCESSORS_PER_CLUSTER
    return WORKERS if enough and isinstance(provider, LocalProvider) else 0


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Names the cluster of a worker of pytest-xdist. It is taken down from here, once the workers have ended:
    after an interrupt they get no time for it."""
    provider = LocalProvider(f"{_name()}-{node.gateway.id}")
    node.workerinput["cluster"] = provider.name
    if not os.environ.get("ISTHMUS_TEST_KEEP_CLUSTER"):
        node.config.add_cleanup(provider.down)


def _name() -> str:
    return os.environ.get("ISTHMUS_TEST_CLUSTER", "default")


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
    """A cluster of three nodes, for each worker its own. One that was up before is left up, and so is one of ours
    if ISTHMUS_TEST_KEEP_CLUSTER is set. Those of workers are taken down by `pytest_configure_node`."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    worker: dict[str, str] | None = getattr(request.config, "workerinput", None)
    if worker is not None and "cluster" not in worker:
        raise HarnessError("with -n, name tests/cluster or files in it: nobody would take the clusters down")
    provider, reason = select(_name() if worker is None else worker["cluster"])
    if worker is not None and not isinstance(provider, LocalProvider):
        raise HarnessError(f"{provider.what} is for one process of tests: use -n 0")
    with capture.global_and_fixture_disabled():
        print(f"\ncluster tests use {provider.what}: {reason}", flush=True)
        ours = provider.up(NODES)
    cluster = Cluster(provider)
    begin = datetime.now(UTC)
    try:
        yield cluster
        cluster.await_end_of_namespaces()
        _report_rights(provider, begin, request.session)
    finally:
        if ours and worker is None and not os.environ.get("ISTHMUS_TEST_KEEP_CLUSTER"):
            provider.down()


def _report_rights(provider: Provider, begin: datetime, session: pytest.Session) -> None:
    """Leaves what the tests have used since `begin` for `python -m tests.cluster.rights`, if somebody runs that. All
    processes know all tests, whichever of them they run."""
    folder = os.environ.get("ISTHMUS_TEST_RIGHTS")
    if folder and provider.audit_logs:
        found = rights.findings(rights.events(provider.audit_logs, begin))
        files = {item.path for item in session.items}
        found.complete = DESELECTED not in session.config.stash and files >= FILES
        found.write(Path(folder))


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
