"""Links to AMQP containers (brokers): link routes for links of clients, auto-links that the router keeps itself."""
