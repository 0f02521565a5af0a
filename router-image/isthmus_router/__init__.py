"""The Isthmus router: an AMQP 1.0 message router on the proton engine."""
