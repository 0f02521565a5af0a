"""Rotation with `isthmus local`: the command and real routers."""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.support.certificates import Authority
from tests.integration.support.isthmus import EAST, LINK, WEST, Isthmus, secret_with

PROFILE = """
apiVersion: isthmus.dev/v1alpha1
kind: SslProfile
metadata: {name: network}
spec: {secretName: identity}
"""
LISTENER = (
    "listeners: [{name: links, port: 55671, role: inter-router, "
    "tls: {sslProfile: network, requireClientCertificate: true}}]"
)
ROUTERS = (f"{EAST}  replicas: 2\n  {LISTENER}\n", f"{WEST}  {LISTENER}\n")
TLS_LINK = LINK + "  tls: {sslProfile: network}\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "network")


def connections(isthmus: Isthmus) -> dict[str, Any]:
    """Router to the connections it has."""
    return {name: isthmus.connections(name) for name in ("east-0", "east-1", "west-0")}


def statuses(isthmus: Isthmus) -> dict[str, Any]:
    """The SslProfile as `isthmus local status` shows it."""
    (row,) = isthmus.status()["profiles"]
    return dict(row)


def used(isthmus: Isthmus) -> set[int]:
    """Ordinals that have connections."""
    return {item["ordinal"] for item in statuses(isthmus)["connections"] if item["connections"]}


def test_up_waits_for_the_rotation_and_tells_it(isthmus: Isthmus, authority: Authority) -> None:
    first, second = authority.issue("first"), authority.issue("second")
    isthmus.up(secret_with(first), PROFILE, *ROUTERS, TLS_LINK)
    output = isthmus.up(secret_with(second), PROFILE, *ROUTERS, TLS_LINK)
    assert re.search(
        r"^rotated: SslProfile network to ordinal 2, in use everywhere after \d+\.\d s$", output, re.MULTILINE
    )
    assert {row["tlsOrdinal"] for row in isthmus.status()["links"]} == {2}
    row = statuses(isthmus)
    assert (row["ordinal"], row["oldestValid"]) == (2, 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["expires"])
    assert 2 in used(isthmus)
    assert "rotated" not in isthmus.up(secret_with(second), PROFILE, *ROUTERS, TLS_LINK)


def test_a_rotation_that_is_stuck_is_told(isthmus: Isthmus, tmp_path: Path) -> None:
    """The peer that is connected to does not know the new authority: here another network with a Secret of its
    own."""
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    listener = LISTENER.replace("sslProfile: network", "secretName: identity")
    listener = listener.replace("}}]", "}, peerNames: [first, second]}]")
    peers = tmp_path / "peers.yaml"
    peers.write_text("---".join((secret_with(ours.issue("peer")), f"{WEST}  {listener}\n")))
    assert isthmus("local", "up", "-N", "peers", str(peers)).returncode == 0
    network = json.loads((isthmus.folder.parent / "peers" / "network.json").read_text())
    host = f"{{host: localhost, port: {network['ports']['west-0/links']}}}"
    link = TLS_LINK.replace("{routerRef: {name: west}}", host)
    isthmus.up(secret_with(ours.issue("first")), PROFILE, EAST, link)
    before = isthmus.connections("east-0")
    stranger = other.issue("second")
    both = tmp_path / "both.pem"
    both.write_text(stranger.trusted.read_text() + ours.file.read_text())
    done = isthmus.try_up(secret_with(replace(stranger, trusted=both)), PROFILE, EAST, link)
    assert done.returncode == 1
    told = " ".join((done.stdout + done.stderr).split())
    assert "the network did not settle" in told
    assert "SslProfile network: ordinal 2 since" in told
    assert '1 not on it yet: east-0: connector "east-west" uses ordinal 1: ' in told
    assert "rotated:" not in told
    assert before <= isthmus.connections("east-0"), "the old connection goes on"
    row = statuses(isthmus)
    assert (row["state"], row["ordinal"]) == ("rotating", 2)
    assert 1 in used(isthmus)


def test_connectors_wait_for_all_listeners(isthmus: Isthmus, authority: Authority) -> None:
    isthmus.up(secret_with(authority.issue("first")), PROFILE, *ROUTERS, TLS_LINK)

    def ordinals(router: str) -> dict[bool, int]:
        """Of the sections that a router has taken over, by whether they are for connectors."""
        sections = isthmus.document(router)["sslProfiles"]
        return {item["name"].endswith("/dialled"): item["ordinal"] for item in sections}

    west = isthmus.pid("west-0")
    os.kill(west, signal.SIGSTOP)
    try:
        isthmus.write(secret_with(authority.issue("second")), PROFILE, *ROUTERS, TLS_LINK)
        done = isthmus("local", "up", "--timeout", "0", str(isthmus.file))
        assert done.returncode == 0
        assert "rotating: SslProfile network to ordinal 2\n" in done.stdout
        isthmus.eventually("listeners are first", lambda: ordinals("east-1")[False] == 2)
        assert ordinals("east-1") == {False: 2, True: 1}
    finally:
        os.kill(west, signal.SIGCONT)
    isthmus.eventually("connectors follow", lambda: ordinals("east-1") == {False: 2, True: 2})
    isthmus.eventually("settled", lambda: statuses(isthmus)["state"] != "rotating")


def test_a_rotation_goes_on_after_the_supervisor_was_killed(isthmus: Isthmus, authority: Authority) -> None:
    isthmus.up(secret_with(authority.issue("first")), PROFILE, *ROUTERS, TLS_LINK)
    isthmus.write(secret_with(authority.issue("second")), PROFILE, *ROUTERS, TLS_LINK)
    supervisor = isthmus.processes()["supervisor"]["pid"]
    west = isthmus.pid("west-0")
    os.kill(west, signal.SIGSTOP)
    try:
        assert isthmus("local", "up", "--timeout", "0", str(isthmus.file)).returncode == 0
    finally:
        os.kill(supervisor, signal.SIGKILL)
        os.kill(west, signal.SIGCONT)
    done = isthmus("local", "rotate")
    assert done.returncode == 1
    assert "run `isthmus local up` again first" in done.stderr
    done = isthmus("local", "up", str(isthmus.file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rotated: SslProfile network to ordinal 2, in use everywhere after " in done.stdout
    assert {row["tlsOrdinal"] for row in isthmus.status()["links"]} == {2}


def test_old_ordinals_are_retired_without_another_up(isthmus: Isthmus, authority: Authority) -> None:
    profile = PROFILE.replace("}\nspec: {", "}\nspec: {retention: {oldOrdinals: 0, delaySeconds: 1}, ")
    for name in ("first", "second"):
        isthmus.up(secret_with(authority.issue(name)), profile, *ROUTERS, TLS_LINK)
    isthmus.eventually("retired", lambda: statuses(isthmus)["oldestValid"] == 2)
    isthmus.eventually("the old connections are closed", lambda: used(isthmus) == {2})


def test_rotate(isthmus: Isthmus, authority: Authority) -> None:
    secret = secret_with(authority.issue("first"))
    isthmus.up(secret, PROFILE, *ROUTERS, TLS_LINK)
    done = isthmus("local", "rotate")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["asked for a rotation of SslProfile network", "the ordinal is 2"]
    assert re.fullmatch(r"done after \d+\.\d s: ordinal 2 is in use everywhere", lines[-1])
    assert {row["tlsOrdinal"] for row in isthmus.status()["links"]} == {2}
    revoked = isthmus("local", "rotate", "network", "--revoke")
    assert revoked.returncode == 0, revoked.stdout + revoked.stderr
    assert (statuses(isthmus)["ordinal"], statuses(isthmus)["oldestValid"]) == (3, 3)
    assert used(isthmus) == {3}
    assert "nothing changed" in isthmus.up(secret, PROFILE, *ROUTERS, TLS_LINK)
    mistaken = isthmus("local", "rotate", "netwrok")
    assert mistaken.returncode == 1
    assert (
        "network 'default' has no SslProfile 'netwrok' with certificates; did you mean network?"
        in mistaken.stderr
    )
    isthmus.try_up(PROFILE, *ROUTERS, TLS_LINK)
    refused = isthmus("local", "rotate", "network")
    assert refused.returncode == 1
    assert (
        'not rotated: SslProfile network: SecretNotFound: Secret "identity" does not exist' in refused.stderr
    )
    assert statuses(isthmus)["ordinal"] == 3


def test_what_was_probably_not_meant_is_told(isthmus: Isthmus, authority: Authority) -> None:
    """A number that there is no ordinal for, and a certificate for another host."""
    profile = PROFILE.replace("}\nspec: {", "}\nspec: {oldestValidOrdinal: 9, ")
    isthmus.up(secret_with(authority.issue("first")), PROFILE, *ROUTERS, TLS_LINK)
    isthmus.up(secret_with(authority.issue("first")), profile, *ROUTERS, TLS_LINK)
    assert (
        "spec.oldestValidOrdinal is 9, but the newest ordinal is 2: it counts as 2"
        in statuses(isthmus)["message"]
    )
    assert used(isthmus) == {2}
    stranger = authority.issue("stranger", "elsewhere.example")
    done = isthmus.try_up(secret_with(stranger), PROFILE, *ROUTERS, TLS_LINK)
    assert done.returncode == 1
    message = statuses(isthmus)["message"]
    assert 'connector "east-west" uses ordinal 2' in message
    assert "tls.crt does not name localhost, which connectors expect" in message


def test_a_wrong_name_of_a_profile_cuts_no_link(isthmus: Isthmus, authority: Authority) -> None:
    secret = secret_with(authority.issue("first"))
    isthmus.up(secret, PROFILE, *ROUTERS, TLS_LINK)
    before = connections(isthmus)
    mistaken = [text.replace("sslProfile: network", "sslProfile: netwrok") for text in (*ROUTERS, TLS_LINK)]
    for documents, text in (
        ((secret, PROFILE, *mistaken), 'SslProfile "netwrok" does not exist (did you mean "network"?)'),
        ((secret, *ROUTERS, TLS_LINK), 'SslProfile "network" does not exist'),
        (
            (PROFILE, *ROUTERS, TLS_LINK),
            'SslProfile network: SecretNotFound: Secret "identity" does not exist',
        ),
    ):
        done = isthmus.try_up(*documents)
        assert done.returncode == 1
        told = " ".join(done.stdout.split())
        assert text in told
        assert "keep the earlier certificates" in told or "ordinal 1 stays in service" in told
        assert connections(isthmus) == before
    isthmus.up(secret, PROFILE, *ROUTERS, TLS_LINK)
    assert connections(isthmus) == before
