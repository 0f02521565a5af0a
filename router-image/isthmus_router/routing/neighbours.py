"""The HELLO protocol: which routers are heard on which control links, and which of them hear us.

A router that names us in its HELLO is a neighbour. With several control links to one neighbour, the cheapest
one is used and, of equally cheap ones, the newest: it still works if an older one is dying unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _ControlLink:
    cost: int
    order: int
    """Grows with every link that comes up."""
    least: int | None
    """Given: the cost is what the router at the other end announces, and at least this."""


@dataclass(frozen=True, slots=True)
class NeighbourChange:
    """``link`` is the control link in use now, None for a lost neighbour; ``previous`` the one before."""

    router: str
    link: int | None
    previous: int | None


class Neighbours:
    """Control links by their mask bit, routers heard on them, and neighbours. Times are in seconds."""

    def __init__(self, max_age: float) -> None:
        self._max_age = max_age
        self._links: dict[int, _ControlLink] = {}
        self._links_opened = 0
        self._speakers: dict[int, str] = {}
        """The router at the other end of a link: the first that says HELLO on it."""
        self._heard: dict[str, float] = {}
        self._instances: dict[str, int] = {}
        """That of the last HELLO of each router in use."""
        self._confirmed: dict[str, dict[int, float]] = {}
        """When a router last named us, by link."""
        self._in_use: dict[str, int] = {}

    @property
    def links(self) -> list[int]:
        """Control links that are up."""
        return list(self._links)

    @property
    def in_use(self) -> dict[str, int]:
        """Control link in use by neighbour, as of the last :meth:`refresh`."""
        return dict(self._in_use)

    def link_to(self, router: str) -> int | None:
        """The control link in use to a router; None if it is no neighbour."""
        return self._in_use.get(router)

    def costs(self) -> dict[str, int]:
        """Cost of the link in use by neighbour: the local link state."""
        return {router: self._links[link].cost for router, link in self._in_use.items()}

    def link_up(self, link: int, cost: int, least: int | None = None) -> None:
        """A control link came up, or its cost changed."""
        known = self._links.get(link)
        if known is not None:
            known.cost = cost
            return
        self._links_opened += 1
        self._links[link] = _ControlLink(cost, self._links_opened, least)

    def follow(self, router: str, cost: int) -> None:
        """``router`` announces the cost of its link to us."""
        known = self._links.get(self._in_use.get(router, -1))
        if known is not None and known.least is not None:
            known.cost = max(known.least, cost)

    def admits(self, router: str, link: int) -> bool:
        """Whether a HELLO of `router` may come on `link`, which leads to one router as long as it is up."""
        return self._speakers.get(link, router) == router

    def link_down(self, link: int) -> None:
        """A control link is gone; nothing said on it counts any longer."""
        self._links.pop(link, None)
        self._speakers.pop(link, None)
        for confirmed in self._confirmed.values():
            confirmed.pop(link, None)

    def leads_to(self, router: str, link: int) -> bool:
        """Whether `router` says HELLO on a link."""
        return self._speakers.get(link) == router

    def instance_of(self, router: str) -> int | None:
        """Which life of a neighbour sends HELLO messages; None for other routers."""
        return self._instances.get(router) if router in self._in_use else None

    def heard(self, router: str, link: int, *, names_us: bool, now: float, instance: int) -> bool:
        """A HELLO of ``router`` came in on ``link``; returns whether the router was not heard lately."""
        if link not in self._links:
            return False
        last = self._heard.get(router)
        self._heard[router] = now
        self._instances[router] = instance
        self._speakers[link] = router
        if names_us:
            self._confirmed.setdefault(router, {})[link] = now
        return last is None or now >= last + self._max_age

    def seen(self, now: float) -> tuple[str, ...]:
        """Routers heard lately: what our own HELLO reports."""
        return tuple(router for router, last in self._heard.items() if now < last + self._max_age)

    def refresh(self, now: float) -> list[NeighbourChange]:
        """Forget what is too old, choose each neighbour's link; returns what changed since the last call."""
        self._heard = {router: at for router, at in self._heard.items() if now < at + self._max_age}
        self._instances = {router: self._instances[router] for router in self._heard}
        chosen: dict[str, int] = {}
        for router, confirmed in list(self._confirmed.items()):
            for link in [link for link, at in confirmed.items() if now >= at + self._max_age]:
                del confirmed[link]
            if confirmed:
                chosen[router] = min(confirmed, key=self._preference)
            else:
                del self._confirmed[router]
        before, self._in_use = self._in_use, chosen
        return [
            NeighbourChange(router, chosen.get(router), before.get(router))
            for router in sorted(before.keys() | chosen.keys())
            if chosen.get(router) != before.get(router)
        ]

    def _preference(self, link: int) -> tuple[int, int]:
        return self._links[link].cost, -self._links[link].order

    def deadline(self) -> float:
        """When the first neighbour's link becomes too old unless confirmed again; infinity without one."""
        times = (at for confirmed in self._confirmed.values() for at in confirmed.values())
        return min((at + self._max_age for at in times), default=float("inf"))

    def postpone(self, seconds: float) -> None:
        """Take everything as heard that much later: we were stalled, the neighbours were not."""
        self._heard = {router: at + seconds for router, at in self._heard.items()}
        for confirmed in self._confirmed.values():
            for link in confirmed:
                confirmed[link] += seconds
