"""What a stream knows of the hours of a log, in its checkpoint: one file for each batch that was completed.

The file is written last of all that a batch does, and names the versions of the cubes that are true from then on. So
what a batch that was killed has left is not looked at, and the batch is done again from the state before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from isthmus_flows.log import Quality
from isthmus_flows.log.files import Quarantined
from isthmus_flows.storage import Storage

_KEPT = 2
"""States: Spark may do the last batch again, from the one before."""


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour of `deliveries`."""

    version: int
    """Number of the batch in which it was added up last."""
    quality: Quality
    quarantine: Sequence[Quarantined] = ()


@dataclass(frozen=True, slots=True)
class State:
    """After a batch."""

    batch: int = -1
    newest: int | None = None
    """The newest hour of which there were files, by which earlier ones are closed."""
    hours: Mapping[int, Hour] = field(default_factory=dict)
    """Hours count from the epoch."""

    def closed(self, hour: int, lateness: int) -> bool:
        """Whether an hour is so many hours older than the newest: what comes of it then is late."""
        return self.newest is not None and hour < self.newest - lateness

    def after(self, batch: int, newest: int | None, hours: Mapping[int, Hour], horizon: int) -> State:
        """With what a batch has found; hours before the horizon are forgotten."""
        together = {hour: found for hour, found in {**self.hours, **hours}.items() if hour >= horizon}
        ends = [hour for hour in (self.newest, newest) if hour is not None]
        return State(batch, max(ends, default=None), together)

    def with_late(self, late: Mapping[int, int]) -> dict[int, Hour]:
        """The hours of which there were late rows, with these counted."""
        return {
            hour: replace(found, quality=replace(found.quality, late=found.quality.late + late[hour]))
            for hour, found in self.hours.items()
            if hour in late
        }


class States:
    """The states in a folder."""

    def __init__(self, storage: Storage, url: str) -> None:
        self._storage = storage
        self._url = url

    def last(self, before: int | None = None) -> State:
        """The newest; `before`: of batches with lesser numbers."""
        known = [number for number in self._numbers() if before is None or number < before]
        return _decoded(self._storage.read(self._path(max(known)))) if known else State()

    def save(self, state: State) -> None:
        """Write a state; older ones but for the last are deleted. So are those of later batches: the stream has begun
        anew."""
        for number in self._numbers():
            if number > state.batch:
                self._storage.delete(self._path(number))
        self._storage.write(self._path(state.batch), _encoded(state))
        for number in sorted(self._numbers())[:-_KEPT]:
            self._storage.delete(self._path(number))

    def _numbers(self) -> list[int]:
        return [int(entry.name.removesuffix(".json")) for entry in self._storage.list(self._url)]

    def _path(self, number: int) -> str:
        return f"{self._url}/{number}.json"


def _encoded(state: State) -> str:
    hours = {
        str(number): {
            "version": hour.version,
            "quality": asdict(hour.quality),
            "quarantine": [asdict(item) for item in hour.quarantine],
        }
        for number, hour in sorted(state.hours.items())
    }
    return json.dumps({"batch": state.batch, "newest": state.newest, "hours": hours})


def _decoded(text: str) -> State:
    found: dict[str, Any] = json.loads(text)
    hours = {
        int(number): Hour(
            hour["version"],
            Quality(**hour["quality"]),
            [Quarantined(**item) for item in hour["quarantine"]],
        )
        for number, hour in found["hours"].items()
    }
    return State(found["batch"], found["newest"], hours)
