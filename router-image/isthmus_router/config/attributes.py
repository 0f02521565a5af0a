"""What the schema is made of: sections and their attributes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache


class Kind(Enum):
    """How the text of a value is read, and its name in `GET-SCHEMA`."""

    STRING = "string"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    PORT = "port"
    """A port number or service name; read as an integer."""
    ENUM = "enum"
    PATH = "path"
    SECRET = "secret"
    """A string that may be given indirectly; see `sources.py`."""
    WORDS = "words"
    """Words separated by spaces; read as a tuple."""
    LIST = "list"
    """Items separated by commas, or a JSON list of strings; read as a tuple."""
    ENDPOINTS = "list of host:port"
    """Items separated by commas, or a JSON list of strings; read as a tuple of `Endpoint`."""
    MAP = "map"
    """A JSON object."""
    GROUPS = "map of user groups"
    """A JSON object of user groups by name; read as their typed form."""


class Update(Enum):
    """What a changed value needs to take effect."""

    LIVE = "live"
    """Applied to what runs."""
    REPLACE = "replace"
    """The entity is removed and created anew; connections through it are closed."""
    RESTART = "restart"
    """Refused while running; the router must be restarted."""


@cache
def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z]+)", r"_\1", name).lower()


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a section."""

    name: str
    kind: Kind
    description: str
    default: object = None
    """Value when absent, in its typed form."""
    absent: object = None
    """A typed value that means the same as leaving the attribute out."""
    required: bool = False
    choices: tuple[str, ...] = ()
    """Allowed values of an enumeration; also accepted by index."""
    result: Callable[[str], object] = str
    """Makes the typed form of one of `choices`, or of one of several words."""
    minimum: int | None = None
    maximum: int | None = None
    update: Update = Update.REPLACE
    aliases: tuple[str, ...] = ()
    """Deprecated names still accepted."""
    file_alias: str | None = None
    """Another name of a secret, whose value is the path of the file that the secret is in."""
    inert: str | None = None
    """Why the attribute is accepted and has no effect."""
    unsupported: str | None = None
    """Why any value but the default is refused."""
    keeps_hash: bool = False
    """In `.conf` text, `#` belongs to the value instead of starting a comment."""
    contents: bool = False
    """A path whose file's contents are part of the configuration."""

    @property
    def field(self) -> str:
        """The name in snake_case, as the dataclasses of `model.py` have it."""
        return _snake_case(self.name)


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of entity."""

    name: str
    """Name in a configuration file."""
    description: str
    attributes: tuple[Attribute, ...]
    singleton: bool = False
    entity_type: str = ""
    """Short management type where it differs from the name."""
    inert: str | None = None
    """Why such a section is accepted and does nothing; None when it does what it says."""

    @property
    def short_type(self) -> str:
        """Management type without its prefix, e.g. `router.config.address`."""
        return self.entity_type or self.name

    def attribute(self, name: str) -> Attribute | None:
        """The attribute with that name or alias."""
        return next((a for a in self.attributes if name in (a.name, a.file_alias, *a.aliases)), None)
