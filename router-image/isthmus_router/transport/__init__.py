"""Sockets of groups, of the bridge between sites and of the gossip router; everything that they do on them."""
