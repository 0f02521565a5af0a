"""Settings of all tests."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# A first run in a new checkout builds hypothesis's character tables, and CI machines differ in speed: neither
# says anything about the code under test.
settings.register_profile("isthmus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("isthmus")

SPARK_SESSION = "tests/integration/flow_analysis"
SPARK = (SPARK_SESSION, "tests/integration/cli/test_flows.py", "tests/security/test_old_tls_versions.py")
BILLS = "tests/unit/test_image_dependencies.py"
LONGEST_FIRST = (*SPARK, "tests/integration", "tests/security", "tests/unit/sites", BILLS, "tests/unit")
"""Folders in the order of their tests: whatever is begun last should be short, or the other processes wait for it."""
CLUSTER = "tests/cluster"
APART = ("tests/integration/cli", "tests/unit/sites")
TOGETHER = "tests/integration/cli/test_docs.py"
"""The tests of the former share nothing, unless they are of the latter, and some take long: those of one file may run
at the same time."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: two for each core this process may use, as much of the time a test waits for its routers."""
    return 2 * len(os.sched_getaffinity(0))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(
        key=lambda item: next((at for at, it in enumerate(LONGEST_FIRST) if item.nodeid.startswith(it)), -1)
    )


class _Files(LoadFileScheduling):  # type: ignore[misc]
    """Tests of one file run in one process, and so do all that share a Spark session, which takes a minute to start."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(APART) and not nodeid.startswith(TOGETHER):
            return nodeid
        return SPARK_SESSION if nodeid.startswith(SPARK_SESSION) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """How tests are distributed with `--dist loadfile`."""
    return _Files(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-failed", type=Path, help="write which tests failed, for a run with @FILE")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write which tests failed for `make test`, which runs these once more, alone: a line each. Tests of a cluster use
    what those before them in their file have done, and so the file stands for them."""
    target: Path | None = config.getoption("--write-failed")
    if target is not None:
        failed: Iterable[str] = (
            report.nodeid
            for outcome in ("failed", "error")
            for report in terminalreporter.stats.get(outcome, ())
        )
        names = {name.partition("::")[0] if name.startswith(CLUSTER) else name for name in failed}
        target.write_text("".join(f"{name}\n" for name in sorted(names)))
