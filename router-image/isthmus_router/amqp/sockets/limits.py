"""Limits that both pollers have."""

from typing import Final

MOST_OPENING: Final = 8
"""Connections that have not opened and are read in one round. The first frame of a TLS handshake takes 0.5 ms."""
