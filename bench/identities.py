"""Certificates of the routers of a benchmark, made for one run."""

from __future__ import annotations

from pathlib import Path

import trustme
from routers import HOST_NAME, Credentials


class Identities:
    """New certificates of routers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA(organization_name="bench")
        self._authority_file = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self._authority_file))

    def issue(self, router_id: str, ordinal: int) -> Credentials:
        """The certificate of that ordinal; connections of all but the one before are no longer valid."""
        leaf = self._authority.issue_cert(HOST_NAME, common_name=router_id)
        certificate, key = (self._folder / f"{router_id}-{ordinal}.{kind}" for kind in ("pem", "key"))
        leaf.cert_chain_pems[0].write_to_path(str(certificate))
        leaf.private_key_pem.write_to_path(str(key))
        return Credentials(certificate, key, self._authority_file, ordinal, max(1, ordinal - 1))
