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

from isthmus_cli.local.deploy import config_path, files_folder, write
from isthmus_cli.local.probe import view
from isthmus_cli.local.profiles import read
from isthmus_cli.local.state import Network, NetworkState
from isthmus_cli.manifests import load

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


def up(state: NetworkState, folder: Path, pair: trustme.LeafCert, text: str = TEMPLATE) -> Network:
    """What `isthmus local up` writes."""
    certificate, key = pair.cert_chain_pems[0].bytes(), pair.private_key_pem.bytes()
    for name, content in (("CERTIFICATE", certificate), ("KEY", key)):
        text = text.replace(name, b64encode(content).decode())
    file = folder / "net.yaml"
    file.write_text(text)
    return write(state, load([str(file)]), running=["east-0"])


def section(state: NetworkState) -> dict[str, Any]:
    (found,) = [
        item for kind, item in json.loads(config_path(state, "east-0").read_text()) if kind == "sslProfile"
    ]
    return found  # type: ignore[no-any-return]


def test_nothing_is_retired_while_a_connection_is_not_there(state: NetworkState, tmp_path: Path) -> None:
    """The routers do not even answer here."""
    for each in (pair(), pair(), pair()):
        up(state, tmp_path, each)
    assert (section(state)["ordinal"], section(state)["oldestValidOrdinal"]) == (3, 1)


def test_a_changed_secret_raises_the_ordinal_with_the_next_up(
    state: NetworkState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus_cli.local.deploy.all_open", lambda _: True)
    first, second, third = pair(), pair(), pair()
    ordinals = []
    for each in (first, first, second, third):
        up(state, tmp_path, each)
        ordinals.append((section(state)["ordinal"], section(state)["oldestValidOrdinal"]))
    assert ordinals == [(1, 1), (1, 1), (2, 1), (3, 2)]
    files = {item.name for item in files_folder(state, "east-0").iterdir()}
    assert files == {"net_3-tls.crt", "net_3-tls.key"}
    assert stat.S_IMODE((state.folder / "profiles" / "net.json").stat().st_mode) == 0o600


def test_a_bad_secret_changes_nothing_and_is_a_finding(state: NetworkState, tmp_path: Path) -> None:
    up(state, tmp_path, pair())
    before = section(state)
    network = up(state, tmp_path, pair(end=timedelta(days=-1)))
    (finding,) = network.findings
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
    assert (row.name, row.state, row.ordinal, row.oldest_valid) == ("net", "ready", 1, 1)
    assert row.expires is not None
