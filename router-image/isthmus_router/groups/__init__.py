"""Groups: logical addresses, discovery, membership, and reliable messages between the members of a site.

Source: the logical address design (UUID and logical name, WHO-HAS, I-HAVE, INVALIDATE) for who is who and where.
"""
