"""The programs in the documentation run as they stand there."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from tests.integration.support.certificates import Authority

ROOT = Path(__file__).parents[3]
TIMEOUT = 150.0
_BLOCK = re.compile(r"```python\n# (\w+\.py)[^\n]*\n(.*?)```", re.DOTALL)


class Network:
    """A local network, and the programs of README.md and docs/clients.md."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "ISTHMUS_STATE_DIR": str(folder / "state")}
        for page in (ROOT / "README.md", ROOT / "docs" / "clients.md"):
            for name, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
                (folder / name).write_text(text)

    def change(self, program: str, name: str, old: str, new: str) -> None:
        """Makes a program `name` that is `program` but for one place."""
        text = (self._folder / program).read_text()
        assert old in text
        (self._folder / name).write_text(text.replace(old, new))

    def isthmus(self, *words: str) -> str:
        command = [sys.executable, "-m", "isthmus_cli", "local", *words]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def url(self, router: str) -> str:
        routers = json.loads(self.isthmus("status", "-o", "json"))["routers"]
        return str(next(item["endpoints"][0] for item in routers if item["router"] == router))

    def start(self, program: str, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(self._folder / program), *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, program: str, *words: str) -> list[str]:
        return finished(self.start(program, *words))


def finished(process: subprocess.Popen[str]) -> list[str]:
    """The lines a program wrote, once it has ended well."""
    try:
        output, errors = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        pytest.fail(f"did not end\n{output}{errors}")
    assert process.returncode == 0, output + errors
    return output.splitlines()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    found = Network(tmp_path_factory.mktemp("docs"))
    try:
        found.isthmus("up", str(ROOT / "examples" / "two-sites.yaml"))
        yield found
    finally:
        found.isthmus("down", "--all")


@pytest.fixture(scope="module")
def urls(network: Network) -> Sequence[str]:
    return network.url("edge-east"), network.url("edge-west")


def test_the_readmes_sender_and_receiver(network: Network, urls: Sequence[str]) -> None:
    receiver = network.start("receive.py", urls[1])
    assert network.run("send.py", urls[0]) == ["accepted"]
    assert finished(receiver) == ["received: hello from the east"]


def test_the_readmes_sender_tells_the_outcome(network: Network, urls: Sequence[str]) -> None:
    network.change("receive.py", "modify.py", "receiver.accept()", "receiver.release(delivered=True)")
    receiver = network.start("modify.py", urls[1])
    assert network.run("send.py", urls[0]) == ["modified: it may not have been processed"]
    assert finished(receiver) == ["received: hello from the east"]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            "outcomes.py",
            [
                "to nobody: 38",
                "0 36",
                "1 37",
                "2 39",
                "accepted, rejected, released, modified are 36 37 38 39",
            ],
        ),
        ("request.py", ["1 apples in stock"]),
        ("multicast.py", ["rain tomorrow"] * 2),
        ("large.py", ["5000000 bytes"]),
    ],
)
def test_programs_for_applications(
    network: Network, urls: Sequence[str], program: str, expected: list[str]
) -> None:
    assert network.run(program, *urls) == expected


def test_tls_and_passwords(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "network")
    identity = authority.issue("router")
    database = tmp_path / "sasldb"
    subprocess.run(
        ["/usr/sbin/saslpasswd2", "-c", "-p", "-f", str(database), "-u", "isthmus", "alice"],
        input=b"secret",
        check=True,
        timeout=30,
    )
    certificate = {"tls.crt": identity.certificate.read_text(), "tls.key": identity.key.read_text()}
    users = {"sasldb": base64.b64encode(database.read_bytes()).decode()}
    sasl = {"mechanisms": ["PLAIN", "SCRAM-SHA-256"], "usersSecretRef": {"name": "users"}}
    tls = {"secretName": "identity"}
    documents: list[dict[str, object]] = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "identity"}, "stringData": certificate},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "users"}, "data": users},
    ]
    for name, listener in (("open", {"tls": tls}), ("closed", {"tls": tls, "sasl": sasl})):
        spec = {"mode": "interior", "listeners": [{"name": "amqps", "port": 5671, **listener}]}
        documents.append(
            {
                "apiVersion": "isthmus.dev/v1alpha1",
                "kind": "Router",
                "metadata": {"name": name},
                "spec": spec,
            }
        )
    network = Network(tmp_path)
    file = tmp_path / "net.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    try:
        network.isthmus("up", str(file))
        trusted = str(identity.trusted)
        assert network.run("secure.py", network.url("open"), trusted) == ["connected to open-0"]
        login = ("alice@isthmus", "secret")
        assert network.run("secure.py", network.url("closed"), trusted, *login) == ["connected to closed-0"]
        refused = network.start("secure.py", network.url("closed"), trusted, "alice@isthmus", "wrong")
        _, errors = refused.communicate(timeout=TIMEOUT)
        assert refused.returncode == 1
        assert "Authentication failed" in errors
    finally:
        network.isthmus("down", "--all")


def test_the_walk_through_a_rotation(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "rotation.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "ISTHMUS_STATE_DIR": str(tmp_path / "state")}
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        command = [sys.executable, "-m", "isthmus_cli", "local", "down", "--all"]
        subprocess.run(command, env=environment, timeout=TIMEOUT, check=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rotated: SslProfile network to ordinal 2, in use everywhere after " in done.stdout
    assert ": ordinal 3 is in use everywhere" in done.stdout
    assert ": ordinal 4 is in use everywhere" in done.stdout
    assert "network lab is down: 4 routers ended" in done.stdout
