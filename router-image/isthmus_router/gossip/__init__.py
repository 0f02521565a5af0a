"""The gossip router: tells members of a group who else there is, and carries what they cannot send each other.

Sans-IO: `messages` (the wire), `table` (what the router knows and does), `client` (a member's side, of several
routers). With I/O: `server` and `health` (the process), `entry` and `__main__` (the command).
"""
