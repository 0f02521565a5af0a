"""Settings of all tests."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A first run in a new checkout builds hypothesis's character tables, and CI machines differ in speed: neither
# says anything about the code under test.
settings.register_profile("isthmus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("isthmus")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: two for each core this process may use, as much of the time a test waits for its routers."""
    return 2 * len(os.sched_getaffinity(0))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-failed-files", type=Path, help="write the files with failed tests, a line each")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the files with failed tests for `make test`, which runs these files once more, alone."""
    target: Path | None = config.getoption("--write-failed-files")
    if target is not None:
        reports: Iterable[pytest.TestReport] = (
            report for outcome in ("failed", "error") for report in terminalreporter.stats.get(outcome, ())
        )
        target.write_text("".join(f"{file}\n" for file in sorted({_file_of(report) for report in reports})))


def _file_of(report: pytest.TestReport) -> str:
    return report.nodeid.partition("::")[0]
