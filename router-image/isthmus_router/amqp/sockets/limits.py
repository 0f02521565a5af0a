"""Limits that both pollers have."""

from typing import Final

MOST_OPENING: Final = 8
"""Connections that have not opened and are read in one round. The first frame of a TLS handshake takes 0.5 ms."""
TOGETHER: Final = 2
"""Connections for each thread, where there are several, that are read before their events are dealt with."""
PART_OF_USUAL: Final = 0.75
"""Of the time of a round: then those have their turns whose events are costly, or that have not opened."""
