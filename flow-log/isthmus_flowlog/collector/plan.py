"""What is to be done with files: when rows become Parquet, which files are made one, which are deleted.

Pure: told what there is and what time it is, in seconds since the epoch.

Compaction is made of two steps that a reader may see in any state. First the merged file appears, whole, and names in
its metadata the files it was made of (`isthmus.merged`). When those who had listed the folder before that have had
time to read (the grace period) these are deleted. In between a reader finds rows twice, with the same identities; it
never misses one. After a crash the files themselves tell how far it had come.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from isthmus_flowlog.collector.journal import Segment
from isthmus_flowlog.collector.settings import Compaction, Rotate

HOUR_SECONDS = 3600
DAY_SECONDS = 86_400
MOST_SEGMENT_BYTES = 64 * 1024 * 1024
"""A segment is one table in memory when it becomes Parquet."""
MOST_TARGET_BYTES = 256 * 1024 * 1024
"""Larger files would have footers that are not read."""
MOST_MERGED_BYTES = MOST_TARGET_BYTES // 2
"""A file that is made part of another one is in memory then."""
MOST_PARTS = 1000
"""Files that are made one at a time."""
_FOLDER = re.compile(r"[a-z_]+/date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})")
_MERGED = "merged-"
_NAME = re.compile(r"[0-9A-Za-z_.-]{1,128}")
"""Of files that are made one: those of collectors, and not such of which no name can be made."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of the log; its path is below the log's folder."""

    path: str
    size: int
    modified: float

    @property
    def folder(self) -> str:
        """Its partition, with the table."""
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        """Without the folder."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Merge:
    """Write the rows of these files to one."""

    path: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete these files."""

    paths: tuple[str, ...]
    reason: str
    """`merged` or `retention`."""


def rotation_due(segment: Segment | None, rotate: Rotate, now: float) -> bool:
    """Whether what is in the journal is to become Parquet files."""
    if segment is None or segment.oldest is None:
        return False
    age = now - segment.oldest
    return segment.rows >= rotate.rows or segment.size >= MOST_SEGMENT_BYTES or not 0 <= age < rotate.seconds


def begins(folder: str) -> float | None:
    """When the hour of a partition begins; None for a folder that is none."""
    found = _FOLDER.fullmatch(folder)
    if found is None:
        return None
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2]}:00:00").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def retention(files: Iterable[File], days: float | None, now: float) -> list[Delete]:
    """The files of hours that ended longer than that ago."""
    if days is None:
        return []
    steps = []
    for folder, members in _by_folder(files):
        began = begins(folder)
        if began is not None and began + HOUR_SECONDS + days * DAY_SECONDS <= now:
            steps.append(Delete(tuple(file.path for file in members), "retention"))
    return steps


def compaction(
    files: Iterable[File], parts_of: Callable[[str], Sequence[str]], settings: Compaction, now: float
) -> list[Merge | Delete]:
    """The next steps. `parts_of` says of a merged file what names of files it was made of."""
    steps: list[Merge | Delete] = []
    for folder, members in _by_folder(files):
        began = begins(folder)
        if began is None or len(members) < 2 or now < began + HOUR_SECONDS + settings.afterSeconds:
            continue
        merged_at: dict[str, float] = {}
        for file in members:
            if file.name.startswith(_MERGED):
                merged_at.update(dict.fromkeys(parts_of(file.path), file.modified))
        doubled = [file for file in members if file.name in merged_at]
        if doubled:
            # Nothing else is merged meanwhile: what is doubled would be doubled again.
            old = [file.path for file in doubled if merged_at[file.name] + settings.graceSeconds <= now]
            if old:
                steps.append(Delete(tuple(old), "merged"))
        else:
            steps += [
                _merge(folder, group)
                for group in _groups(members, min(settings.targetBytes, MOST_TARGET_BYTES))
            ]
    return steps


def _by_folder(files: Iterable[File]) -> list[tuple[str, list[File]]]:
    found: defaultdict[str, list[File]] = defaultdict(list)
    for file in files:
        found[file.folder].append(file)
    return [(folder, sorted(found[folder], key=lambda file: file.name)) for folder in sorted(found)]


def _groups(members: Iterable[File], target: int) -> list[list[File]]:
    """Small files in the order of their names, which begin with a time, as many as make a file of the wanted size."""
    groups: list[list[File]] = [[]]
    size = 0
    for file in sorted(members, key=lambda file: file.name.removeprefix(_MERGED)):
        if file.size >= target / 2 or not _NAME.fullmatch(file.name):
            continue
        if groups[-1] and (size + file.size > target or len(groups[-1]) == MOST_PARTS):
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return [group for group in groups if len(group) > 1]


def _merge(folder: str, group: Sequence[File]) -> Merge:
    """The same files always become a file of the same name: after a crash it is written again, not beside itself."""
    first = group[0].name.removeprefix(_MERGED).partition("-")[0].removesuffix(".parquet")
    digest = hashlib.sha256("\n".join(file.name for file in group).encode()).hexdigest()[:12]
    return Merge(f"{folder}/{_MERGED}{first}-{digest}.parquet", tuple(file.path for file in group))
