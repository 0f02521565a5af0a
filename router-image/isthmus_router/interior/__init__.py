"""What makes a router an interior one: the routing engine tied to the core."""
