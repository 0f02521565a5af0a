"""The chart as Helm itself renders it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.harness.local.binaries import built

CHART = Path(__file__).parents[3] / "charts" / "isthmus"

Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def helm() -> str:
    """A Helm 4: the one on the path, or one built from its Go module and kept in the user's cache."""
    found = shutil.which("helm")
    if found and run(found, "version", "--template", "{{.Version}}").stdout.startswith("v4"):
        return found
    return str(built(["helm"])["helm"])


@pytest.fixture(scope="session")
def promtool() -> str:
    """Of Prometheus."""
    found = shutil.which("promtool")
    assert found, "promtool is missing: apt-get install prometheus"
    return found


def run(*words: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, input=input, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def render(helm: str) -> Render:
    """Renders the chart with `--set` values; fails the test with Helm's own words if Helm refuses."""

    def rendered(*values: str, name: str = "release", namespace: str = "isthmus") -> list[dict[str, Any]]:
        done = run(*_words(helm, values, name, namespace))
        assert done.returncode == 0, done.stderr
        return [item for item in yaml.safe_load_all(done.stdout) if item]

    return rendered


@pytest.fixture
def refusal(helm: str) -> Callable[..., str]:
    """What Helm says to values it must refuse."""

    def refused(*values: str) -> str:
        done = run(*_words(helm, values, "release", "isthmus"))
        assert done.returncode != 0, "the chart took these values"
        return done.stderr

    return refused


def _words(helm: str, values: tuple[str, ...], name: str, namespace: str) -> list[str]:
    settings = [word for value in values for word in ("--set", value)]
    return [helm, "template", name, str(CHART), "--namespace", namespace, *settings]
