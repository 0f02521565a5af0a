"""The `$management` agent: AMQP management operations on the router's entities."""
