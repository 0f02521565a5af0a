"""What came of reading or writing a socket. Less than zero: the negative `errno` of what went wrong."""

import errno
from typing import Final

WRITTEN: Final = 0
"""All there was."""
BLOCKED: Final = 1
"""The socket takes no more for now."""
ENDED: Final = 2
"""The engine has nothing more to write, ever."""
UNREAD: Final = -errno.EOVERFLOW
"""The peer takes no bytes, and its input cannot be divided into pieces before it does."""
REFUSED: Final = -errno.EMSGSIZE
"""The engine did not get a frame, and reads no more."""
