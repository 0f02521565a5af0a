"""A router in memory for tests that run on either kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.amqp.rig import Rig


@pytest.fixture(params=[True, False], ids=["compiled", "python"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """One with the compiled kernel, and one without."""
    rig = Rig(compiled=request.param)
    yield rig
    rig.close()
