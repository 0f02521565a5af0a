"""Values kept out of the configuration file, and access to the files it names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from isthmus_router import regular_files


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

    most_bytes = 64 << 20
    """Of a file."""

    def read(self, path: str) -> bytes:
        """Contents of a regular file of at most `most_bytes`; OSError when it cannot be read."""
        return regular_files.read(path, self.most_bytes)

    def names(self, folder: str) -> list[str]:
        """Names of the files in a directory; OSError when it cannot be read."""
        return [entry.name for entry in Path(folder).iterdir() if entry.is_file()]

    def variable(self, name: str) -> str | None:
        """An environment variable."""
        return os.environ.get(name)


class GuardedSources(SystemSources):
    """The same, for clients that name files: no large file is read, and no secret is.

    A secret of this process would go to whatever host the client names beside it.
    """

    most_bytes = 1 << 20


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
