"""A member of a relay site: the whole stack without I/O (`member.py`), and what it offers to AMQP clients: the
addresses of the group (`face.py` and what it uses)."""
