"""A look at a namespace takes time in proportion to its Routers, also of those that have no pods."""

from __future__ import annotations

import time

from tests.unit.operator.support import model, router

from isthmus_operator.facts import router_facts
from isthmus_operator.render import KubernetesResolver, RenderSettings, render
from isthmus_operator.status import Users, usage


def test_profiles_of_many_routers_without_pods() -> None:
    """80 Routers of 32 replicas each: with a pass over all of them for each profile, 3 s."""
    built = model(*(router(f"r{number}", replicas=32) for number in range(80)))
    rendered = render(built, RenderSettings(router_image="router:1"))
    facts = {
        name: router_facts(item, rendered, outcome=None, children=(), pods=(), observations={})
        for name, item in built.routers.items()
    }
    resolver = KubernetesResolver("net")
    begun = time.process_time()
    users = Users(built, rendered.plan.instances, lambda instance, target: resolver.dial(instance, target)[0])
    found = {name: usage(name, 1, facts, users, ()) for name in built.profiles}
    assert all(built.has_listeners_with(name) for name in built.profiles)
    taken = time.process_time() - begun
    assert len(found) == 80
    assert {len(item.hosts) for item in found.values()} == {31}
    assert not any(item.pods or item.unheard for item in found.values())
    assert taken < 1.5
