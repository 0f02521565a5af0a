"""Which pods are touched so that the kubelet delivers a changed configuration, and how often."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.operator.support import model, router
from tests.unit.operator.test_status import World

from isthmus_operator.kubelet import MAX_ATTEMPTS, RETRY_SECONDS, ConfigSync
from isthmus_operator.names import ANNOTATION_SYNC
from isthmus_operator.render import RenderSettings, render
from isthmus_operator.report import Observation


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def changed(world: World) -> World:
    """The same world after a change of the Router `west`."""
    addresses = [{"prefix": "a", "distribution": "multicast"}]
    world.model = model(router("west", replicas=2, addresses=addresses), *world.manifests[1:])
    world.rendered = render(world.model, RenderSettings("router:1"))
    return world


def touched(sync: ConfigSync, world: World) -> list[str]:
    return [pod.name for pod, _ in sync.touches(world.facts("west"))]


def test_a_new_pod_has_mounted_what_there_is_and_is_not_touched() -> None:
    sync, world = ConfigSync(Clock()), World()
    assert touched(sync, world) == []
    assert not sync.waiting(world.facts("west"))


def test_a_change_touches_every_running_pod_at_once_and_once_more() -> None:
    clock = Clock()
    sync, world = ConfigSync(clock), World()
    touched(sync, world)
    world.pods["west-1"] = replace(world.pods["west-1"], running=False)
    changed(world)
    assert touched(sync, world) == ["west-0"]
    assert touched(sync, world) == [], "not again at once"
    assert sync.waiting(world.facts("west"))
    clock.now += RETRY_SECONDS
    assert touched(sync, world) == ["west-0"]


def test_a_router_that_stays_behind_is_touched_again_within_bounds() -> None:
    clock = Clock()
    sync, world = ConfigSync(clock), World()
    touched(sync, world)
    changed(world)
    count = 0
    for _ in range(3 * MAX_ATTEMPTS):
        count += touched(sync, world).count("west-0")
        clock.now += RETRY_SECONDS
    assert count == MAX_ATTEMPTS + 1
    assert not sync.waiting(world.facts("west"))


def test_a_router_that_has_taken_over_is_left_alone() -> None:
    clock = Clock()
    sync, world = ConfigSync(clock), World()
    touched(sync, world)
    changed(world)
    touched(sync, world)
    for pod in ("west-0", "west-1"):
        report = world.observations[pod].report
        assert report is not None
        expected = world.rendered.routers["west"].expected_hash(pod)
        world.observations[pod] = Observation(replace(report, config_hash=str(expected)))
    clock.now += RETRY_SECONDS
    assert touched(sync, world) == ["west-0", "west-1"], "the second touch comes in any case"
    clock.now += RETRY_SECONDS
    assert touched(sync, world) == []


def test_the_annotation_tells_content_and_attempt() -> None:
    sync, world = ConfigSync(Clock()), World()
    touched(sync, world)
    changed(world)
    marks: list[Any] = [dict(mark) for _, mark in sync.touches(world.facts("west"))]
    assert marks[0].keys() == {ANNOTATION_SYNC}
    assert marks[0][ANNOTATION_SYNC].endswith("-0")


def test_pods_that_are_gone_are_forgotten() -> None:
    sync, world = ConfigSync(Clock()), World()
    touched(sync, world)
    sync.forget([])
    changed(world)
    assert touched(sync, world) == [], "they count as new"
