"""Files that routers need beside their configuration: certificates, keys, passwords.

All lie flat in one directory, since a Secret volume has no folders. Names are made from the names of
the Secret or Connector they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..model import SecretView
from ..names import bounded
from .certificates import Examined, examine
from .instances import TlsProfile

_TLS_KEYS = ("ca.crt", "tls.crt", "tls.key")
_PROTOCOLS = {"TLSv1.2": "TLSv1.2 TLSv1.3", "TLSv1.3": "TLSv1.3"}


def _file_name(owner: str, key: str) -> str:
    """A Secret's keys have at most 253 characters, which is also what the name of `owner` may have."""
    return f"{owner if len(owner) <= 200 else bounded(owner, 200, owner)}-{key}"


class MaterialError(Exception):
    """A Secret does not exist or cannot be used. `reason` is the reason of the condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class UsedProfile:
    """A TLS profile to be used."""

    name: str
    complaint: MaterialError | None
    """Set when the Secret cannot be used, so the profile is what the routers have had before."""


def _examined(data: Mapping[str, bytes]) -> Examined:
    return examine(*(data.get(key) for key in _TLS_KEYS))


def _lacking(data: Mapping[str, bytes], needed: Sequence[str]) -> str | None:
    missing = next((key for key in needed if key not in data), None)
    return f' has no key "{missing}"' if missing is not None else None


def _wrong(problem: str | None) -> str | None:
    return f": {problem}" if problem is not None else None


class Material:
    """Collects the files of one Router.

    `delivered` are the files that its routers have now: key material that cannot be used does not
    replace what works. Without `now`, periods of validity do not matter.
    """

    def __init__(
        self, secrets: Mapping[str, SecretView], delivered: Mapping[str, bytes], now: datetime | None
    ) -> None:
        self._secrets = secrets
        self._delivered = delivered
        self._now = now
        self._tls: dict[str, Mapping[str, bytes]] = {}
        self._complaints: dict[str, MaterialError] = {}
        self._files: dict[str, bytes] = {}
        self._profiles: dict[str, tuple[str, str | None]] = {}
        """Name of a profile to its Secret and protocols."""

    def profile(self, secret: str, needed: Sequence[str], minimum_version: str | None) -> UsedProfile:
        """The TLS profile for `secret`, whose keys `needed` must exist. Raises MaterialError."""
        self._tls[secret] = self._usable(secret, needed)
        protocols = _PROTOCOLS[minimum_version] if minimum_version else None
        name = secret if protocols is None else f"{secret}-min-{minimum_version}"
        self._profiles[name] = (secret, protocols)
        return UsedProfile(name, self._complaints.get(secret))

    def has_certificate(self, secret: str) -> bool:
        """Whether the profile for the Secret has a certificate to present."""
        return "tls.crt" in self._tls.get(secret, {})

    def expiries(self) -> Mapping[str, datetime]:
        """Secret to the end of validity of its certificate, for certificates that are delivered."""
        found = {secret: _examined(data).not_after for secret, data in sorted(self._tls.items())}
        return {secret: moment for secret, moment in found.items() if moment is not None}

    def _usable(self, secret: str, needed: Sequence[str]) -> Mapping[str, bytes]:
        """The key material of `secret`, or, when that cannot be used, what was delivered before."""
        data = self._tls.get(secret)
        if data is None:
            view = self._secret(secret)
            data = {key: view.data[key] for key in _TLS_KEYS if view.data.get(key)}
            problem = _lacking(data, needed) or _wrong(_examined(data).problem_at(self._now))
        else:
            problem = _lacking(data, needed)
        if problem is not None:
            complaint = MaterialError("SecretInvalid", f'Secret "{secret}"{problem}')
            complaint = self._complaints.get(secret, complaint)
            data = self._earlier(secret)
            if _lacking(data, needed) or _examined(data).problem:
                raise complaint
            self._complaints[secret] = complaint
        return data

    def _earlier(self, secret: str) -> Mapping[str, bytes]:
        names = {key: _file_name(secret, key) for key in _TLS_KEYS}
        return {key: self._delivered[name] for key, name in names.items() if self._delivered.get(name)}

    def password(self, connector: str, secret: str, key: str) -> str:
        """Name of the file with a Connector's password. Raises MaterialError."""
        view = self._secret(secret)
        if key not in view.data:
            raise MaterialError("SecretInvalid", f'Secret "{secret}" has no key "{key}"')
        name = _file_name(connector, "password")
        self._files[name] = view.data[key]
        return name

    def users(self, secret: str) -> str:
        """Name of the file with the users of the Router's listeners. Raises MaterialError."""
        view = self._secret(secret)
        if not view.data.get("sasldb"):
            raise MaterialError("SecretInvalid", f'Secret "{secret}" has no key "sasldb"')
        name = _file_name(secret, "sasldb")
        self._files[name] = view.data["sasldb"]
        return name

    def profiles(self) -> tuple[TlsProfile, ...]:
        return tuple(
            TlsProfile(name, {key: _file_name(secret, key) for key in self._tls[secret]}, protocols)
            for name, (secret, protocols) in sorted(self._profiles.items())
        )

    def files(self) -> Mapping[str, bytes]:
        tls = {
            _file_name(secret, key): content
            for secret, data in self._tls.items()
            for key, content in data.items()
        }
        return dict(sorted({**self._files, **tls}.items()))

    def _secret(self, name: str) -> SecretView:
        view = self._secrets.get(name)
        if view is None:
            raise MaterialError("SecretNotFound", f'Secret "{name}" does not exist')
        return view
