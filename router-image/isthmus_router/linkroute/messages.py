"""What an edge and its interior tell each other of link routes: an address, and the messages sent to it.

A message is an amqp-value list of lists `[key of a link route, bool or null]`: true when there is a container, false
when not, null when nothing is known of it any more. An empty list says that all has been told that there was at first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from isthmus_router.linkroute.table import is_route_key
from isthmus_router.message.control import Header, Message, decode_message, encode_message
from isthmus_router.message.sections import LONGEST_ADDRESS_BYTES

LINK_ROUTES_ADDRESS = "_$qd.link_routes"

LONGEST_BYTES, MOST_VALUES = 64 * 1024, 400
"""Of a message; each link route in it is three values. A message is read in one event."""
AT_ONCE, CHARACTERS_AT_ONCE = 100, 12 * 1024
"""Link routes in one message, and characters of their keys: even of four bytes each, they fit."""
LONGEST_KEY = LONGEST_ADDRESS_BYTES + 1
"""In characters: a class, and a pattern as long as an address may be. A longer key is neither sent nor accepted."""


class LinkRouteMessageError(ValueError):
    """A message about link routes is not what the protocol says."""


class LinkRouteNews(NamedTuple):
    """What a peer says of one link route."""

    key: str
    reachable: bool | None
    """Whether there is a container for it; None: there is no such link route (any more)."""


def encode_link_routes(news: Iterable[tuple[str, bool | None]]) -> bytes:
    """The message that tells of these link routes; of none: that all has been told."""
    return encode_message(Message(header=Header(durable=False), body=[list(pair) for pair in news]))


def decode_link_routes(payload: bytes) -> list[LinkRouteNews | None]:
    """What a message tells of link routes; None for those that are invalid. Raises LinkRouteMessageError."""
    if len(payload) > LONGEST_BYTES:
        raise LinkRouteMessageError(f"longer than {LONGEST_BYTES} bytes")
    try:
        body = decode_message(payload, most=MOST_VALUES).body
    except ValueError as error:
        raise LinkRouteMessageError(str(error)) from error
    if not isinstance(body, list):
        raise LinkRouteMessageError("body is not a list")
    return [_news(pair) for pair in body]


def _news(pair: object) -> LinkRouteNews | None:
    if isinstance(pair, list) and len(pair) == 2:
        key, reachable = pair
        valid = isinstance(key, str) and len(key) <= LONGEST_KEY and is_route_key(key)
        if valid and (reachable is None or isinstance(reachable, bool)):
            return LinkRouteNews(str(key), reachable)
    return None
