"""Links that the router keeps to AMQP containers (brokers) on route-container connections."""
