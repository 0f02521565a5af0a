"""A real Kubernetes for tests, on one machine. See docs/test-cluster.md."""
