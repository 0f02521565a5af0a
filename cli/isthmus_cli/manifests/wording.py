"""What is wrong with a value, in the words of a person who writes YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from isthmus_operator.resources.base import ANY_PEER_NAME, DNS_LABEL, DNS_SUBDOMAIN, PEER_NAME, SECRET_KEY
from isthmus_operator.resources.manifests import Problem
from isthmus_operator.resources.pods import QUANTITY
from isthmus_operator.resources.relaysite import ENDPOINT, MULTICAST, PLAIN_ADDRESS, SITE_NAME

_ABOUT_PATTERN = "String should match pattern "
_PATTERNS = {
    DNS_LABEL: "should be small letters, digits and dashes, beginning with a letter, not ending with a dash",
    DNS_SUBDOMAIN: "should be small letters, digits, dashes and dots, each part beginning and ending with "
    "a letter or digit",
    SECRET_KEY: "should be letters, digits, dashes, dots and underscores",
    QUANTITY: "should be a quantity such as 100m, 0.5 or 256Mi",
    SITE_NAME: "should be small letters, digits and dashes, beginning and ending with a letter or digit",
    ENDPOINT: "should be host or host:port, with a port of 1 to 65535; an IPv6 address stands in brackets",
    PEER_NAME: "should be a name as in certificates, which may begin with *.",
    ANY_PEER_NAME: "should be a name as in certificates, which may begin with *., or * for any",
    PLAIN_ADDRESS: "should be an address without wildcards and spaces that does not begin with $, _ or a separator, "
    "nor end with one",
    MULTICAST: "should be an IPv4 multicast address, 224.0.0.0 to 239.255.255.255",
}
_OTHER_PATTERN = "has a character that is not allowed here, or begins or ends with one that is not"
_ABOUT_VALUE = ("Input should be ", "String should ", "should be ", "has a character ")
_COUNTED = re.compile(r"( items?) after validation, not (\d+)")
_MISSING = object()


def in_words(problem: Problem, document: Any) -> str:
    """The problem's message, with the value it is about where that helps."""
    message = problem.message
    if message.startswith(_ABOUT_PATTERN):
        message = _PATTERNS.get(message.removeprefix(_ABOUT_PATTERN)[1:-1], _OTHER_PATTERN)
    elif message.startswith("Input should be a valid dictionary"):
        message = "Input should be a map"
    message = _COUNTED.sub(r"\1, not \2", message)
    value = _at(document, problem.path)
    if value is _MISSING or repr(value) in message or not message.startswith(_ABOUT_VALUE):
        return message
    return f"{message} (it is {_shown(value)})"


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _at(value: Any, path: Iterable[str | int]) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return _MISSING
    return value
