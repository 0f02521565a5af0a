"""How deliveries to an address are spread over its destinations."""

from enum import IntEnum


class Treatment(IntEnum):
    """Distribution of an address; the numbers are those that mobile address updates carry on the wire."""

    FLOOD = 0
    """Every destination gets a copy; copies may arrive more than once over redundant paths."""
    MULTICAST = 1
    """Every destination gets exactly one copy."""
    CLOSEST = 2
    """One destination, of lowest path cost."""
    BALANCED = 3
    """One destination, spread by outstanding deliveries and path cost."""
    UNAVAILABLE = 4
    """Deliveries from clients are refused; only used as a configured default."""
