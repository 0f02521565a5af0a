"""A router in memory for tests that run on either kernel."""

from tests.unit.amqp.conftest import rig

__all__ = ["rig"]
