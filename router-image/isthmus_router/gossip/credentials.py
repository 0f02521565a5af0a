"""Certificate files of the gossip router: loaded when their contents change, as whole sets only."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import NamedTuple


class CredentialsError(Exception):
    """The files cannot be used; the text says which."""


class TlsFiles(NamedTuple):
    """Paths of PEM files."""

    certificate: str
    key: str
    authority: str | None
    """Clients have to show a certificate that it has signed; None: they need not show any."""


class Credentials:
    """The files, and the contents they were last loaded with."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._loaded: bytes | None = None

    def load(self) -> ssl.SSLContext | None:
        """A context for new connections if the contents have changed since the last call, else None.

        Blocks. Raises CredentialsError, once for the same contents.
        """
        contents = self._digest()
        if contents == self._loaded:
            return None
        context = self._context(contents)
        if self._digest() != contents:
            return None  # in the middle of a replacement; the next call sees all of it
        self._loaded = contents
        return context

    def _context(self, contents: bytes) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        files = self._files
        path = files.certificate
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(files.certificate, files.key, lambda: "")
            if files.authority is not None:
                path = files.authority
                context.load_verify_locations(files.authority)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as error:
            self._loaded = contents
            raise CredentialsError(f"{path}: {error}") from error
        return context

    def _digest(self) -> bytes:
        found = hashlib.sha256()
        for path in filter(None, self._files):
            try:
                contents = Path(path).read_bytes()
            except OSError:
                contents = b""
            found.update(len(contents).to_bytes(8, "big") + contents)
        return found.digest()
