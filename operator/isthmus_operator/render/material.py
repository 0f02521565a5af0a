"""Files that routers need beside their configuration: certificates, keys, passwords.

All lie flat in one directory, since a Secret volume has no folders. Names are made from the names of
the Secret or Connector they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model import SecretView
from ..names import bounded
from .instances import TlsProfile

_TLS_KEYS = ("ca.crt", "tls.crt", "tls.key")
_PROTOCOLS = {"TLSv1.2": "TLSv1.2 TLSv1.3", "TLSv1.3": "TLSv1.3"}


def _file_name(owner: str, key: str) -> str:
    """A Secret's keys have at most 253 characters, which is also what the name of `owner` may have."""
    return f"{owner if len(owner) <= 200 else bounded(owner, 200, owner)}-{key}"


class MaterialMissingError(Exception):
    """A Secret, or a key in it, does not exist. `reason` is the reason of the condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Material:
    """Collects the files of one Router."""

    def __init__(self, secrets: Mapping[str, SecretView]) -> None:
        self._secrets = secrets
        self._files: dict[str, bytes] = {}
        self._profiles: dict[str, TlsProfile] = {}

    def profile(self, secret: str, needed: Sequence[str], minimum_version: str | None) -> str:
        """Name of the TLS profile for `secret`, whose keys `needed` must exist.

        Raises MaterialMissingError.
        """
        view = self._secret(secret)
        for key in needed:
            if not view.data.get(key):
                raise MaterialMissingError("SecretInvalid", f'Secret "{secret}" has no key "{key}"')
        protocols = _PROTOCOLS[minimum_version] if minimum_version else None
        name = secret if protocols is None else f"{secret}-min-{minimum_version}"
        files = {}
        for key in _TLS_KEYS:
            if view.data.get(key):
                files[key] = _file_name(secret, key)
                self._files[files[key]] = view.data[key]
        self._profiles[name] = TlsProfile(name, files, protocols)
        return name

    def has_certificate(self, secret: str) -> bool:
        """Whether the Secret holds a certificate to present."""
        return bool(self._secrets[secret].data.get("tls.crt"))

    def password(self, connector: str, secret: str, key: str) -> str:
        """Name of the file with a Connector's password. Raises MaterialMissingError."""
        view = self._secret(secret)
        if key not in view.data:
            raise MaterialMissingError("SecretInvalid", f'Secret "{secret}" has no key "{key}"')
        name = _file_name(connector, "password")
        self._files[name] = view.data[key]
        return name

    def users(self, secret: str) -> str:
        """Name of the file with the users of the Router's listeners. Raises MaterialMissingError."""
        view = self._secret(secret)
        if not view.data.get("sasldb"):
            raise MaterialMissingError("SecretInvalid", f'Secret "{secret}" has no key "sasldb"')
        name = _file_name(secret, "sasldb")
        self._files[name] = view.data["sasldb"]
        return name

    def profiles(self) -> tuple[TlsProfile, ...]:
        return tuple(self._profiles[name] for name in sorted(self._profiles))

    def files(self) -> Mapping[str, bytes]:
        return dict(sorted(self._files.items()))

    def _secret(self, name: str) -> SecretView:
        view = self._secrets.get(name)
        if view is None:
            raise MaterialMissingError("SecretNotFound", f'Secret "{name}" does not exist')
        return view
