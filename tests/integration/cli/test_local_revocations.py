"""Certificate revocation lists of an SslProfile with `isthmus local`: the lists of the Secret reach real routers."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from tests.integration.support.certificates import Authority, Identity
from tests.integration.support.client import Clients
from tests.integration.support.isthmus import Isthmus, secret_with
from tests.integration.support.routers import eventually

PROFILE = """
apiVersion: isthmus.dev/v1alpha1
kind: SslProfile
metadata: {name: network}
spec: {secretName: identity, crlKey: ca.crl}
"""
ROUTER = """
apiVersion: isthmus.dev/v1alpha1
kind: Router
metadata: {name: east}
spec:
  mode: interior
  listeners: [{name: amqps, port: 5671, tls: {sslProfile: network, requireClientCertificate: true}}]
"""


def with_lists(identity: Identity, lists: Path) -> str:
    """The Secret with the certificate of the Router, and revocation lists beside it."""
    indented = "".join(f"    {line}\n" for line in lists.read_text().splitlines())
    return f"{secret_with(identity).rstrip()}\n  ca.crl: |\n{indented}"


def test_a_list_that_revokes_a_client_takes_effect(
    isthmus: Isthmus, clients: Clients, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, "network")
    server, alice, mallory = (authority.issue(name) for name in ("server", "alice", "mallory"))
    isthmus.up(with_lists(server, authority.revoke()), PROFILE, ROUTER)
    port = urlsplit(isthmus.router("east-0")["endpoints"][0]).port
    assert port is not None
    pid = isthmus.pid("east-0")
    assert clients.admitted(port, alice.client_domain())
    assert clients.admitted(port, mallory.client_domain())
    isthmus.up(with_lists(server, authority.revoke(mallory)), PROFILE, ROUTER)
    eventually(
        lambda: not clients.admitted(port, mallory.client_domain()), "the revoked client is refused", 60
    )
    assert clients.admitted(port, alice.client_domain())
    assert isthmus.pid("east-0") == pid
