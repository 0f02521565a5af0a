"""The command for the tests of `isthmus local`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.support.isthmus import Isthmus


@pytest.fixture
def isthmus(tmp_path: Path) -> Iterator[Isthmus]:
    command = Isthmus(tmp_path)
    yield command
    command("local", "down", "--all")
