"""Reading a flow log: the rows of a window, each once, and what was left out of it."""

from .files import NoLogError
from .reader import Hours, Log, Quality, read_hours, read_log, within
from .window import Window, parse_duration, parse_moment

__all__ = [
    "Hours",
    "Log",
    "NoLogError",
    "Quality",
    "Window",
    "parse_duration",
    "parse_moment",
    "read_hours",
    "read_log",
    "within",
]
