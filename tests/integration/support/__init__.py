"""Real routers, certificates and clients for the integration tests."""
