"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# A first run in a new checkout builds hypothesis's character tables, and CI machines differ in speed: neither
# says anything about the code under test.
settings.register_profile("isthmus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("isthmus")
