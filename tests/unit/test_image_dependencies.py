"""Everything that a build of an image downloads is named by its hash, except packages of the distribution and Maven's
plugins. The bills of materials say the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMAGES = {"router": "router-image", "operator": "operator", "collector": "flow-log", "flows": "flow-analysis"}
TOOLS = ROOT / "build-requirements.txt"
LISTS = [TOOLS, *(ROOT / folder / "requirements.txt" for folder in IMAGES.values())]
ENTRY = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)(?P<hashes>( --hash=sha256:[0-9a-f]{64})+)")


def logical_lines(file: Path) -> list[str]:
    """The lines of a file without comments, with continued lines joined and single spaces."""
    kept = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(kept))
    return [" ".join(line.split()) for line in joined.splitlines() if line.strip()]


def hashes(file: Path) -> dict[tuple[str, Version], set[str]]:
    """Of each package that a file names, with its version."""
    entries = [ENTRY.fullmatch(line) for line in logical_lines(file)]
    return {
        (canonicalize_name(entry["name"]), Version(entry["version"])): set(
            re.findall("[0-9a-f]{64}", entry["hashes"])
        )
        for entry in entries
        if entry
    }


def pinned(file: Path) -> dict[str, Version]:
    return dict(hashes(file).keys())


@pytest.mark.parametrize("file", LISTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_each_dependency_has_one_version_and_hashes(file: Path) -> None:
    lines = logical_lines(file)
    assert lines
    assert [line for line in lines if not ENTRY.fullmatch(line)] == []


@pytest.mark.parametrize("extra", IMAGES)
def test_the_list_of_an_image_meets_the_requirements_of_the_project(extra: str) -> None:
    """What these lead to is complete as well: with hashes, pip refuses a dependency that the list lacks."""
    versions = pinned(ROOT / IMAGES[extra] / "requirements.txt")
    for item in map(Requirement, PROJECT["project"]["optional-dependencies"][extra]):
        version = versions.get(canonicalize_name(item.name))
        assert version is not None, f"{item}: run `make constraints`"
        assert item.specifier.contains(version), f"{item}: run `make constraints`"


def test_the_list_of_build_tools_meets_the_requirements_of_the_project() -> None:
    versions = pinned(TOOLS)
    for item in map(Requirement, (*PROJECT["build-system"]["requires"], "cffi>=1", "wheel")):
        assert item.specifier.contains(versions[canonicalize_name(item.name)])


@pytest.mark.parametrize("folder", IMAGES.values())
def test_an_image_installs_nothing_without_a_hash(folder: str) -> None:
    lines = logical_lines(ROOT / folder / "Containerfile")
    commands = [
        command for line in lines if line.startswith("RUN ") for command in re.split(r"&&|\|\||;", line)
    ]
    installs = [command for command in commands if re.search(r"\bpip\b.* (install|wheel|download) ", command)]
    assert len(installs) == 5
    for command in installs:
        own = command.endswith("--no-build-isolation --no-deps --wheel-dir /wheel /src ")
        checked = "--require-hashes" in command and (
            "install" in command or "--no-build-isolation" in command
        )
        assert own or checked or "--no-index --no-deps" in command, command
    for command in commands:
        if "mvn --quiet" in command:
            assert "-DoutputDirectory=/jars" in command
            assert any("sha256sum --check --quiet --strict" in other for other in commands)


@pytest.mark.parametrize("folder", IMAGES.values())
def test_the_default_base_of_an_image_has_a_tag_and_a_digest(folder: str) -> None:
    lines = logical_lines(ROOT / folder / "Containerfile")
    defaults = dict(line.removeprefix("ARG ").split("=", 1) for line in lines if line.startswith("ARG "))
    assert re.fullmatch(r"python:[0-9a-z.-]+@sha256:[0-9a-f]{64}", defaults["BASE"])
    assert defaults["BUILD_BASE"] == "${BASE}"
    assert [line for line in lines if line.startswith("FROM ")] == [
        "FROM ${BUILD_BASE} AS build",
        "FROM ${BASE}",
    ]


def test_the_list_of_jars_has_the_versions_that_maven_fetches() -> None:
    text = (ROOT / "flow-analysis" / "object-store.pom.xml").read_text()
    versions = dict(re.findall(r"<(hadoop|aws)\.version>([^<]+)<", text))
    lines = (ROOT / "flow-analysis" / "object-store.sha256").read_text().splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64}  [A-Za-z0-9.-]+\.jar", line) for line in lines)
    jars = {line.split()[1] for line in lines}
    assert {
        f"hadoop-aws-{versions['hadoop']}.jar",
        f"s3-transfer-manager-{versions['aws']}.jar",
        f"sts-{versions['aws']}.jar",
    } <= jars


@pytest.fixture(scope="module")
def bills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make sbom` writes."""
    place = tmp_path_factory.mktemp("bills")
    for name in ("Makefile", "pyproject.toml", *IMAGES.values()):
        (place / name).symlink_to(ROOT / name)
    command = ["make", "sbom", f"PYTHON={sys.executable}"]
    made = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=500, check=False)
    assert made.returncode == 0, made.stderr
    return place / "sbom"


def components(bill: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(bill.read_text())["components"]
    return found


@pytest.mark.parametrize("image", IMAGES)
def test_the_bill_of_an_image_has_its_packages_with_version_and_hashes_and_no_others(
    bills: Path, image: str
) -> None:
    listed = {
        (canonicalize_name(item["name"]), Version(item["version"])): {
            digest["content"]
            for place in item["externalReferences"]
            for digest in place.get("hashes", ())
            if digest["alg"] == "SHA-256"
        }
        for item in components(bills / f"isthmus-{image}.cdx.json")
    }
    assert listed == hashes(ROOT / IMAGES[image] / "requirements.txt")
    assert listed
    bill = json.loads((bills / f"isthmus-{image}.cdx.json").read_text())
    assert bill["metadata"]["component"]["name"] == PROJECT["project"]["name"]


def test_the_bill_of_the_jars_has_those_of_the_image_with_version_and_hash(bills: Path) -> None:
    listed = {
        f"{digest['content']}  {item['name']}-{item['version']}.jar"
        for item in components(bills / "isthmus-flows-jars.cdx.json")
        for digest in item["hashes"]
        if digest["alg"] == "SHA-256"
    }
    lines = (ROOT / "flow-analysis" / "object-store.sha256").read_text().splitlines()
    assert set(lines) - listed == set()
    assert lines
