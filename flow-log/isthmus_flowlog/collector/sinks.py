"""Where the files of a flow log are: a folder, or a bucket of an object store. A file appears whole or not at all."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from pyarrow import fs

from isthmus_flowlog.collector.journal import open_regular, sync_folder
from isthmus_flowlog.collector.plan import File
from isthmus_flowlog.collector.settings import S3, S3_SCHEMES, Settings
from isthmus_flowlog.schema import TABLES

logger = logging.getLogger("SINK")

_TEMPORARY = ".tmp"
_CONNECT_SECONDS = 5.0
_REQUEST_SECONDS = 30.0


Failed = Callable[[str, Exception], None]
"""Told of a file or folder that cannot be used, and why."""


def _log_failure(path: str, error: Exception) -> None:
    logger.error("part of the log cannot be used", extra={"path": path, "reason": str(error)})


class Sink(Protocol):
    """A flow log that can be written, and that others may write, too. Paths are below its root. Every method may raise
    OSError."""

    def write(self, path: str, produce: Callable[[Path], None]) -> int:
        """Let `produce` write a local file, and have it in the log under `path`; bytes."""

    def files(self, failed: Failed = _log_failure) -> list[File]:
        """All files of the tables; those that cannot be listed are left out, and told to `failed`."""

    def open(self, path: str) -> Any:
        """A file for reading, which is its own context manager."""

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; one that is not there is no error."""


class FolderSink:
    """A log in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def clean(self) -> None:
        """Remove what a crash has left half-written; to be called when nobody writes."""
        for table in TABLES:
            _remove((self._root / table.name).glob(f"*/*/.*{_TEMPORARY}"))

    def write(self, path: str, produce: Callable[[Path], None]) -> int:
        """As Sink."""
        final = self._root / path
        self._make_folder(final.parent)
        # Nobody else can have put something else there, such as a FIFO, as nobody knows the name.
        temporary = final.with_name(f".{final.name}.{secrets.token_hex(4)}{_TEMPORARY}")
        try:
            produce(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
                size = os.fstat(file.fileno()).st_size
            temporary.replace(final)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync_folder(final.parent)
        return size

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)

    def files(self, failed: Failed = _log_failure) -> list[File]:
        """As Sink. Only regular files are listed, and no link is followed below the folder of a table."""
        found = []
        for table in TABLES:
            for day in self._entries(table.name, failed):
                for hour in self._entries(f"{table.name}/{day.name}", failed) if _is_folder(day) else ():
                    folder = f"{table.name}/{day.name}/{hour.name}"
                    for entry in self._entries(folder, failed) if _is_folder(hour) else ():
                        if _is_of_log(entry.name) and entry.is_file(follow_symlinks=False):
                            with contextlib.suppress(FileNotFoundError):
                                status = entry.stat(follow_symlinks=False)
                                found.append(File(f"{folder}/{entry.name}", status.st_size, status.st_mtime))
        return found

    def _entries(self, folder: str, failed: Failed) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._root / folder) as entries:
                return list(entries)
        except FileNotFoundError:
            return []
        except OSError as error:
            failed(folder, error)
            return []

    def open(self, path: str) -> Any:
        """As Sink. OSError for what is no regular file."""
        return open_regular(self._root / path)

    def delete(self, paths: Iterable[str]) -> None:
        """As Sink; folders that are empty then go, too."""
        folders = set()
        for path in paths:
            full = self._root / path
            full.unlink(missing_ok=True)
            folders |= {full.parent, full.parent.parent}
        for folder in sorted(folders, reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()


class BucketSink:
    """A log in a bucket. What is written is in a local folder first, so that it is sent when it is whole."""

    def __init__(self, url: str, settings: S3, staging: Path) -> None:
        scheme = next(item for item in S3_SCHEMES if url.startswith(item))
        self._root = url.removeprefix(scheme).rstrip("/")
        self._settings = settings
        self._staging = staging
        self._opened: Any = None

    @property
    def _system(self) -> Any:
        """Made when it is needed first, as keys may come later."""
        if self._opened is None:
            settings = self._settings
            options: dict[str, Any] = {}
            if settings.endpoint is not None:
                scheme, found, host = settings.endpoint.rpartition("://")
                options["endpoint_override"] = host
                options["scheme"] = scheme if found else "https"
            if settings.region is not None:
                options["region"] = settings.region
            if settings.accessKeyFile is not None and settings.secretKeyFile is not None:
                options["access_key"] = Path(settings.accessKeyFile).read_text().strip()
                options["secret_key"] = Path(settings.secretKeyFile).read_text().strip()
            self._opened = fs.S3FileSystem(
                connect_timeout=_CONNECT_SECONDS, request_timeout=_REQUEST_SECONDS, **options
            )
        return self._opened

    def clean(self) -> None:
        """Remove what a crash has left half-written."""
        _remove(self._staging.glob(f"*{_TEMPORARY}"))

    def write(self, path: str, produce: Callable[[Path], None]) -> int:
        """As Sink. The store shows an object when all of it has come (PUT, or the end of a multipart upload)."""
        local = self._staging / f"{path.replace('/', '_')}{_TEMPORARY}"
        target = f"{self._root}/{path}"
        try:
            produce(local)
            size = local.stat().st_size
            with local.open("rb") as source, self._system.open_output_stream(target) as stream:
                shutil.copyfileobj(source, stream, 1024 * 1024)
            if self._system.get_file_info(target).size != size:
                self._system.delete_file(target)
                raise OSError(f"{path} did not arrive whole")
            return size
        except OSError:
            self._opened = None  # with keys read again next time
            raise
        finally:
            local.unlink(missing_ok=True)

    def files(self, failed: Failed = _log_failure) -> list[File]:
        """As Sink."""
        found = []
        for table in TABLES:
            selector = fs.FileSelector(f"{self._root}/{table.name}", recursive=True, allow_not_found=True)
            for item in self._system.get_file_info(selector):
                path = item.path.removeprefix(f"{self._root}/")
                if not item.is_file or not _is_of_log(item.base_name):
                    continue
                if item.size is None or item.mtime is None:
                    failed(path, OSError("the store tells neither its size nor its age"))
                    continue
                found.append(File(path, item.size, item.mtime.timestamp()))
        return found

    def open(self, path: str) -> Any:
        """As Sink."""
        return self._system.open_input_file(f"{self._root}/{path}")

    def delete(self, paths: Iterable[str]) -> None:
        """As Sink."""
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                self._system.delete_file(f"{self._root}/{path}")


def _is_of_log(name: str) -> bool:
    return name.endswith(".parquet") and name[0] not in "._"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _remove(paths: Iterator[Path]) -> None:
    """What a crash has left; what cannot be removed stays."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _log_failure(str(path), error)


def open_sink(settings: Settings) -> FolderSink | BucketSink:
    """The log that the settings name."""
    if settings.in_bucket:
        return BucketSink(settings.log, settings.s3, settings.staging_folder)
    return FolderSink(Path(settings.log))
