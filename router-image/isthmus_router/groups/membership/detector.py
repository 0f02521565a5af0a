"""Which members of a view have failed.

Every member sends heartbeats to the two members before it in the ring of the view, which watch it; anything heard of
it counts. Who is silent, or whose connection ended, is asked whether it is alive, and is a suspect without an answer;
then those that are watched in its place are asked as well. Who is heard of is a suspect no more. At once a suspect is
whose physical address refuses connections.
"""

from __future__ import annotations

import math

from isthmus_router.groups.frames import Kind
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.membership.messages import encode_view_id
from isthmus_router.groups.membership.port import MembershipSettings
from isthmus_router.groups.port import MemberPort
from isthmus_router.groups.views import View

_WATCHERS = 2


class Detector:
    """Of one member; it starts with its first view."""

    def __init__(self, self_id: MemberId, settings: MembershipSettings, port: MemberPort) -> None:
        self._self_id = self_id
        self._settings = settings
        self._port = port
        self._view: View | None = None
        self.suspects: set[MemberId] = set()
        """Members of the view that are confirmed to be silent."""
        self.departed: set[MemberId] = set()
        """Those that are known to have another view: they are not of this one, though they live."""
        self._verifying: dict[MemberId, tuple[float, float]] = {}
        """When to ask again, and when it is a suspect."""
        self._heard: dict[MemberId, float] = {}
        """Of the members that this one watches: since when they are silent."""
        self._tick = math.inf
        self._ticked = 0.0

    @property
    def gone(self) -> set[MemberId]:
        """Who is not to be in the next view."""
        return self.suspects | self.departed

    @property
    def deadline(self) -> float:
        """When `on_time` is due."""
        return min(self._tick, *(min(times) for times in self._verifying.values()), math.inf)

    def view_installed(self, now: float, view: View) -> None:
        """Who is still suspected in the new view stays so; who has departed is back, or out of it."""
        self._view = view
        self.suspects &= set(view.ids)
        self.departed.clear()
        self._verifying = {member: times for member, times in self._verifying.items() if member in view}
        self._watch(now)
        self._ticked = now
        self._beat(now)

    def heard(self, now: float, member: MemberId) -> bool:
        """A frame came from it. Whether it was a suspect until now."""
        if member in self._heard:
            self._heard[member] = now
        if member in self._verifying:
            del self._verifying[member]
        if member not in self.suspects:
            return False
        self.suspects.remove(member)
        self._watch(now)
        return True

    def verify(self, now: float, member: MemberId) -> None:
        """Somebody has reason to think that it failed."""
        if self._of_others(member) and member not in self.suspects and member not in self._verifying:
            self._verifying[member] = (now + self._settings.verify / 2, now + self._settings.verify)
            self._ask(now, member)

    def confirm(self, now: float, member: MemberId) -> None:
        """Nobody is there at its address."""
        if self._of_others(member) and member not in self.suspects:
            self._verifying.pop(member, None)
            self.suspects.add(member)
            self._watch(now)

    def depart(self, now: float, member: MemberId) -> None:
        """It has another view, or does not take part in changing this one."""
        if self._of_others(member):
            self._verifying.pop(member, None)
            self.departed.add(member)
            self._watch(now)

    def on_time(self, now: float) -> None:
        """Ask again, confirm suspects, and each interval: send heartbeats and look who is silent."""
        settings = self._settings
        if now - self._ticked > 2 * settings.heartbeat + settings.verify:
            # Whoever slept has not heard what the others said meanwhile: it does not judge them.
            self._ticked = now
            self._heard = dict.fromkeys(self._heard, now)
            self._verifying = dict.fromkeys(
                self._verifying, (now + settings.verify / 2, now + settings.verify)
            )
        for member, (again, end) in list(self._verifying.items()):
            if now >= end:
                watched = set(self._heard)
                self.confirm(now, member)
                # Who comes after it in the ring may be as silent, for as long.
                for other in self._heard.keys() - watched:
                    self.verify(now, other)
            elif now >= again:
                self._verifying[member] = (math.inf, end)
                self._ask(now, member)
        if now >= self._tick:
            self._ticked = now
            self._beat(now)
            for member, since in list(self._heard.items()):
                if now - since >= settings.silence:
                    self.verify(now, member)

    def _of_others(self, member: MemberId) -> bool:
        return self._view is not None and member in self._view and member != self._self_id

    def _ask(self, now: float, member: MemberId) -> None:
        assert self._view is not None
        self._port.send(now, member, Kind.ARE_YOU_ALIVE, encode_view_id(self._view.id))

    def _ring(self) -> list[MemberId]:
        """The others in the order of the ring from this member on."""
        assert self._view is not None
        gone = self.gone
        ids = [member for member in self._view.ids if member not in gone]
        at = ids.index(self._self_id)
        return ids[at + 1 :] + ids[:at]

    def _watch(self, now: float) -> None:
        self._heard = {member: self._heard.get(member, now) for member in self._ring()[:_WATCHERS]}

    def _beat(self, now: float) -> None:
        assert self._view is not None
        body = encode_view_id(self._view.id)
        for member in self._ring()[-_WATCHERS:]:
            self._port.send(now, member, Kind.HEARTBEAT, body)
        self._tick = now + self._settings.heartbeat
