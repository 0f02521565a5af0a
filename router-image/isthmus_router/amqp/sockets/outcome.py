"""What came of reading or writing a socket. Less than zero: the negative `errno` of what went wrong."""

import errno
from typing import Final

WRITTEN: Final = 0
"""All there was."""
BLOCKED: Final = 1
"""The socket takes no more for now."""
ENDED: Final = 2
"""The engine has nothing more to write, ever."""
FLOODED: Final = -errno.EOVERFLOW
"""What was read has made more events than a connection may have."""
