"""Settings of all tests."""

import os

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
