"""Files that routers need beside their configuration: certificates, keys, passwords.

All lie flat in one directory, since a Secret volume has no folders. Names are made from the names of
the Secret or Connector they belong to; those of an SslProfile have its ordinal in them, so that no configuration can
ever be read together with certificates of another ordinal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

from isthmus_router import pem

from ..authority import is_own
from ..certificates import Examined, chained, examine, fingerprint_of, listed, merged, revocations_problem
from ..model import NamespaceModel
from ..names import bounded
from ..resources.tls import ConnectorTls, GossipTls, ListenerTls, PeerTls
from ..rotation.ledger import REVOCATIONS, TLS_KEYS, Past
from ..untrusted import FAILURES, document, mapping
from .instances import TlsProfile

_MAX_ELEMENTS = 1_000_000
"""Values in a configuration, which has less than 1 MiB."""
USERS_KEY = "sasldb"
LOGIN_KEYS = _USERNAME_KEY, _PASSWORD_KEY = "username", "password"
"""Of a Secret of type `kubernetes.io/basic-auth`."""
_LONGEST_USERNAME = 256
_DIALLED = "/dialled"
_PROTOCOLS = {"TLSv1.2": "TLSv1.2 TLSv1.3", "TLSv1.3": "TLSv1.3"}
_VARIANT = re.compile(r"(-min-TLSv1\.[23])?(/dialled)?$")
"""What the name of an `sslProfile` section has beyond whose it is. No resource's name has capitals."""
_GENERATION = re.compile(f"(.+)_[0-9]+-(?:{'|'.join(map(re.escape, TLS_KEYS))})")
"""Name of a file of an SslProfile; see `_generation_name`."""


AUTHORITY_UNUSABLE = "AuthorityUnusable"
"""Reason of the condition of what uses certificates that the namespace's own authority cannot renew."""


@dataclass(frozen=True)
class OwnTls:
    """A certificate of the namespace's own authority."""

    ssl_profile: str
    """Name of the implicit SslProfile."""
    secret_name: None = None


AnyTls = ListenerTls | ConnectorTls | PeerTls | GossipTls | OwnTls
User = tuple[Literal["listener", "connector", "relaySite"], str]
"""Kind of section and name of what uses a TLS profile; of a relaySite, which has several, that of the attribute."""


def certificates_digest(files: Mapping[str, bytes]) -> str:
    """What a process without profiles reports when it has loaded the certificates among `files`, which have the names
    of the keys of a Secret."""
    return pem.digest(files.get("ca.crt"), files.get("tls.crt"), files.get(REVOCATIONS))


def expired(profile: str, model: NamespaceModel) -> MaterialError | None:
    """That the certificates in service of an SslProfile have expired. They stay in service."""
    ledger = model.ledgers.get(profile)
    if ledger is None or model.now is None:
        return None
    problem = _examined(ledger.material).expired_at(model.now)
    if problem is None:
        return None
    if not is_own(profile):
        return MaterialError("SecretInvalid", f'SslProfile "{profile}": {problem}')
    return MaterialError(
        "SecretInvalid", f"the namespace's own authority has not renewed it in time: {problem}"
    )


def complaints(tls: AnyTls | None, model: NamespaceModel) -> list[MaterialError]:
    """What is wrong with the certificates that `tls` names, although they are in service."""
    found = expired(tls.ssl_profile, model) if tls is not None and tls.ssl_profile is not None else None
    problem = model.authority_problem if isinstance(tls, OwnTls) else ""
    unusable = [MaterialError(AUTHORITY_UNUSABLE, problem)] if problem else []
    return unusable + ([found] if found is not None else [])


def _file_name(owner: str, key: str) -> str:
    """A Secret's keys have at most 253 characters, which is also what the name of `owner` may have."""
    return f"{owner if len(owner) <= 200 else bounded(owner, 200, owner)}-{key}"


class MaterialError(Exception):
    """A Secret does not exist or cannot be used. `reason` is the reason of the condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def kept(self, what: str) -> str:
        """When there is `what` of before."""
        return f"{self}; the routers keep the earlier {what}"

    @classmethod
    def missing(cls, secret: str, model: NamespaceModel) -> MaterialError:
        """Why `model` does not have the content of `secret`."""
        return cls(*(model.unreadable(secret) or ("SecretNotFound", f'Secret "{secret}" does not exist')))

    @classmethod
    def invalid(cls, secret: str, problem: str) -> MaterialError:
        return cls("SecretInvalid", f'Secret "{secret}"{problem}')


@dataclass(frozen=True)
class Used:
    """A TLS profile or a file to be used."""

    name: str
    complaint: MaterialError | None
    """Set when the Secret cannot be used, so the content is what the routers have had before."""
    has_certificate: bool = False
    """Of a TLS profile: there is a certificate to present."""


@dataclass(frozen=True)
class Login:
    """A user name, and the file with its password."""

    user: str
    password: Used


@dataclass(frozen=True)
class _Ordinals:
    """Of an SslProfile."""

    newest: int
    """Of the files, and of what listeners accept."""
    dialled: int
    """Of the connections that routers make."""
    oldest_valid: int


@dataclass(frozen=True)
class _Files:
    """The key material of one `sslProfile` section, and where it comes from."""

    section: str
    owner: str
    """What the names of the files begin with."""
    data: Mapping[str, bytes]
    complaint: MaterialError | None = None
    resource: str | None = None
    ordinals: _Ordinals | None = None


def section_name(profile: str) -> str:
    """What the names of the `sslProfile` sections of an SslProfile begin with. No Secret has a name with a
    slash."""
    return f"sslprofile/{profile}"


def is_section_of(name: str, profile: str) -> bool:
    """Whether `name` is that of an `sslProfile` section of the SslProfile `profile`."""
    return _VARIANT.sub("", name) == section_name(profile)


def _pair(ordinals: _Ordinals | None, *, dialled: bool) -> tuple[int, int] | None:
    if ordinals is None:
        return None
    return ordinals.dialled if dialled else ordinals.newest, ordinals.oldest_valid


def _examined(data: Mapping[str, bytes]) -> Examined:
    return examine(*(data.get(key) for key in TLS_KEYS))


_ENCODED: Mapping[str, Callable[[bytes], bytes]] = {
    "ca.crt": merged,
    "tls.crt": chained,
    REVOCATIONS: listed,
}


def _encoded(data: Mapping[str, bytes]) -> dict[str, bytes]:
    """Key material that `examine` finds no problem with, without anything that only some parsers read."""
    return {key: _ENCODED.get(key, bytes)(content) for key, content in data.items()}


def _lacking(data: Mapping[str, bytes], needed: Sequence[str]) -> str | None:
    missing = next((key for key in needed if key not in data), None)
    if missing is None:
        return None
    more = f"; put {', '.join(needed)} into it" if len(needed) > 1 else "; put it there"
    return f' has no key "{missing}", which this use needs{more}'


def _unfit_login(data: Mapping[str, bytes]) -> str | None:
    """What is wrong with a user name and password."""
    for key in (_USERNAME_KEY, _PASSWORD_KEY):
        if not data.get(key):
            return f' has no key "{key}"; put it there'
        if not _text(data[key]):
            return f': key "{key}" must be one line of UTF-8 text'
    if len(_text(data[_USERNAME_KEY]) or "") > _LONGEST_USERNAME:
        return f': key "{_USERNAME_KEY}" has more than {_LONGEST_USERNAME} characters'
    return None


def _text(content: bytes) -> str | None:
    """The one line of text that `content` is; a new line at its end, as editors leave it, is no part of it."""
    try:
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        return None
    return None if {"\n", "\0"} & set(text) else text


def _wrong(problem: str | None) -> str | None:
    return f": {problem}" if problem is not None else None


class Material:
    """Collects the files of one Router.

    `delivered` are the files that its routers have now: what works is not replaced by what cannot be used,
    nor lost with its Secret. Without `now` in the model, periods of validity do not matter.
    """

    def __init__(self, model: NamespaceModel, delivered: Mapping[str, bytes]) -> None:
        self._model = model
        self._secrets = model.secrets
        self._delivered = delivered
        self._tls: dict[str, _Files] = {}
        """By `_Files.section`."""
        self._files: dict[str, bytes] = {}
        self._profiles: dict[str, tuple[str, str | None, bool]] = {}
        """Name of a section to that of its files, its protocols, and whether it is for connectors."""

    def profile(
        self,
        user: User,
        tls: AnyTls,
        needed: Sequence[str],
        minimum_version: str | None = None,
        *,
        dialled: bool,
    ) -> Used:
        """The TLS profile for the Secret or SslProfile of `tls`, whose keys `needed` must exist, for a
        connector (`dialled`) or a listener. When there is none, `user` goes on with the one that it has now.
        Raises MaterialError."""
        if tls.ssl_profile is not None:
            wanted = section_name(tls.ssl_profile)
        else:
            assert tls.secret_name is not None
            wanted = tls.secret_name
        try:
            files = self._of_section(wanted, needed)
            complaint = files.complaint
        except MaterialError as error:
            files, complaint = self._used_by(user, needed, error), error
        self._tls[files.section] = files
        protocols = _PROTOCOLS[minimum_version] if minimum_version else None
        name = files.section if protocols is None else f"{files.section}-min-{minimum_version}"
        if dialled and files.resource is not None:
            name += _DIALLED
        self._profiles[name] = (files.section, protocols, dialled)
        return Used(name, complaint, "tls.crt" in files.data)

    def expiries(self) -> Mapping[str, datetime]:
        """Secret to the end of validity of its certificate, for certificates that are delivered."""
        found = {
            secret: _examined(files.data).not_after
            for secret, files in sorted(self._tls.items())
            if files.resource is None
        }
        return {secret: moment for secret, moment in found.items() if moment is not None}

    def _of_section(self, section: str, needed: Sequence[str]) -> _Files:
        profile = section.removeprefix(section_name(""))
        if profile != section:
            return self._of_profile(profile, needed)
        return self._of_secret(section, needed)

    def _used_by(self, user: User, needed: Sequence[str], complaint: MaterialError) -> _Files:
        """What `user` has in its routers now. Raises `complaint` when that is nothing."""
        name, attribute = (None, user[1]) if user[0] == "relaySite" else (user[1], "sslProfile")
        section = next(
            (
                _VARIANT.sub("", str(attributes[attribute]))
                for kind, attributes in sections_of(self._delivered)
                if kind == user[0] and attributes.get("name") == name and attribute in attributes
            ),
            None,
        )
        if section is None:
            raise complaint
        try:
            return self._of_section(section, needed)
        except MaterialError:
            raise complaint from None

    def _of_secret(self, secret: str, needed: Sequence[str]) -> _Files:
        """The key material of `secret`, or, when that cannot be used, what was delivered before."""
        known, complaint = self._tls.get(secret), None
        data: dict[str, bytes]
        if known is not None:
            data, problem = dict(known.data), _lacking(known.data, needed)
        elif (view := self._secrets.get(secret)) is not None:
            data = {key: view.data[key] for key in TLS_KEYS if view.data.get(key)}
            problem = _lacking(data, needed) or _wrong(_examined(data).problem_at(self._model.now))
        else:
            data, problem, complaint = {}, None, MaterialError.missing(secret, self._model)
        if problem is not None:
            complaint = MaterialError.invalid(secret, problem)
        if complaint is not None:
            complaint = (known.complaint if known is not None else None) or complaint
            data = self._earlier(secret, TLS_KEYS)
            if _lacking(data, needed) or _examined(data).problem:
                raise complaint
        elif known is not None:
            complaint = known.complaint
        return _Files(secret, secret, _encoded(data), complaint)

    def _earlier(self, owner: str, keys: Iterable[str]) -> dict[str, bytes]:
        names = {key: _file_name(owner, key) for key in keys}
        return {key: self._delivered[name] for key, name in names.items() if self._delivered.get(name)}

    def _of_profile(self, name: str, needed: Sequence[str]) -> _Files:
        """The key material in service of the SslProfile `name`, or, when there is none, what was delivered
        before."""
        ledger, complaint = self._model.ledgers.get(name), None
        data: Mapping[str, bytes]
        if ledger is not None and name in self._model.profiles:
            lists = ledger.revocations
            data = {**ledger.material, **({REVOCATIONS: lists} if lists is not None else {})}
            ordinals = _Ordinals(ledger.ordinal, ledger.dialled, ledger.oldest_valid)
            complaint = expired(name, self._model)
        else:
            complaint = self._absence(name)
            delivered = delivered_ordinals(self._delivered, name)
            if delivered is None:
                raise complaint
            ordinals = _Ordinals(delivered[0], *delivered)
            data = self._earlier(_generation_name(name, ordinals.newest), (*TLS_KEYS, REVOCATIONS))
            lists = data.get(REVOCATIONS)
            if _examined(data).problem or (lists is not None and revocations_problem(lists)):
                raise complaint
        problem = _lacking(data, needed)
        if problem is not None:
            raise complaint or MaterialError.invalid(
                self._model.profiles[name].spec.secret_name, f'{problem} (SslProfile "{name}")'
            )
        owner = _generation_name(name, ordinals.newest)
        return _Files(section_name(name), owner, _encoded(data), complaint, resource=name, ordinals=ordinals)

    def _absence(self, profile: str) -> MaterialError:
        """Why there is no certificate of `profile`."""
        if is_own(profile):
            refused = self._model.refused_ledgers.get(profile)
            if (
                refused is not None
                and refused.reason == "ObjectConflict"
                and not self._model.authority_problem
            ):
                return MaterialError(refused.reason, refused.message)  # no certificate follows by itself
            why = self._model.authority_problem or (refused.message if refused is not None else "")
            text = "the namespace's own authority has not issued a certificate yet"
            return MaterialError("Pending", f"{text}: {why}" if why else text)
        if profile in self._model.profiles:
            return MaterialError("Pending", f'SslProfile "{profile}" has no certificates yet')
        close = self._model.hints.nearest(
            profile, (name for name in self._model.profiles if not is_own(name))
        )
        hint = f' (did you mean "{close}"?)' if close is not None else ""
        return MaterialError("Pending", f'SslProfile "{profile}" does not exist{hint}')

    def password(self, connector: str, secret: str, key: str) -> Used:
        """The file with a Connector's password. Raises MaterialError."""
        # Whose password it is belongs to the name: an earlier one of another Secret is none for this one.
        # No Connector or Secret has an underscore in its name.
        return self._file(_file_name(f"{connector}_{secret}_{key}", "password"), secret, key)

    def login(self, connector: str, secret: str) -> Login:
        """A Connector's user name and the file with its password, from a Secret with both: they go together, so what
        cannot be used of one leaves both as they were delivered. Raises MaterialError."""
        name = _file_name(f"{connector}_{secret}", _PASSWORD_KEY)
        view = self._secrets.get(secret)
        problem = _unfit_login(view.data) if view is not None else None
        if view is not None and problem is None:
            self._files[name] = view.data[_PASSWORD_KEY]
            return Login(_text(view.data[_USERNAME_KEY]) or "", Used(name, None))
        complaint = (
            MaterialError.invalid(secret, problem)
            if problem is not None
            else MaterialError.missing(secret, self._model)
        )
        user = next(
            (
                attributes.get("saslUsername")
                for kind, attributes in sections_of(self._delivered)
                if (kind, attributes.get("name")) == ("connector", connector)
                and str(attributes.get("saslPassword")).endswith(f"/{name}")
            ),
            None,
        )
        if user is None or name not in self._delivered:
            raise complaint
        self._files[name] = self._delivered[name]
        return Login(str(user), Used(name, complaint))

    def users(self, secret: str) -> Used:
        """The file with the users of the Router's listeners. Raises MaterialError."""
        return self._file(_file_name(secret, USERS_KEY), secret, USERS_KEY)

    def _file(self, name: str, secret: str, key: str) -> Used:
        view, complaint = self._secrets.get(secret), None
        content = view.data.get(key) if view is not None else None
        if not content:
            complaint = (
                MaterialError.missing(secret, self._model)
                if view is None
                else MaterialError.invalid(secret, f' has no key "{key}"; put it there')
            )
            content = self._delivered.get(name)
            if not content:
                raise complaint
        self._files[name] = content
        return Used(name, complaint)

    def profiles(self) -> tuple[TlsProfile, ...]:
        return tuple(
            TlsProfile(
                name,
                {key: _file_name(files.owner, key) for key in files.data},
                protocols,
                files.resource,
                _pair(files.ordinals, dialled=dialled),
                self._uid_format(files.resource) if files.resource is not None else None,
            )
            for name, (section, protocols, dialled) in sorted(self._profiles.items())
            for files in (self._tls[section],)
        )

    def _uid_format(self, profile: str) -> str | None:
        """As long as it is gone, an SslProfile's users keep their names: the policy is about those."""
        found = self._model.profiles.get(profile)
        if found is not None:
            return found.spec.uid_format
        delivered = (
            attributes.get("uidFormat")
            for kind, attributes in sections_of(self._delivered)
            if kind == "sslProfile" and is_section_of(str(attributes["name"]), profile)
        )
        return next(delivered, None)

    def files(self) -> Mapping[str, bytes]:
        tls = {
            _file_name(item.owner, key): content
            for item in self._tls.values()
            for key, content in item.data.items()
        }
        return dict(sorted({**self._files, **tls}.items()))


@dataclass(frozen=True)
class Delivered:
    """What Routers' files tell of SslProfiles, found in one pass over their names."""

    files: Mapping[str, Sequence[Mapping[str, bytes]]]
    """What the names of the files of an SslProfile begin with, to the Routers that have some."""

    @classmethod
    def of(cls, delivered: Iterable[Mapping[str, bytes]]) -> Delivered:
        """`delivered`: the files of each Router by their names."""
        found: dict[str, list[Mapping[str, bytes]]] = {}
        for files in delivered:
            matches = (_GENERATION.fullmatch(name) for name in files)
            for owner in {match[1] for match in matches if match is not None}:
                found.setdefault(owner, []).append(files)
        return cls(found)

    def past(self, profile: str) -> Past:
        """What they tell of an SslProfile that has no ledger."""
        found = Past()
        for files in self.files.get(_generation_name(profile, 0)[: -len("_0")], ()):
            ordinals = delivered_ordinals(files, profile)
            if ordinals is not None and ordinals[0] > found.ordinal:
                certificate = files.get(_file_name(_generation_name(profile, ordinals[0]), "tls.crt"))
                fingerprint = fingerprint_of(certificate) if certificate else ""
                found = Past(*ordinals, fingerprint)
        return found


def delivered_ordinals(files: Mapping[str, bytes], profile: str) -> tuple[int, int] | None:
    """Of the certificates of an SslProfile among a Router's files the ordinal, and the oldest valid one."""
    pattern = re.compile(f"{re.escape(_generation_name(profile, 0)[:-1])}([0-9]+)-(?:{'|'.join(TLS_KEYS)})")
    newest = max((int(found[1]) for name in files if (found := pattern.fullmatch(name))), default=None)
    if newest is None:
        return None
    oldest = [
        int(attributes["oldestValidOrdinal"])
        for kind, attributes in sections_of(files)
        if kind == "sslProfile" and is_section_of(str(attributes["name"]), profile)
    ]
    return newest, max(oldest, default=0)


def sections_of(files: Mapping[str, bytes]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Name and attributes of all sections of the configurations among a Router's files."""
    return _sections(tuple(content for name, content in sorted(files.items()) if name.endswith(".json")))


@lru_cache(maxsize=4)
def _sections(configurations: tuple[bytes, ...]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Each user of what cannot be used asks for those of its Router, one after the other."""
    return [section for content in configurations for section in _configuration(content)]


def _configuration(content: bytes) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """None of a file that cannot be read: somebody may have changed it in its Secret."""
    try:
        sections = document(content, elements=_MAX_ELEMENTS)
        return [(str(kind), mapping(attributes)) for kind, attributes in sections]
    except FAILURES:
        return []


def _generation_name(profile: str, ordinal: int) -> str:
    """No Secret has an underscore in its name."""
    return f"{profile if len(profile) <= 180 else bounded(profile, 180, profile)}_{ordinal}"
