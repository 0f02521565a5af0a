"""Positions and stability: members tell the coordinator how far they are, it tells them how far everyone is.

Each says so 50 ms after something has changed, earlier if much has, and repeats itself ever less often until
everyone has everything: so a lost frame, and the last batch of a burst that somebody missed, are noticed.
"""

from __future__ import annotations

import math
from typing import Protocol

from isthmus_router.groups.frames import Kind
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.port import MemberPort
from isthmus_router.groups.streams.stream import Stream
from isthmus_router.groups.streams.user import StreamsSettings
from isthmus_router.groups.streams.wire import Stable, encode_positions, encode_stable


class _OnStable(Protocol):
    def __call__(self, now: float, stream: Stream, stable: Stable) -> None:
        """What the coordinator, this member, has found."""


class Stability:
    """Of all streams of a member."""

    def __init__(
        self, self_id: MemberId, settings: StreamsSettings, port: MemberPort, on_stable: _OnStable
    ) -> None:
        self._self_id = self_id
        self._settings = settings
        self._port = port
        self._on_stable = on_stable
        self._coordinator = self_id
        self._others: tuple[MemberId, ...] = ()
        self.news: dict[MemberId, Stream] = {}
        """What is to be told: streams whose positions have changed."""
        self._open: dict[MemberId, Stream] = {}
        """Told, but not everyone has all of it."""
        self._tell_at = math.inf
        self._repeat_at = math.inf
        self._repeat = settings.tell_every

    @property
    def deadline(self) -> float:
        """When `on_time` is due."""
        return min(self._tell_at, self._repeat_at)

    @property
    def coordinating(self) -> bool:
        """Whether the others tell this member."""
        return self._coordinator == self._self_id

    def view_installed(self, now: float, coordinator: MemberId, others: tuple[MemberId, ...]) -> None:
        """Everything is to be told, to who coordinates now."""
        self._coordinator, self._others = coordinator, others
        self._tell_at = now

    def forget(self, stream: Stream) -> None:
        """It is no more."""
        self.news.pop(stream.origin, None)
        self._open.pop(stream.origin, None)

    def flush(self, now: float, *, pressed: bool) -> None:
        """The turn ends; `pressed`: origins must not wait for long to hear that their batches are stable."""
        if self.news:
            if pressed or self._tell_at <= now:
                self._tell(now)
            elif self._tell_at == math.inf:
                self._tell_at = now + self._settings.tell_every

    def on_time(self, now: float) -> None:
        """Tell, or repeat."""
        if self._tell_at <= now or self._repeat_at <= now:
            self._tell(now)

    def _tell(self, now: float) -> None:
        settings = self._settings
        if self.news:
            self._repeat = settings.tell_every * 2
            self._open.update(self.news)
            telling = self.news
            self.news = {}
        else:
            self._repeat = min(self._repeat * 2, settings.tell_longest)
            telling = self._open
        if self.coordinating:
            self._state(now, [stream for stream in telling.values() if stream.started])
        else:
            positions = [(stream.origin, stream.position) for stream in telling.values() if stream.started]
            if positions:
                self._port.send(now, self._coordinator, Kind.POSITIONS, encode_positions(positions))
        self._open = {origin: stream for origin, stream in self._open.items() if not stream.settled}
        self._tell_at = math.inf
        self._repeat_at = now + self._repeat if self._open else math.inf

    def _state(self, now: float, streams: list[Stream]) -> None:
        entries = [
            Stable(stream.origin, stream.lowest(), *stream.highest(self._self_id)) for stream in streams
        ]
        if entries and self._others:
            self._port.send_all(now, Kind.STABLE, encode_stable(entries))
        for stream, entry in zip(streams, entries, strict=True):
            self._on_stable(now, stream, entry)
