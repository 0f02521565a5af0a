"""SslProfiles on one machine: their ordinals last from one `up` to the next."""

from __future__ import annotations

import json
import stat
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from isthmus_cli.local import wanted
from isthmus_cli.local.deploy import Step, advance, write
from isthmus_cli.local.probe import view
from isthmus_cli.local.rotation import read
from isthmus_cli.local.state import Network, NetworkState
from isthmus_cli.local.supervisor import Supervisor
from isthmus_cli.local.wanted import config_path, files_folder
from isthmus_cli.manifests import load
from isthmus_cli.view import RouterReport

TEMPLATE = """
apiVersion: isthmus.dev/v1alpha1
kind: Router
metadata: {name: east}
spec:
  listeners:
  - {name: amqps, port: 5671, tls: {sslProfile: net}}
---
apiVersion: isthmus.dev/v1alpha1
kind: SslProfile
metadata: {name: net}
spec: {secretName: cert, retention: {oldOrdinals: 0, delaySeconds: 0}}
---
apiVersion: v1
kind: Secret
metadata: {name: cert}
data: {tls.crt: CERTIFICATE, tls.key: KEY}
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NetworkState:
    monkeypatch.setenv("ISTHMUS_STATE_DIR", str(tmp_path / "state"))
    return NetworkState("test")


def pair(end: timedelta = timedelta(days=9)) -> trustme.LeafCert:
    return trustme.CA().issue_cert("localhost", not_after=datetime.now(UTC) + end)


AUTHORITIES = b64encode(trustme.CA().cert_pem.bytes()).decode()


def up(state: NetworkState, folder: Path, pair: trustme.LeafCert, text: str = TEMPLATE) -> Network:
    """What `isthmus local up` writes."""
    certificate, key = pair.cert_chain_pems[0].bytes(), pair.private_key_pem.bytes()
    for name, content in (("CERTIFICATE", certificate), ("KEY", key)):
        text = text.replace(name, b64encode(content).decode())
    file = folder / "net.yaml"
    file.write_text(text)
    return write(state, load([str(file)]), running=["east-0"])


def section(state: NetworkState, name: str = "sslprofile/net-min-TLSv1.2") -> dict[str, Any]:
    (found,) = [
        item
        for kind, item in json.loads(config_path(state, "east-0").read_text())
        if kind == "sslProfile" and item["name"] == name
    ]
    return found  # type: ignore[no-any-return]


def connected(state: NetworkState, ordinals: dict[str, int], reached: dict[str, int] | None = None) -> None:
    """The routers say that they have taken over these `ordinals`, by section, and that their connectors are on
    the ordinals `reached`."""
    links = [
        {"name": name, "role": "edge", "state": "open", "tlsOrdinal": ordinal}
        for name, ordinal in (reached or {}).items()
    ]
    sections = [{"name": name, "ordinal": ordinal, "connections": {}} for name, ordinal in ordinals.items()]
    state_of = {"router": {"id": "east-0", "ready": True}, "connectors": links, "sslProfiles": sections}
    SAID[:] = [RouterReport("east-0", "east", "edge", None, "pid 1", state_of)]


SAID: list[RouterReport] = []
LISTENED, DIALLED = "sslprofile/net-min-TLSv1.2", "sslprofile/net/dialled"
UPLINK = """
---
apiVersion: isthmus.dev/v1alpha1
kind: Connector
metadata: {name: up}
spec:
  role: edge
  from: {routerRef: {name: east}}
  to: {host: localhost, port: 45671}
  tls: {sslProfile: net}
"""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The routers say what `connected` was told."""
    SAID.clear()
    monkeypatch.setattr("isthmus_cli.local.deploy.reports", lambda *_: SAID)


@pytest.mark.usefixtures("said")
def test_nothing_is_retired_while_a_connection_is_not_there(state: NetworkState, tmp_path: Path) -> None:
    text = TEMPLATE.replace("spec:\n  listeners", "spec:\n  mode: edge\n  listeners") + UPLINK
    text = text.replace("tls.key: KEY", f"tls.key: KEY, ca.crt: {AUTHORITIES}")
    for each in (pair(), pair()):
        up(state, tmp_path, each, text)
        connected(state, {LISTENED: 2, DIALLED: 2})
        advance(state)
    assert (section(state)["ordinal"], section(state)["oldestValidOrdinal"]) == (2, 1)
    assert advance(state).pause is not None
    connected(state, {LISTENED: 2, DIALLED: 2}, {"up": 2})
    while advance(state).changed:
        pass
    assert (section(state)["ordinal"], section(state)["oldestValidOrdinal"]) == (2, 2)
    step = advance(state)
    assert not step.changed
    assert step.pause is not None
    assert step.pause > 86400, "only the renewal of the Router's own certificate is to come"


@pytest.mark.usefixtures("said")
def test_listeners_come_before_connectors(state: NetworkState, tmp_path: Path) -> None:
    text = TEMPLATE.replace("spec:\n  listeners", "spec:\n  mode: edge\n  listeners") + UPLINK
    text = text.replace("tls.key: KEY", f"tls.key: KEY, ca.crt: {AUTHORITIES}")
    for each in (pair(), pair()):
        up(state, tmp_path, each, text)
    assert (section(state, LISTENED)["ordinal"], section(state, DIALLED)["ordinal"]) == (2, 1)
    connected(state, {LISTENED: 1, DIALLED: 1}, {"up": 1})
    assert advance(state).changed, "the Router's own certificate is in use everywhere"
    assert not advance(state).changed
    assert section(state, DIALLED)["ordinal"] == 1
    connected(state, {LISTENED: 2, DIALLED: 1}, {"up": 1})
    assert advance(state).changed
    assert section(state, DIALLED)["ordinal"] == 2


@pytest.mark.usefixtures("said")
def test_a_changed_secret_raises_the_ordinal_with_the_next_up(state: NetworkState, tmp_path: Path) -> None:
    first, second, third = pair(), pair(), pair()
    ordinals = []
    for number, each in ((1, first), (1, first), (2, second), (3, third)):
        up(state, tmp_path, each)
        ordinals.append((section(state)["ordinal"], section(state)["oldestValidOrdinal"]))
        connected(state, {LISTENED: number})
        while advance(state).changed:
            pass
    assert ordinals == [(1, 1), (1, 1), (2, 1), (3, 2)]
    files = {item.name for item in files_folder(state, "east-0").iterdir()}
    assert files == {"net_3-tls.crt", "net_3-tls.key"}
    for name in ("profiles/net.json", "resources.json"):
        assert stat.S_IMODE((state.folder / name).stat().st_mode) == 0o600


def test_what_the_files_said_is_read_again(state: NetworkState, tmp_path: Path) -> None:
    up(state, tmp_path, pair(), TEMPLATE + UPLINK)
    given = load([str(tmp_path / "net.yaml")])
    found = wanted.read(state)
    assert found is not None
    assert found.resources == given.resources
    assert found.secrets == given.secrets


def test_a_bad_secret_changes_nothing_and_is_a_finding(state: NetworkState, tmp_path: Path) -> None:
    up(state, tmp_path, pair())
    before = section(state)
    network = up(state, tmp_path, pair(end=timedelta(days=-1)))
    finding = next(text for text in view(state, network).problems if text.startswith("SslProfile"))
    assert finding.startswith(
        'SslProfile net: SecretInvalid: Secret "cert": the certificate in tls.crt expired'
    )
    assert finding.endswith("; ordinal 1 stays in service")
    assert section(state) == before


def test_a_profile_without_a_ledger_goes_on_from_the_routers(state: NetworkState, tmp_path: Path) -> None:
    first = pair()
    for each in (pair(), first):
        up(state, tmp_path, each)
    (state.folder / "profiles" / "net.json").unlink()
    up(state, tmp_path, first)
    assert section(state)["ordinal"] == 2
    (state.folder / "profiles" / "net.json").unlink()
    up(state, tmp_path, pair())
    assert section(state)["ordinal"] == 3


def test_a_profile_that_is_gone_is_forgotten_but_kept_in_use(state: NetworkState, tmp_path: Path) -> None:
    each = pair()
    up(state, tmp_path, each)
    router, _, _ = TEMPLATE.partition("---")
    network = up(state, tmp_path, each, router)
    assert "the routers keep the earlier certificates" in network.findings[0]
    assert read(state, "net") is None
    assert section(state)["ordinal"] == 1


def test_the_status_shows_the_profile(state: NetworkState, tmp_path: Path) -> None:
    network = up(state, tmp_path, pair())
    (row,) = view(state, network).profiles
    assert (row.name, row.state, row.ordinal, row.oldest_valid) == ("net", "rotating", 1, 1)
    assert row.message is not None
    assert "1 not on it yet: east-0 is not running; the certificate expires at" in row.message
    assert row.expires is not None
    assert row.expires.endswith("Z")


def test_rotations_that_cannot_go_on_do_not_end_the_supervisor(
    state: NetworkState, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: NetworkState) -> Step:
        raise RuntimeError("no good")

    monkeypatch.setattr("isthmus_cli.local.supervisor.advance", broken)
    supervisor = Supervisor(state.name)
    for _ in range(2):
        step = supervisor.advance()
        assert not step.changed
        assert step.pause is not None
    assert capsys.readouterr().out.count("rotations cannot go on: RuntimeError: no good") == 1


def test_a_network_has_an_authority_of_its_own_that_only_its_user_can_read(
    state: NetworkState, tmp_path: Path
) -> None:
    up(state, tmp_path, pair())
    first = state.authority()
    assert first is not None
    assert set(first) == {"tls.crt", "tls.key", "ca.crt"}
    secret = [state.authority_file, *(state.folder / "profiles").iterdir()]
    assert {file.stat().st_mode & 0o777 for file in secret} == {0o600}
    up(state, tmp_path, pair())
    assert state.authority() == first
    assert state.profile_names() == ["net"], "implicit profiles are none of the user's"
