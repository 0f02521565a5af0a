"""Fixtures of the attacks: the routers and clients of the integration tests."""

from tests.integration.conftest import (
    clients,
    compiled_kernel,
    either_kernel,
    passwords,
    pytest_runtest_makereport,
    router,
    routers,
)

__all__ = [
    "clients",
    "compiled_kernel",
    "either_kernel",
    "passwords",
    "pytest_runtest_makereport",
    "router",
    "routers",
]
