"""The settings file: JSON, in which an unknown name is an error.

Each class here is an object of the file; `docs/flow-log.md` has a table of them, which a test keeps complete.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")
S3_SCHEMES = ("s3a://", "s3://")


class SettingsError(ValueError):
    """The file cannot be used; says which name is wrong, and what would be right."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Present: connect with TLS. A change of the files leads to another connection."""

    ca: str | None = None
    crl: str | None = None
    cert: str | None = None
    key: str | None = None
    verifyHostname: bool = True  # noqa: N815


@dataclass(frozen=True, slots=True)
class Sasl:
    """How to log in. Files are read again for each connection."""

    mechanisms: str | None = None
    user: str | None = None
    userFile: str | None = None  # noqa: N815
    passwordFile: str | None = None  # noqa: N815
    allowPlainWithoutTls: bool = False  # noqa: N815


@dataclass(frozen=True, slots=True)
class S3:
    """Of a log in a bucket. Keys come from files, or from where AWS clients look for them."""

    endpoint: str | None = None
    region: str | None = None
    accessKeyFile: str | None = None  # noqa: N815
    secretKeyFile: str | None = None  # noqa: N815


@dataclass(frozen=True, slots=True)
class Rotate:
    """When rows become Parquet files."""

    seconds: float = 300
    rows: int = 262_144


@dataclass(frozen=True, slots=True)
class Compaction:
    """Small files of an hour that is over become large ones."""

    enabled: bool = True
    targetBytes: int = 128 * 1024 * 1024  # noqa: N815
    afterSeconds: float = 900  # noqa: N815
    graceSeconds: float = 3600  # noqa: N815
    everySeconds: float = 60  # noqa: N815


@dataclass(frozen=True, slots=True)
class Settings:
    """All of a collector's settings."""

    hosts: tuple[str, ...]
    log: str
    name: str = "collector"
    port: int = 5672
    tls: Tls | None = None
    sasl: Sasl = field(default_factory=Sasl)
    s3: S3 = field(default_factory=S3)
    rotate: Rotate = field(default_factory=Rotate)
    compaction: Compaction = field(default_factory=Compaction)
    retentionDays: float | None = None  # noqa: N815
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    httpHost: str = "0.0.0.0"  # noqa: N815
    httpPort: int = 9090  # noqa: N815
    staging: str | None = None
    stagingBytes: int = 1024 * 1024 * 1024  # noqa: N815

    @property
    def in_bucket(self) -> bool:
        """Whether the log is in an object store."""
        return self.log.startswith(S3_SCHEMES)

    @property
    def staging_folder(self) -> Path:
        """Where the journal is."""
        return Path(self.staging) if self.staging else Path(self.log) / ".staging"

    @property
    def filtered(self) -> bool:
        """Whether some routers are left out."""
        return bool(self.include or self.exclude)

    def wants(self, router: str) -> bool:
        """Whether rows of the router of that id are kept."""
        included = not self.include or any(fnmatchcase(router, pattern) for pattern in self.include)
        return included and not any(fnmatchcase(router, pattern) for pattern in self.exclude)

    def endpoints(self) -> list[tuple[str, int]]:
        """Host and port of each router to try."""
        return [_endpoint(host, self.port) for host in self.hosts]


def load(path: Path) -> Settings:
    """Read a file. Raises SettingsError."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{path}: not JSON: {error}") from error
    try:
        return parse(document)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def parse(document: object) -> Settings:
    """The settings that a JSON document holds. Raises SettingsError."""
    settings: Settings = _object(Settings, document, "")
    if not settings.hosts:
        raise SettingsError("`hosts` is empty: name at least one router")
    for host in settings.hosts:
        _endpoint(host, settings.port)
    if "://" in settings.log and not settings.in_bucket:
        raise SettingsError(f"`log` is {settings.log!r}: a folder or s3a://bucket/prefix is needed")
    if settings.in_bucket and not settings.staging:
        raise SettingsError("`staging` is missing: with a log in a bucket it names a folder for the journal")
    if settings.tls is not None and (settings.tls.cert is None) != (settings.tls.key is None):
        raise SettingsError("`tls.cert` and `tls.key` go together")
    if settings.tls is not None and settings.tls.crl is not None and settings.tls.ca is None:
        raise SettingsError("`tls.crl` needs `tls.ca`")
    if (settings.s3.accessKeyFile is None) != (settings.s3.secretKeyFile is None):
        raise SettingsError("`s3.accessKeyFile` and `s3.secretKeyFile` go together")
    for name, value in (
        ("rotate.seconds", settings.rotate.seconds),
        ("rotate.rows", settings.rotate.rows),
        ("compaction.targetBytes", settings.compaction.targetBytes),
        ("compaction.everySeconds", settings.compaction.everySeconds),
        ("stagingBytes", settings.stagingBytes),
        ("retentionDays", 1 if settings.retentionDays is None else settings.retentionDays),
    ):
        if value <= 0:
            raise SettingsError(f"`{name}` is {value}: a number above 0 is needed")
    return settings


def _endpoint(text: str, port: int) -> tuple[str, int]:
    """`host`, `host:port`, an IPv6 address in brackets or alone."""
    host, colon, given = text.rpartition(":")
    if not colon or "]" in given or (":" in host and not host.startswith("[")):
        host, given = text, str(port)
    if not given.isdecimal() or not 0 < int(given) < 65536 or not host:
        raise SettingsError(f"`hosts` has {text!r}: HOST or HOST:PORT is needed")
    return host.strip("[]"), int(given)


def _object(kind: type[_T], document: object, where: str) -> _T:
    if not isinstance(document, dict):
        raise SettingsError(f"{f'`{where}`' if where else 'the whole'} is to be an object")
    fields = {item.name: item for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    values = {}
    for name, value in document.items():
        path = f"{where}.{name}" if where else name
        if name not in fields:
            raise SettingsError(f"`{path}` is unknown; there are {', '.join(fields)}")
        values[name] = _value(hints[name], value, path)
    for name, item in fields.items():
        required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise SettingsError(f"`{where}.{name}` is missing" if where else f"`{name}` is missing")
    return kind(**values)


def _value(kind: Any, value: object, path: str) -> object:
    optional = isinstance(kind, types.UnionType)
    if optional:
        if value is None:
            return None
        kind = next(item for item in typing.get_args(kind) if item is not types.NoneType)
    if dataclasses.is_dataclass(kind):
        return _object(typing.cast(type[object], kind), value, path)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise SettingsError(f"`{path}` is to be a list of strings")
        return tuple(value)
    right: Any = {float: (int, float), int: int, str: str, bool: bool}[kind]
    if not isinstance(value, right) or (isinstance(value, bool) and kind is not bool):
        names: Mapping[type, str] = {
            float: "a number",
            int: "a whole number",
            str: "a string",
            bool: "true or false",
        }
        raise SettingsError(f"`{path}` is {value!r}: {names[kind]} is needed")
    return value
