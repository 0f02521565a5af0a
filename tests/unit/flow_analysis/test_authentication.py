"""The secret of one run, which driver and executors derive from the key of their FlowAnalysis."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isthmus_flows.authentication import KEY_FILE, SECRET_FILE, secret_of, write_secret

KEY = bytes(range(32))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "key").write_bytes(KEY)
    return {KEY_FILE: str(tmp_path / "key"), SECRET_FILE: str(tmp_path / "secret")}


def test_each_run_has_its_own_secret() -> None:
    secrets = {secret_of(KEY, "run-1"), secret_of(KEY, "run-2"), secret_of(KEY[::-1], "run-1")}
    assert len(secrets) == 3
    assert {len(secret) for secret in secrets} == {32}
    assert KEY not in secrets


def test_only_the_user_can_read_the_secret(environment: dict[str, str]) -> None:
    place = Path(environment[SECRET_FILE])
    for run in ("run-1", "run-2"):
        write_secret(environment, run)
        assert place.read_bytes() == secret_of(KEY, run)
        assert place.stat().st_mode & 0o777 == 0o400


def test_nothing_is_written_on_one_machine(tmp_path: Path) -> None:
    write_secret({SECRET_FILE: str(tmp_path / "secret")}, "run-1")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("key", "message"),
    [
        pytest.param(b"short", "has 5 bytes; it needs at least 32", id="short"),
        pytest.param(None, "the secret of the run cannot be made", id="missing"),
    ],
)
def test_a_key_that_cannot_be_used_is_an_error_without_its_content(
    environment: dict[str, str], key: bytes | None, message: str
) -> None:
    place = Path(environment[KEY_FILE])
    place.unlink() if key is None else place.write_bytes(key)
    with pytest.raises(ValueError, match=message) as found:
        write_secret(environment, "run-1")
    assert "short" not in str(found.value)
    assert not Path(environment[SECRET_FILE]).exists()
