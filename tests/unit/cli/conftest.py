"""What all tests of the command have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from isthmus_cli.local.ports import release_claims


@pytest.fixture(autouse=True)
def no_claims_are_left() -> Iterator[None]:
    """A process may have 1,023 files, as far as proton's reactor is concerned."""
    yield
    release_claims()
