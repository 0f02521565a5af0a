"""Where a run writes: a folder of its own, which has its name when all of it is there.

Below the output's folder there is one for each run, named by the time of the run, with `tables/<name>/*.parquet`,
`summary.json` and `report.html`. Where a folder is renamed in one step it is made under a name that begins with `_`.
In an object store nothing is renamed: there a run is complete when it has a `_SUCCESS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count

from pyspark.sql import SparkSession

from isthmus_flows.settings import Settings
from isthmus_flows.storage import Storage

EVENTS = "_events"
"""The folder of Spark's event logs, if they are kept here: also of runs that have failed."""
ABANDONED = timedelta(days=1)
"""After which a run that is not complete is taken for one that was killed."""
_RUN = re.compile(r"\d{8}T\d{6}Z(-\d+)?")


class Output:
    """The folder of one run. What goes wrong is an OSError."""

    def __init__(self, spark: SparkSession, url: str, now: datetime) -> None:
        self._storage = Storage(spark, url)
        self._url = url.rstrip("/")
        self._now = now
        name = f"{now:%Y%m%dT%H%M%SZ}"
        taken = {entry.name for entry in self._storage.list(self._url)}
        names = (name if number == 1 else f"{name}-{number}" for number in count(1))
        self.run = next(item for item in names if item not in taken)
        """Its name."""
        self.url = f"{self._url}/{'_' if self._storage.renames else ''}{self.run}"
        """Where to write."""
        self._storage.delete(self.url)

    @property
    def cubes(self) -> str:
        """For what is needed only while it runs."""
        return f"{self.url}/_cubes"

    def table(self, name: str) -> str:
        """The folder of a table."""
        return f"{self.url}/tables/{name}"

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        self._storage.write(f"{self.url}/{name}", text)

    def complete(self) -> str:
        """All is written. Where it is now."""
        final = f"{self._url}/{self.run}"
        self._storage.delete(self.cubes)
        if self._storage.renames:
            self._storage.rename(self.url, final)
        else:
            self.write("_SUCCESS", "")
        return final

    def abandon(self) -> None:
        """It has failed; what there is of it is deleted."""
        self._storage.delete(self.url)

    def forget_abandoned(self) -> None:
        """Delete what runs have left that were killed."""
        before = f"_{self._now - ABANDONED:%Y%m%dT%H%M%SZ}"
        for entry in self._storage.list(self._url, left_out=(".",)):
            if _RUN.fullmatch(entry.name[1:]) and entry.name[0] == "_" and entry.name < before:
                self._storage.delete(entry.path)

    def keep(self, most: int) -> None:
        """Delete runs but for the newest ones, and event logs of Spark's that are kept beside them."""
        runs = [entry for entry in self._storage.list(self._url) if _RUN.fullmatch(entry.name)]
        # Names of the same second are put in order by their numbers.
        runs.sort(key=lambda entry: (entry.name[:16], len(entry.name), entry.name))
        logs = [
            (max((file.modified for file in self._storage.list(entry.path)), default=0), entry)
            for entry in self._storage.list(f"{self._url}/{EVENTS}")
        ]
        logs.sort(key=lambda item: item[0])
        for entry in [*runs[:-most], *(entry for _, entry in logs[:-most])]:
            self._storage.delete(entry.path)


@contextmanager
def making(spark: SparkSession, settings: Settings, now: datetime) -> Iterator[Output]:
    """The folder of one run: gone if it fails. After it, what others have left behind is deleted, and of runs that are
    more than are kept the oldest."""
    output = Output(spark, settings.output, now)
    try:
        yield output
    except BaseException:
        output.abandon()
        raise
    output.forget_abandoned()
    if settings.keep is not None:
        output.keep(settings.keep)
