"""The member of a relay site that a router is: `sites/` on real sockets, from the configuration, and what it tells.

Source: docs/relay.md.
"""
