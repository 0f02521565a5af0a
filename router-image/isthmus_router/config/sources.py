"""Values kept out of the configuration file, and access to the files it names."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Protocol


class Sources(Protocol):
    """What a configuration may refer to outside its own text."""

    def read(self, path: str) -> bytes:
        """Contents of a file; OSError when it cannot be read."""

    def names(self, folder: str) -> list[str]:
        """Names of the files in a directory; OSError when it cannot be read."""

    def variable(self, name: str) -> str | None:
        """An environment variable."""


class SystemSources:
    """The files and environment of this process."""

    def read(self, path: str) -> bytes:
        """Contents of a file; OSError when it cannot be read."""
        return Path(path).read_bytes()

    def names(self, folder: str) -> list[str]:
        """Names of the files in a directory; OSError when it cannot be read."""
        return [entry.name for entry in Path(folder).iterdir() if entry.is_file()]

    def variable(self, name: str) -> str | None:
        """An environment variable."""
        return os.environ.get(name)


MOST_FILE_BYTES = 1 << 20


class GuardedSources(SystemSources):
    """The same, for clients that name files: what is no file, or a large one, is not read, and no secret is.

    A secret of this process would go to whatever host the client names beside it.
    """

    def read(self, path: str) -> bytes:
        """Contents of a regular file of at most a MiB; OSError when it cannot be read."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise ValueError("it is not a regular file")
            if found.st_size > MOST_FILE_BYTES:
                raise ValueError(f"it has more than {MOST_FILE_BYTES} bytes")
            return file.read(MOST_FILE_BYTES)


def resolve(text: str, sources: Sources | None) -> str:
    """The secret that `text` stands for.

    `env:NAME` is an environment variable, `file:PATH` the first line of a file, `pass:TEXT` and
    `literal:TEXT` the text itself, and so is anything else. ValueError says what is missing, and never
    contains the secret.
    """
    form, colon, rest = text.partition(":")
    if not colon or form not in ("env", "file", "pass", "literal"):
        return text
    if form in ("pass", "literal"):
        return rest
    if sources is None:
        raise ValueError(f"the form '{form}:' cannot be used here")
    if isinstance(sources, GuardedSources):
        raise ValueError(
            f"the form '{form}:' is for the configuration file; a management request gives the secret itself"
        )
    if form == "env":
        value = sources.variable(rest)
        if value is None:
            raise ValueError(f"environment variable {rest!r} is not set")
        return value
    try:
        contents = sources.read(rest).decode()
    except UnicodeDecodeError:
        raise ValueError(f"file {rest!r} is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"file {rest!r} cannot be read: {reason(error)}") from None
    return contents.split("\n", 1)[0].rstrip("\r")


def reason(error: Exception) -> str:
    """Short text of why a file could not be read."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
