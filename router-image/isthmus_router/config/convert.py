"""From a value as written to its typed form, by the kind of its attribute."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from isthmus_router.config.attributes import Attribute, Kind
from isthmus_router.config.model import UserGroupConfig
from isthmus_router.config.reading import camel_case
from isthmus_router.config.relay_model import Endpoint
from isthmus_router.config.sources import Sources, resolve
from isthmus_router.config.tables.policy import VHOST_GROUP

SERVICES: Mapping[str, int] = {"amqp": 5672, "amqps": 5671, "http": 80, "https": 443}

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_ENDPOINT = re.compile(
    r"(?:\[(?P<v6>[0-9a-fA-F:.]+(?:%\w+)?)\]|(?P<host>[A-Za-z0-9_](?:[-A-Za-z0-9_.]*[A-Za-z0-9_.])?))"
    r"(?::(?P<port>[0-9]{1,5}))?|(?P<bare>[0-9a-fA-F]*:[0-9a-fA-F.]*:[0-9a-fA-F:.]*(?:%\w+)?)"
)
"""IPv6 addresses need brackets only beside a port."""


def convert(attribute: Attribute, value: object, sources: Sources | None) -> object:
    """The typed form of `value`; ValueError says what is wrong and what would be right.

    None and, unless the attribute's default is a string, the empty string mean that the attribute is
    absent.
    """
    if value is None or (value == "" and attribute.default is None):
        return attribute.default
    converted = _CONVERTERS[attribute.kind](attribute, value, sources)
    if converted == attribute.absent:
        converted = None
    if attribute.unsupported and converted != attribute.default:
        raise ValueError(f"{shown(attribute, value)} is not supported: {attribute.unsupported}")
    return converted


def shown(attribute: Attribute, value: object) -> str:
    """The value as error messages show it: secrets never."""
    if attribute.kind is Kind.SECRET:
        return "the value"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _string(attribute: Attribute, value: object, sources: Sources | None) -> str:
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError(f"{shown(attribute, value)} contains a NUL character")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"{shown(attribute, value)} contains half of a character (a lone surrogate)")
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"{shown(attribute, value)} is not a string")


def _secret(attribute: Attribute, value: object, sources: Sources | None) -> str:
    return resolve(_string(attribute, value, sources), sources)


def _integer(attribute: Attribute, value: object, sources: Sources | None) -> int:
    number = int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else value
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"{shown(attribute, value)} is not an integer")
    low, high = attribute.minimum, attribute.maximum
    if (low is not None and number < low) or (high is not None and number > high):
        if high is None:
            raise ValueError(f"{shown(attribute, value)} is out of range: at least {low}")
        raise ValueError(f"{shown(attribute, value)} is out of range: {low} to {high}")
    return number


def _boolean(attribute: Attribute, value: object, sources: Sources | None) -> bool:
    text = str(value).lower() if isinstance(value, str | int) else ""
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError(f"{shown(attribute, value)} is not a boolean: true or false, yes or no, on or off")


def _port(attribute: Attribute, value: object, sources: Sources | None) -> int:
    if isinstance(value, str) and value in SERVICES:
        return SERVICES[value]
    number = int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else value
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= 65535:
        return number
    raise ValueError(f"{shown(attribute, value)} is not a port: 0 to 65535, or one of {', '.join(SERVICES)}")


def _enum(attribute: Attribute, value: object, sources: Sources | None) -> object:
    choices = attribute.choices
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 6:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(choices):
        return attribute.result(choices[value])
    if isinstance(value, str):
        lowered = value.lower()
        for choice in choices:
            if choice.lower() == lowered:
                return attribute.result(choice)
    raise ValueError(f"{shown(attribute, value)} is not one of {', '.join(choices)}")


def _words(attribute: Attribute, value: object, sources: Sources | None) -> tuple[object, ...] | None:
    words = value.split() if isinstance(value, str) else value
    if isinstance(words, list | tuple) and all(isinstance(word, str) for word in words):
        return tuple(map(attribute.result, words)) or None
    raise ValueError(f"{shown(attribute, value)} is not a list of words separated by spaces")


def _list(attribute: Attribute, value: object, sources: Sources | None) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if isinstance(items, list | tuple) and all(isinstance(item, str) for item in items):
        return tuple(stripped for item in items if (stripped := item.strip()))
    raise ValueError(
        f"{shown(attribute, value)} is not a list: items separated by commas, or a JSON list of strings"
    )


def _endpoints(attribute: Attribute, value: object, sources: Sources | None) -> tuple[Endpoint, ...]:
    if isinstance(value, tuple):
        return value
    return tuple(_endpoint(item) for item in _list(attribute, value, sources))


def _endpoint(text: str) -> Endpoint:
    found = _ENDPOINT.fullmatch(text)
    port = int(found["port"]) if found and found["port"] else None
    if found is None or port == 0 or (port or 0) > 65535:
        raise ValueError(f"{text[:80]!r} is not host or host:port, with a port from 1 to 65535")
    return Endpoint(found["v6"] or found["bare"] or found["host"], port)


def _from_json(value: object) -> object:
    """What `value` is as JSON text, the form in which management tools send maps; else `value`."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _groups(attribute: Attribute, value: object, sources: Sources | None) -> dict[str, UserGroupConfig]:
    value = _from_json(value)
    if not isinstance(value, dict):
        raise ValueError(f"{shown(attribute, value)} is not a map of user groups")
    problems: list[str] = []
    groups = {str(name): _group(str(name), settings, problems) for name, settings in value.items()}
    if problems:
        raise ValueError("; ".join(problems))
    return groups


def _group(name: str, settings: object, problems: list[str]) -> UserGroupConfig:
    """One user group; attributes with a problem have their default."""
    values = {attribute.field: attribute.default for attribute in VHOST_GROUP.attributes}
    if isinstance(settings, UserGroupConfig):
        return settings
    if not isinstance(settings, dict):
        problems.append(f"group {name!r} is not a map of attributes")
        settings = {}
    for given, value in settings.items():
        attribute = VHOST_GROUP.attribute(camel_case(str(given)))
        if attribute is None:
            known = ", ".join(sorted(a.name for a in VHOST_GROUP.attributes))
            problems.append(f"group {name!r} has an unknown attribute {given!r}; attributes are {known}")
            continue
        try:
            values[attribute.field] = convert(attribute, value, None)
        except ValueError as error:
            problems.append(f"group {name!r}, attribute {attribute.name}: {error}")
    return UserGroupConfig(**values)  # type: ignore[arg-type]


def _map(attribute: Attribute, value: object, sources: Sources | None) -> dict[str, object]:
    value = _from_json(value)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return value
    raise ValueError(f"{shown(attribute, value)} is not a JSON object")


_CONVERTERS: Mapping[Kind, Callable[[Attribute, object, Sources | None], object]] = {
    Kind.STRING: _string,
    Kind.INTEGER: _integer,
    Kind.BOOLEAN: _boolean,
    Kind.PORT: _port,
    Kind.ENUM: _enum,
    Kind.PATH: _string,
    Kind.SECRET: _secret,
    Kind.WORDS: _words,
    Kind.LIST: _list,
    Kind.ENDPOINTS: _endpoints,
    Kind.MAP: _map,
    Kind.GROUPS: _groups,
}
