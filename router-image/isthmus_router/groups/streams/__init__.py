"""Streams: the messages of each origin, in order and once at every member of a site.

`streams.py` is what others call; `stream.py` is one origin's state at one member, `log.py` what it keeps,
`positions.py` who has what, `repair.py` whom to ask for what is missing,
`room.py` how much may wait for others, `wire.py` the bodies of the frames.
Sans-IO: frames and time in, frames (`MemberPort`) and what happened (`StreamsUser`) out.
"""
