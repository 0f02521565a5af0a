"""What came of writing to a socket. Less than zero: the negative `errno` of what went wrong."""

from typing import Final

WRITTEN: Final = 0
"""All there was."""
BLOCKED: Final = 1
"""The socket takes no more for now."""
ENDED: Final = 2
"""The engine has nothing more to write, ever."""
