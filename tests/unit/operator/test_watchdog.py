"""The watchdog distinguishes a watch that is late from one that is dead, and discards what has been deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from isthmus_operator import metrics
from isthmus_operator.cluster import ApiError
from isthmus_operator.watchdog import PERIOD_SECONDS, SILENT_SECONDS, Versions, Watchdog, missed

A = ("Router", "uid-a")


@pytest.mark.parametrize(
    ("suspects", "listed", "watched", "dead"),
    [
        ({}, {A: "2"}, {A: "1"}, []),
        ({A: "2"}, {A: "2"}, {A: "2"}, []),
        ({A: "2"}, {A: "3"}, {A: "1"}, []),
        ({A: "2"}, {}, {A: "1"}, []),
        ({A: "2"}, {A: "2"}, {A: "1"}, [A]),
        ({A: "2"}, {A: "2"}, {}, [A]),
    ],
)
def test_missed(suspects: Versions, listed: Versions, watched: Versions, dead: list[tuple[str, str]]) -> None:
    assert missed(suspects, listed, watched) == dead


Place = tuple[str, str, str]
"""Namespace, name and uid of a Router."""


class World:
    """Routers that the API server has, and those that the operator holds."""

    def __init__(
        self, *held: Place, listed: tuple[Place, ...] = (), places: tuple[str | None, ...] = (None,)
    ) -> None:
        self.held = list(held)
        self.listed = list(listed)
        self.refused: set[str] = set()
        self.discarded: list[Place] = []
        self.nudged: list[str] = []
        self.store = self
        self.unattended: set[str] = set()
        self.now = self.delivered_at = 1000.0
        self.dog = Watchdog(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            lambda: places,
            self._discard,
            lambda: self.delivered_at,
            lambda: self.now,
        )

    async def pages(self, kind: str, namespace: str | None, **_: Any) -> AsyncIterator[list[dict[str, Any]]]:
        if namespace in self.refused:
            raise ApiError(403, "Forbidden", "no")
        found = self.listed if kind == "Router" else []
        yield [manifest(place) for place in found if namespace in (None, place[0])]

    def namespaces(self) -> set[str]:
        return {namespace for namespace, _, _ in self.held}

    def resources(self, namespace: str) -> list[dict[str, Any]]:
        return [manifest(place) for place in self.held if place[0] == namespace]

    def attends(self, namespace: str) -> bool:
        return namespace not in self.unattended

    def stuck(self) -> None:
        return None

    def nudge(self, namespace: str) -> None:
        assert namespace not in self.namespaces(), "the operator discards first"
        self.nudged.append(namespace)

    def _discard(self, *place: str) -> None:
        self.discarded.append((place[0], place[1], place[2]))
        self.held.remove(self.discarded[-1])


def manifest(place: Place) -> dict[str, Any]:
    namespace, name, uid = place
    return {
        "kind": "Router",
        "metadata": {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": "1"},
    }


GONE, STAYS, NEW = ("gone", "hub", "1"), ("net", "hub", "2"), ("net", "hub", "3")


async def test_what_two_lists_lack_is_discarded_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    world = World(GONE, STAYS, listed=(STAYS,))
    before = metrics.MISSED_DELETIONS._value.get()
    await world.dog.check()
    assert world.discarded == []
    await world.dog.check()
    assert (world.discarded, world.nudged, world.held) == ([GONE], ["gone"], [STAYS])
    assert metrics.MISSED_DELETIONS._value.get() == before + 1
    assert "watchdog: discarded 1 deleted resources" in caplog.text
    await world.dog.check()
    assert world.discarded == [GONE]
    assert world.dog.trouble is None


async def test_a_resource_that_is_created_after_the_list_stays() -> None:
    world = World(STAYS)
    for _ in range(3):
        await world.dog.check()
        world.listed, world.held = (
            list(world.held),
            [("net", "hub", f"{len(world.held[0])} more"), *world.held],
        )
    assert world.discarded == []


async def test_a_resource_that_was_replaced_is_discarded_alone() -> None:
    world = World(STAYS, NEW, listed=(NEW,))
    world.nudge = world.nudged.append  # type: ignore[method-assign]
    await world.dog.check()
    await world.dog.check()
    assert (world.discarded, world.nudged) == ([STAYS], ["net"])


async def test_resources_of_a_namespace_that_is_not_listed_stay() -> None:
    world = World(GONE, STAYS, places=("gone", "net"))
    world.refused = {"gone"}
    await world.dog.check()
    world.refused = set()
    await world.dog.check()
    assert world.discarded == [STAYS]
    world = World(GONE, places=("net",))
    await world.dog.check()
    await world.dog.check()
    assert world.discarded == []


async def test_a_start_that_does_not_come_to_an_end_is_trouble(caplog: pytest.LogCaptureFixture) -> None:
    """After an error of one list at the start, kopf reconciled nothing, and the process stayed the leader."""
    world = World(STAYS, listed=(STAYS,))
    world.unattended = {"net"}
    for _ in range(20):
        await world.dog.check()
        assert world.dog.trouble is None, "the lists of a large cluster take minutes"
        world.now += PERIOD_SECONDS
        world.delivered_at = world.now
    world.now += SILENT_SECONDS - 1
    await world.dog.check()
    assert world.dog.trouble is None
    world.now += 1
    await world.dog.check()
    assert world.dog.trouble == (
        "namespace net has resources and no reconciliation, and the lists and watches have delivered nothing for 300 "
        "seconds"
    )
    assert world.dog.trouble in caplog.text
    world.unattended = set()
    await world.dog.check()
    assert world.dog.trouble is None, "a cluster in which nothing changes delivers nothing"


async def test_the_first_resource_of_a_namespace_is_no_trouble() -> None:
    """It may be listed before its event comes, after a long time in which nothing has changed."""
    world = World(STAYS, listed=(STAYS,))
    world.now += 10 * SILENT_SECONDS
    world.unattended = {"net"}
    await world.dog.check()
    assert world.dog.trouble is None
    world.unattended = {"other"}
    await world.dog.check()
    assert world.dog.trouble is None


async def test_a_cluster_without_resources_is_no_trouble() -> None:
    world = World()
    world.now += 10 * SILENT_SECONDS
    await world.dog.check()
    assert world.dog.trouble is None


async def test_a_namespace_that_may_not_be_read_is_no_trouble() -> None:
    world = World(STAYS, listed=(STAYS,), places=("net",))
    world.refused = world.unattended = {"net"}
    world.now += 10 * SILENT_SECONDS
    await world.dog.check()
    assert world.dog.trouble is None
