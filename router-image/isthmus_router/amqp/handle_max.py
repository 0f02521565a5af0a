"""How many links a peer allows in a session (`handle-max` of its begin), which the engine knows and does not export.

An engine that is to attach one more writes nothing more on its connection.

Source: AMQP 1.0 part 2, 2.7.2 (begin); `pn_session_t` of qpid-proton, `core/engine-internal.h`, and `allocate_alias`
in `core/transport.c`.
"""

from __future__ import annotations

from cproton_ffi import ffi, lib

from isthmus_router.amqp.engine import Pointer
from isthmus_router.message.types import Described, UInt, ULong, encode

MOST_LINKS = 65536
"""Of a session, whatever its peer allows: the engine gives those beyond it the handles of others."""

_WORDS = 72
"""Words of 4 bytes of a session that are searched for the number. It has no fewer."""


def links_allowed(session: Pointer) -> int:
    """How many links the peer allows in a session that it has begun."""
    most: int = ffi.cast("uint32_t *", session)[_HANDLE_MAX]
    return min(most + 1, MOST_LINKS)


def _place() -> int:
    """Which word of a session is the handle-max of its peer; ImportError when that cannot be found out."""
    stated = [0x5EA1F00D, 0x2CAB1E55]
    connection, transport = lib.pn_connection(), lib.pn_transport()
    lib.pn_transport_set_server(transport)
    lib.pn_transport_bind(transport, connection)
    window = UInt(1)
    data = b"AMQP\x00\x01\x00\x00" + _frame(0, ULong(0x10), ["probe"])
    for channel, most in enumerate(stated):
        data += _frame(channel, ULong(0x11), [None, window, window, window, UInt(most)])
    lib.pn_transport_push(transport, data, len(data))
    places = set(range(_WORDS))
    session = lib.pn_session_head(connection, 0)
    found = 0
    while session:
        words = ffi.cast("uint32_t *", session)
        places = {place for place in places if words[place] == stated[found]}
        found += 1
        session = lib.pn_session_next(session, 0)
    lib.pn_transport_unbind(transport)
    lib.pn_decref(transport)
    lib.pn_connection_release(connection)
    lib.pn_decref(connection)
    if found != len(stated) or len(places) != 1:
        raise ImportError("the sessions of the engine are laid out in another way than expected")
    return places.pop()


def _frame(channel: int, code: ULong, fields: list[object]) -> bytes:
    body = encode(Described(code, fields))
    return (len(body) + 8).to_bytes(4) + b"\x02\x00" + channel.to_bytes(2) + body


_HANDLE_MAX = _place()
