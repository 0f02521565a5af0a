"""Addresses, links, deliveries: the forwarding model."""
