"""What is rendered of a resource, and what is refused, in an installation with these restrictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.operator.support import flow_analysis, flow_log, gossip_router, model, router

from isthmus_operator.render import Rendered, RenderSettings, render
from isthmus_operator.render.restrictions import SAFE, Restrictions

SETTINGS = RenderSettings("router:1", collector_image="collector:1", analysis_image="analysis:1")


def rendered(resource: dict[str, Any], allowed: Restrictions = SAFE) -> Rendered:
    around = [router("hub"), flow_log("flows")]
    beside = [item for item in around if item["metadata"]["name"] != resource["metadata"]["name"]]
    return render(model(*beside, resource), replace(SETTINGS, restrictions=allowed))


def refusals(resource: dict[str, Any], allowed: Restrictions = SAFE) -> list[str]:
    """Messages about a resource of which nothing is made."""
    found = rendered(resource, allowed)
    kind, name = resource["kind"], resource["metadata"]["name"]
    messages = [item.message for item in found.findings_of(kind, name) if item.reason == "NotAllowed"]
    made = {owner.name for owner, _ in found.owners() if owner.kind_name == kind}
    assert (name in made) == (not messages), "refused resources have no objects, and all others have"
    return messages


def with_pods_of(template: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """A resource of each kind that has pods, with this `podTemplate`."""
    return (
        router("west", podTemplate=template),
        gossip_router("gossip", podTemplate=template),
        flow_log("log", podTemplate=template),
        flow_analysis("daily", podTemplate=template),
    )
