"""Link routes: links of clients that go, end to end, to an AMQP container (a broker)."""
