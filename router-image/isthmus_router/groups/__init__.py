"""Groups: logical addresses, discovery, membership, and reliable messages between the members of a site.

A member is its id, a UUID that is fresh for each connect (`identity`); where it is reached is looked up whenever
something is sent to it (`resolver`, `address_cache`), and its name is for people (`names`). Who is there at all is
found out by multicast, lists of hosts, DNS or gossip routers (`discovery`).

Source: the logical address design (UUID and logical name, WHO-HAS, I-HAVE, INVALIDATE) for who is who and where.
"""
