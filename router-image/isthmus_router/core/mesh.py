"""Edge meshes: every message of an edge names its mesh, and only the edge has the key that the name is made of.

An edge shows the key to its interior routers when it connects, and to nobody else. So an interior can tell two
connections of one edge, whose certificate may have changed between them, from an edge that has read the mesh id of
another one in a message.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from secrets import token_urlsafe

PROPERTY_MESH_KEY = "isthmus.mesh-key"
"""Of an edge's connection, in its open frame."""
MESH_ID_LENGTH = 15
_KEY_BYTES = 32
_KEY_LENGTH = 43

MOST_CONNECTIONS = 64
"""Of one edge. As many of each user may have downlinks, and as many may tell of link routes. The links of as many are
compared. An edge has one connection, and two while it changes to another one."""


def new_mesh_key() -> str:
    """A key that nobody can guess."""
    return token_urlsafe(_KEY_BYTES)


def mesh_id_of(key: str) -> str:
    """The id of the mesh whose key this is."""
    return urlsafe_b64encode(sha256(key.encode()).digest()).decode()[:MESH_ID_LENGTH]


def proven_mesh_id(key: object) -> str | None:
    """The mesh id of a peer that shows this key; None if it is none."""
    return mesh_id_of(key) if isinstance(key, str) and len(key) == _KEY_LENGTH else None
