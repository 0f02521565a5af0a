"""The processes of clients, as far as a router sees them: who connects from one host with one container id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isthmus_router.flows.records import Attr, Record, RecordType
from isthmus_router.flows.source import FlowSource

MOST_PROCESSES = 2000


@dataclass(slots=True)
class _Process:
    record: Record
    connections: int = 0


class Processes:
    """Of one router. A process is there as long as it has a connection."""

    def __init__(self, source: FlowSource, now: Callable[[], int]) -> None:
        self._source = source
        self._now = now
        self._processes: dict[tuple[str, str], _Process] = {}

    def connected(self, host: str, container: str) -> Record | None:
        """It has one more connection; None: there are too many processes for this one to have a record."""
        process = self._processes.get((host, container))
        if process is None:
            if len(self._processes) >= MOST_PROCESSES:
                return None
            values = {Attr.NAME: container, Attr.SOURCE_HOST: host}
            record = self._source.begin(RecordType.PROCESS, self._source.router, self._now(), values)
            process = self._processes[host, container] = _Process(record)
        process.connections += 1
        self._source.update(process.record, {Attr.LINK_COUNT: process.connections})
        return process.record

    def disconnected(self, host: str, container: str) -> None:
        """It has one connection less; one that was told of by `connected`, with a record."""
        process = self._processes[host, container]
        process.connections -= 1
        if process.connections:
            self._source.update(process.record, {Attr.LINK_COUNT: process.connections})
        else:
            del self._processes[host, container]
            self._source.end(process.record, self._now(), {Attr.LINK_COUNT: 0})
