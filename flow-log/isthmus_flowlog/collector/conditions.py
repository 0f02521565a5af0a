"""Why a router, or the engine, has ended something, as text of bounded length.

proton's own class decodes the details of a condition as well, in which a peer can put keys that a dictionary takes long
to hold.
"""

from __future__ import annotations

from typing import Any

from cproton import (
    pn_condition_get_description,
    pn_condition_get_name,
    pn_condition_is_set,
    pn_connection_remote_condition,
    pn_link_remote_condition,
    pn_session_remote_condition,
    pn_transport_condition,
)

LONGEST_REASON = 300


def of_connection(connection: Any) -> str | None:
    """Why the router has closed it, if it says so."""
    return _words(pn_connection_remote_condition(connection._impl))


def of_session(session: Any) -> str | None:
    """Why the router has ended it, if it says so."""
    return _words(pn_session_remote_condition(session._impl))


def of_link(link: Any) -> str | None:
    """Why the router has ended it, if it says so."""
    return _words(pn_link_remote_condition(link._impl))


def of_transport(transport: Any) -> str | None:
    """What the engine has against going on, if anything."""
    return _words(pn_transport_condition(transport._impl))


def _words(condition: Any) -> str | None:
    if not pn_condition_is_set(condition):
        return None
    name, description = pn_condition_get_name(condition), pn_condition_get_description(condition)
    return (f"{name}: {description}" if description else str(name))[:LONGEST_REASON]
