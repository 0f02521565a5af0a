"""Files that others may replace, read without waiting for them and without reading more than a bound."""

from __future__ import annotations

import errno
import os
import stat


def read(path: str, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes. Raises OSError.

    A pipe or a device would have the process wait, or give it bytes without an end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes; use a shorter file")
    return content
