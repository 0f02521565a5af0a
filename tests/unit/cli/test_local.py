"""Parts of the local platform that need no router: processes, ports, files."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from isthmus_cli.errors import CliError
from isthmus_cli.local import lifecycle
from isthmus_cli.local.deploy import write
from isthmus_cli.local.ports import RANGE, NoPortError, assign, claim, is_free, release_claims
from isthmus_cli.local.probe import expired
from isthmus_cli.local.process import ProcessId, end, wait_gone
from isthmus_cli.local.state import Network, NetworkState, Processes, RouterProcess, write_atomically
from isthmus_cli.local.wanted import config_path, files_folder
from isthmus_cli.manifests import load

TEMPLATE = """
apiVersion: isthmus.dev/v1alpha1
kind: Router
metadata: {name: east}
spec:
  replicas: 2
  site: here
  listeners:
  - {name: amqp, port: 5672}
  - {name: amqps, port: 5671, tls: {secretName: cert}}
  - {name: inter, port: 55672, role: inter-router}
---
apiVersion: v1
kind: Secret
metadata: {name: cert}
data: {tls.crt: CERTIFICATE, tls.key: KEY}
"""


def pair(*, starts: int = -9, days: int = 9) -> trustme.LeafCert:
    """A certificate and key, valid from `starts` to `days` days from now."""
    now = datetime.now(UTC)
    begin, end = now + timedelta(days=starts), now + timedelta(days=days)
    return trustme.CA().issue_cert("host.example", not_before=begin, not_after=end)


def with_pair(pair: trustme.LeafCert, key: bytes = b"") -> str:
    """The network with that certificate, and its key or another one."""
    certificate, key = pair.cert_chain_pems[0].bytes(), key or pair.private_key_pem.bytes()
    text = TEMPLATE.replace("CERTIFICATE", b64encode(certificate).decode())
    return text.replace("KEY", b64encode(key).decode())


KEY_PAIR = pair()
NETWORK = with_pair(KEY_PAIR)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NetworkState:
    monkeypatch.setenv("ISTHMUS_STATE_DIR", str(tmp_path / "state"))
    return NetworkState("test")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait(timeout=10)


def ignoring_term() -> subprocess.Popen[bytes]:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


class TestProcess:
    def test_a_process_is_known_by_pid_and_start(self, sleeper: subprocess.Popen[bytes]) -> None:
        process = ProcessId.of(sleeper.pid)
        assert process.alive
        assert not replace(process, started="another start").alive

    def test_a_reused_pid_is_left_alone(self, sleeper: subprocess.Popen[bytes]) -> None:
        end([replace(ProcessId.of(sleeper.pid), started="an earlier process")], grace=1)
        assert sleeper.poll() is None

    def test_a_zombie_has_ended(self, sleeper: subprocess.Popen[bytes]) -> None:
        process = ProcessId.of(sleeper.pid)
        sleeper.kill()
        assert wait_gone([process], 10) == []  # nobody has reaped it yet
        assert not process.signal(signal.SIGTERM)

    def test_no_such_process(self) -> None:
        gone = subprocess.Popen(["true"])
        gone.wait(timeout=10)
        with pytest.raises(ProcessLookupError):
            ProcessId.of(gone.pid)

    def test_one_that_ignores_the_request_is_killed(self) -> None:
        process = ignoring_term()
        end([ProcessId.of(process.pid)], grace=0.2)
        assert process.wait(timeout=10) == -signal.SIGKILL


class TestPorts:
    def test_ports_are_kept_and_new_ones_differ(self) -> None:
        ports = assign(["a", "b", "c"], {"b": 20005})
        assert ports["b"] == 20005
        assert len(set(ports.values())) == 3
        assert all(port in RANGE for port in ports.values())

    def test_a_port_that_is_no_longer_wanted_is_forgotten(self) -> None:
        assert "x" not in assign(["a"], {"x": 20005})

    def test_a_port_in_use_is_not_given_out(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            assert not is_free(port)
        assert is_free(port)

    def test_no_port_left(self) -> None:
        with pytest.raises(NoPortError):
            assign(["a"], {}, claimed=lambda port: False)

    def test_two_networks_that_start_at_once_get_different_ports(self) -> None:
        port = assign(["a"], {})["a"]
        other = "import sys; from isthmus_cli.local.ports import claim; sys.exit(claim(int(sys.argv[1])))"
        assert subprocess.run([sys.executable, "-c", other, str(port)], check=False).returncode == 0

    def test_claims_end(self) -> None:
        port = assign(["a"], {})["a"]
        assert not claim(port)
        release_claims()
        assert claim(port)

    def test_a_router_can_listen_on_a_claimed_port(self) -> None:
        port = assign(["a"], {})["a"]
        with socket.create_server(("127.0.0.1", port)):
            assert not claim(port)


class TestFiles:
    def test_atomic_and_private(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "file"
        assert write_atomically(path, b"1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        before = path.stat().st_mtime_ns
        assert not write_atomically(path, b"1")
        assert path.stat().st_mtime_ns == before
        assert [item.name for item in path.parent.iterdir()] == ["file"]

    @pytest.mark.parametrize("name", ["", "a/b", "..", "-x", "A", "x" * 64])
    def test_names_that_are_no_folder_names(self, state: NetworkState, name: str) -> None:
        with pytest.raises(CliError):
            NetworkState(name)

    def test_what_is_written_is_read(self, state: NetworkState) -> None:
        processes = Processes(ProcessId(1, "a"), 3, {"r": RouterProcess(None, 2, "gone")})
        state.write_processes(processes)
        assert state.processes() == processes


class TestDeploy:
    def deploy(
        self, state: NetworkState, tmp_path: Path, text: str = NETWORK, *, running: bool = False
    ) -> Network:
        file = tmp_path / "net.yaml"
        file.write_text(text)
        network = write(state, load([str(file)]), running=["east-0", "east-1"] if running else [])
        assert state.network() == network
        return network

    def test_routers_with_ports_of_their_own(self, state: NetworkState, tmp_path: Path) -> None:
        network = self.deploy(state, tmp_path)
        assert [router.id for router in network.routers] == ["east-0", "east-1"]
        assert len(set(network.ports.values())) == 8
        first = network.routers[0]
        assert first.endpoints == (
            f"amqp://127.0.0.1:{network.ports['east-0/amqp']}",
            f"amqps://localhost:{network.ports['east-0/amqps']}",
        )
        config = config_path(state, "east-1").read_text()
        assert str(network.ports["east-0/inter"]) in config  # the mesh goes to the other one's port
        assert str(files_folder(state, "east-1") / "cert-tls.key") in config
        assert (
            files_folder(state, "east-1") / "cert-tls.key"
        ).read_bytes() == KEY_PAIR.private_key_pem.bytes()

    def test_the_same_again_changes_nothing_but_the_generation(
        self, state: NetworkState, tmp_path: Path
    ) -> None:
        first = self.deploy(state, tmp_path)
        second = self.deploy(state, tmp_path, running=True)
        assert replace(second, generation=first.generation) == first
        assert second.generation == first.generation + 1

    def test_what_a_running_router_takes_over_does_not_restart_it(
        self, state: NetworkState, tmp_path: Path
    ) -> None:
        first = self.deploy(state, tmp_path).routers[0]
        live = NETWORK.replace(
            "site: here",
            "site: here\n  addresses: [{prefix: a, distribution: multicast}]\n  defaultDistribution: closest",
        )
        second = self.deploy(state, tmp_path, live, running=True).routers[0]
        assert second.config_hash != first.config_hash
        assert second.restart_hash == first.restart_hash
        third = self.deploy(state, tmp_path, NETWORK.replace("here", "there"), running=True).routers[0]
        assert third.restart_hash != first.restart_hash

    def test_key_material_that_is_no_longer_used_goes(self, state: NetworkState, tmp_path: Path) -> None:
        self.deploy(state, tmp_path)
        self.deploy(state, tmp_path, "\n".join(line for line in NETWORK.splitlines() if "amqps" not in line))
        files = {item.name for item in files_folder(state, "east-0").iterdir()}
        assert files == {f"east_router_1-{key}" for key in ("ca.crt", "tls.crt", "tls.key")}

    def test_a_missing_reference_is_a_finding(self, state: NetworkState, tmp_path: Path) -> None:
        network = self.deploy(state, tmp_path, NETWORK.partition("---")[0])
        assert any("SecretNotFound" in finding for finding in network.findings)
        assert "east-0/amqps" not in network.ports

    def findings(
        self, state: NetworkState, tmp_path: Path, pair: trustme.LeafCert | None, key: bytes = b""
    ) -> tuple[str, ...]:
        """Those of the network with another key pair in the Secret, or without the Secret."""
        text = NETWORK.partition("---")[0]
        if pair is not None:
            text = with_pair(pair, key)
        return self.deploy(state, tmp_path, text, running=True).findings

    def test_certificates_are_judged_as_in_the_operator(self, state: NetworkState, tmp_path: Path) -> None:
        def told(pair: trustme.LeafCert, key: bytes = b"") -> str:
            (finding,) = self.findings(state, tmp_path, pair, key)
            assert not (files_folder(state, "east-0") / "cert-tls.crt").exists()
            return finding

        begin = 'Router east: SecretInvalid: listener "amqps": Secret "cert": '
        other = trustme.CA().issue_cert("other.example").private_key_pem.bytes()
        assert told(pair(days=-1)).startswith(f"{begin}the certificate in tls.crt expired at ")
        assert told(pair(starts=1)).startswith(f"{begin}the certificate in tls.crt is not valid before ")
        mismatch = "tls.key is not the private key of the certificate in tls.crt"
        assert told(KEY_PAIR, other) == begin + mismatch

    def test_what_worked_stays(self, state: NetworkState, tmp_path: Path) -> None:
        first = self.deploy(state, tmp_path)
        kept = "; the routers keep the earlier certificates"
        for broken in (pair(days=-1), None):
            (finding,) = self.findings(state, tmp_path, broken)
            assert finding.endswith(kept)
            file = files_folder(state, "east-1") / "cert-tls.key"
            assert file.read_bytes() == KEY_PAIR.private_key_pem.bytes()
            network = state.network()
            assert network is not None
            assert network.routers == first.routers
        good = pair()
        assert self.findings(state, tmp_path, good) == ()
        assert file.read_bytes() == good.private_key_pem.bytes()

    def test_what_expires_in_use_is_told(self, state: NetworkState, tmp_path: Path) -> None:
        self.findings(state, tmp_path, pair(days=1))
        network = state.network()
        assert network is not None
        now = datetime.now(UTC)
        assert expired(network, now) == []
        (finding,) = expired(network, now + timedelta(days=2))
        begin = 'Router east: SecretInvalid: Secret "cert": the certificate in tls.crt expired at '
        assert finding.startswith(begin)


def test_down_of_what_is_not_there(state: NetworkState) -> None:
    assert lifecycle.down(state, 1) == 0


def test_down_ends_what_a_killed_supervisor_left(
    state: NetworkState, sleeper: subprocess.Popen[bytes]
) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        left = {
            "a": RouterProcess(ProcessId.of(sleeper.pid)),
            "b": RouterProcess(ProcessId(bystander.pid, "earlier")),
        }
        state.write_processes(Processes(ProcessId(os.getpid(), "an earlier process"), 1, left))
        assert lifecycle.down(state, 5) == 1
        assert sleeper.wait(timeout=10) == -signal.SIGTERM
        assert bystander.poll() is None
        assert not state.folder.exists()
    finally:
        bystander.kill()
        bystander.wait(timeout=10)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_supervisor_whose_starter_is_gone_starts_nothing(
    state: NetworkState, tmp_path: Path, wanted: bool
) -> None:
    if wanted:
        file = tmp_path / "network.yaml"
        file.write_text(NETWORK)
        write(state, load([str(file)]))
    done = subprocess.run(
        [sys.executable, "-m", "isthmus_cli.local.supervisor", state.name],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "whoever started this supervisor is gone" in done.stdout
    processes = state.processes()
    assert (processes.routers if processes else None) == ({} if wanted else None)
    assert state.folder.exists() == wanted
