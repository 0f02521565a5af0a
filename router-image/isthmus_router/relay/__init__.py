"""RELAY: what one site multicasts is relayed to the other sites, once, in order, through the loss of any member.

Source: the RELAY design (relays, FORWARD, DISSEMINATE, VIEW, ProxyUUID, buffering by the second-in-line); where this
differs, and why, is in docs/relay.md.
"""
