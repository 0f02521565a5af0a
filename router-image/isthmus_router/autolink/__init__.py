"""Links that the router itself keeps attached to containers, such as brokers."""
