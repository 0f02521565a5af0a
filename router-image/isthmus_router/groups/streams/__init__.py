"""Streams: the messages of each origin, in order and once at every member of a site.

`streams.py` is what others call; `stream.py` is one origin's state at one member, `log.py` what it keeps,
`positions.py` which member has which batches, `repair.py` which member to ask for missing batches,
`room.py` how many bytes may wait for other members, `wire.py` the bodies of the frames.
Sans-IO: frames and time in, frames (`MemberPort`) and what happened (`StreamsUser`) out.
"""
