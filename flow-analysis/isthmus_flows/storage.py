"""Folders and small files in whatever file system Spark reads and writes: a disk, or `s3a://`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

JAVA_ERRORS = (Py4JJavaError, CapturedException)
"""Exceptions of Java: pyspark has classes of its own for some of them, such as IllegalArgumentException."""
_RENAMES = ("file", "hdfs", "viewfs")
"""Schemes of file systems in which a folder gets another name in one step."""
_NO_S3A = "S3AFileSystem not found"
"""In what Hadoop says without the jars for it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is in a folder."""

    name: str
    path: str
    """All of it, with the scheme."""
    is_file: bool
    size: int
    """Bytes."""
    modified: int
    """Milliseconds since the epoch; of a folder in an object store it says nothing."""


class Storage:
    """The file system of a URL, by Hadoop's classes in the driver. What goes wrong is an OSError."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.jvm: Any = cast(Any, spark.sparkContext._jvm)
        self.conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
        try:
            with _errors():
                self._system: Any = self.path(url).getFileSystem(self.conf)
        except OSError as error:
            if _NO_S3A not in str(error):
                raise
            raise OSError(
                "Spark has no s3a:// here; the image of analyses has what is needed, and "
                "flow-analysis/object-store.pom.xml fetches it for spark.driver.extraClassPath"
            ) from None

    def path(self, url: str) -> Any:
        """As Hadoop has it."""
        return self.jvm.org.apache.hadoop.fs.Path(url)

    @property
    def renames(self) -> bool:
        """Whether a folder can be renamed in one step; where not, it would be copied."""
        return str(self._system.getScheme()) in _RENAMES

    def exists(self, url: str) -> bool:
        """Whether there is such a file or folder."""
        with _errors():
            return bool(self._system.exists(self.path(url)))

    def list(self, url: str, left_out: tuple[str, ...] = (".", "_")) -> list[Entry]:
        """What is in a folder, in the order of names; nothing if it is not there. What begins with one of `left_out` is
        not told."""
        path = self.path(url)
        with _errors():
            if not self._system.exists(path):
                return []
            found = [
                Entry(
                    str(status.getPath().getName()),
                    str(status.getPath().toString()),
                    bool(status.isFile()),
                    int(status.getLen()),
                    int(status.getModificationTime()),
                )
                for status in self._system.listStatus(path)
            ]
        return sorted(
            (entry for entry in found if not entry.name.startswith(left_out)), key=lambda entry: entry.name
        )

    def read(self, url: str) -> str:
        """The text of a small file."""
        with _errors():
            stream = self._system.open(self.path(url))
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()

    def write(self, url: str, text: str) -> None:
        """Write a small file, whole or not at all."""
        where = url if not self.renames else f"{url.rpartition('/')[0]}/.{url.rpartition('/')[2]}.tmp"
        with _errors():
            stream = self._system.create(self.path(where), True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
        if where != url:
            self.delete(url)
            self.rename(where, url)

    def rename(self, url: str, name: str) -> None:
        """Give a file or folder another name, which nothing has yet."""
        with _errors():
            if not self._system.rename(self.path(url), self.path(name)):
                raise OSError(f"{url} could not be renamed to {name}")

    def delete(self, url: str) -> None:
        """Delete a file, or a folder with all that is in it; one that is not there is no error."""
        with _errors():
            self._system.delete(self.path(url), True)


def said(error: Exception) -> str:
    """What the innermost exception says, in one line."""
    if not isinstance(error, Py4JJavaError):
        return next(iter(str(error).splitlines()), type(error).__name__)
    exception: Any = error.java_exception
    while exception.getCause() is not None:
        exception = exception.getCause()
    return str(exception.getMessage() or exception.toString()).splitlines()[0]


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except JAVA_ERRORS as error:
        raise OSError(said(error)) from None
