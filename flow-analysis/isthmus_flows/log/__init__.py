"""Reading a flow log: the rows of a window, each once, and what was left out of it."""

from .reader import Log, Quality, read_log
from .window import Window, parse_duration, parse_moment

__all__ = ["Log", "Quality", "Window", "parse_duration", "parse_moment", "read_log"]
