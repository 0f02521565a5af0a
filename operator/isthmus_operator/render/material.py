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
_USERS_KEY = "sasldb"
_PROTOCOLS = {"TLSv1.2": "TLSv1.2 TLSv1.3", "TLSv1.3": "TLSv1.3"}


def _file_name(owner: str, key: str) -> str:
    """A Secret's keys have at most 253 characters, which is also what the name of `owner` may have."""
    return f"{owner if len(owner) <= 200 else bounded(owner, 200, owner)}-{key}"


class MaterialError(Exception):
    """A Secret does not exist or cannot be used. `reason` is the reason of the condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    @classmethod
    def missing(cls, secret: str) -> MaterialError:
        return cls("SecretNotFound", f'Secret "{secret}" does not exist')

    @classmethod
    def invalid(cls, secret: str, problem: str) -> MaterialError:
        return cls("SecretInvalid", f'Secret "{secret}"{problem}')


@dataclass(frozen=True)
class Used:
    """A TLS profile or a file to be used."""

    name: str
    complaint: MaterialError | None
    """Set when the Secret cannot be used, so the content is what the routers have had before."""


def _examined(data: Mapping[str, bytes]) -> Examined:
    return examine(*(data.get(key) for key in _TLS_KEYS))


def _lacking(data: Mapping[str, bytes], needed: Sequence[str]) -> str | None:
    missing = next((key for key in needed if key not in data), None)
    return f' has no key "{missing}"' if missing is not None else None


def _wrong(problem: str | None) -> str | None:
    return f": {problem}" if problem is not None else None


class Material:
    """Collects the files of one Router.

    `delivered` are the files that its routers have now: what works is not replaced by what cannot be used,
    nor lost with its Secret. Without `now`, periods of validity do not matter.
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

    def profile(self, secret: str, needed: Sequence[str], minimum_version: str | None) -> Used:
        """The TLS profile for `secret`, whose keys `needed` must exist. Raises MaterialError."""
        self._tls[secret] = self._usable(secret, needed)
        protocols = _PROTOCOLS[minimum_version] if minimum_version else None
        name = secret if protocols is None else f"{secret}-min-{minimum_version}"
        self._profiles[name] = (secret, protocols)
        return Used(name, self._complaints.get(secret))

    def has_certificate(self, secret: str) -> bool:
        """Whether the profile for the Secret has a certificate to present."""
        return "tls.crt" in self._tls.get(secret, {})

    def expiries(self) -> Mapping[str, datetime]:
        """Secret to the end of validity of its certificate, for certificates that are delivered."""
        found = {secret: _examined(data).not_after for secret, data in sorted(self._tls.items())}
        return {secret: moment for secret, moment in found.items() if moment is not None}

    def _usable(self, secret: str, needed: Sequence[str]) -> Mapping[str, bytes]:
        """The key material of `secret`, or, when that cannot be used, what was delivered before."""
        data, complaint = self._tls.get(secret), None
        if data is not None:
            problem = _lacking(data, needed)
        elif (view := self._secrets.get(secret)) is not None:
            data = {key: view.data[key] for key in _TLS_KEYS if view.data.get(key)}
            problem = _lacking(data, needed) or _wrong(_examined(data).problem_at(self._now))
        else:
            data, problem, complaint = {}, None, MaterialError.missing(secret)
        if problem is not None:
            complaint = MaterialError.invalid(secret, problem)
        if complaint is not None:
            complaint = self._complaints.get(secret, complaint)
            data = self._earlier(secret)
            if _lacking(data, needed) or _examined(data).problem:
                raise complaint
            self._complaints[secret] = complaint
        return data

    def _earlier(self, secret: str) -> Mapping[str, bytes]:
        names = {key: _file_name(secret, key) for key in _TLS_KEYS}
        return {key: self._delivered[name] for key, name in names.items() if self._delivered.get(name)}

    def password(self, connector: str, secret: str, key: str) -> Used:
        """The file with a Connector's password. Raises MaterialError."""
        # Whose password it is belongs to the name: an earlier one of another Secret is none for this one.
        # No Connector or Secret has an underscore in its name.
        return self._file(_file_name(f"{connector}_{secret}_{key}", "password"), secret, key)

    def users(self, secret: str) -> Used:
        """The file with the users of the Router's listeners. Raises MaterialError."""
        return self._file(_file_name(secret, _USERS_KEY), secret, _USERS_KEY)

    def _file(self, name: str, secret: str, key: str) -> Used:
        view, complaint = self._secrets.get(secret), None
        content = view.data.get(key) if view is not None else None
        if not content:
            complaint = (
                MaterialError.missing(secret)
                if view is None
                else MaterialError.invalid(secret, f' has no key "{key}"')
            )
            content = self._delivered.get(name)
            if not content:
                raise complaint
        self._files[name] = content
        return Used(name, complaint)

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
