"""Rotation with `isthmus local`: the command and real routers."""

from __future__ import annotations

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
