"""Status of a LinkRoute from what its routers say, in the form of docs/status.md."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.operator.support import connector, link_route, model, router

from isthmus_operator.events import Announcer
from isthmus_operator.facts import block, complaint, router_facts
from isthmus_operator.render import RenderSettings, render
from isthmus_operator.report import Observation, parse_report
from isthmus_operator.status import PodView, RouterFacts, linkroute_status

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=2)
BROKER = ("mq.example", 5672)


def section(**found: Any) -> dict[str, Any]:
    """An entry of `linkRoutes`."""
    empty: dict[str, Any] = {
        "name": "b2",
        "prefix": "b2",
        "pattern": None,
        "direction": "both",
        "connection": "broker",
        "containerId": None,
        "destinations": 0,
        "remote": 0,
        "links": 0,
        "refusals": 0,
        "lastRefusal": None,
    }
    entry = {**empty, **found}
    return {**entry, "state": "active" if entry["destinations"] else "inactive"}


class World:
    """A broker at west, and east; all is well, and tests break one thing."""

    def __init__(self, **spec: Any) -> None:
        spec = {"prefix": "b2", "connector": "broker", **spec}
        self.manifests = [
            router("west"),
            router("east"),
            connector("link", "west", "east", "inter-router"),
            connector("broker", "west", BROKER, "route-container"),
            link_route(
                "b2",
                meta={"generation": 3},
                **{key: value for key, value in spec.items() if value is not None},
            ),
        ]
        self.connectors = {"west-0": [{"name": "broker", "state": "open", "message": ""}]}
        self.sections: dict[str, list[dict[str, Any]] | None] = {
            "west-0": [section(destinations=1, links=7)],
            "east-0": [section(remote=1)],
        }
        self.total = 0
        """Link routes of a router, when there are more than it lists."""
        self.errors: dict[str, str] = {}
        self.silent: set[str] = set()
        self.heard = NOW
        self.previous: dict[str, Any] | None = None

    def facts(self, name: str) -> RouterFacts:
        pod = f"{name}-0"
        view = PodView(
            pod, pod, "10.0.0.1", name, running=True, ready=True, deleting=False, trouble="", sync=""
        )
        answer: dict[str, Any] = {
            "router": {"id": pod, "version": "7", "ready": True},
            "connectors": self.connectors.get(pod, []),
            "lastConfigError": self.errors.get(pod),
        }
        if self.sections[pod] is not None:
            answer |= {"linkRoutes": self.sections[pod], "linkRoutesTotal": self.total}
        observation = (
            Observation(None, "does not answer")
            if pod in self.silent
            else Observation(parse_report(answer, self.heard))
        )
        return router_facts(
            self.model.routers[name],
            self.rendered,
            outcome=None,
            children=(),
            pods=[view],
            observations={pod: observation},
        )

    def status(self) -> dict[str, Any]:
        self.model = model(*self.manifests)
        self.rendered = render(self.model, RenderSettings("router:1"))
        route = self.model.link_routes["b2"]
        broker = self.model.connectors.get(route.spec.connector or "")
        self.previous = linkroute_status(
            route,
            self.rendered.plan.link_routes.get("b2", {}),
            {name: self.facts(name) for name in self.model.routers},
            broker,
            self.previous,
            "2026-01-01T12:00:00Z",
            blocked=block(route, self.rendered),
            complaint=complaint(route, self.rendered),
            disconnected=block(broker, self.rendered) if broker is not None else None,
        )
        return self.previous


def verdicts(status: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    return {item["type"]: (item["status"], item["reason"]) for item in status["conditions"]}


def message(status: Mapping[str, Any], kind: str = "Ready") -> str:
    return next(str(item["message"]) for item in status["conditions"] if item["type"] == kind)


def test_all_is_well() -> None:
    status = World().status()
    assert verdicts(status) == {
        "Configured": ("True", "Applied"),
        "Matched": ("True", "ContainerAttached"),
        "Ready": ("True", "Ready"),
    }
    assert (
        {item["observedGeneration"] for item in status["conditions"]} == {status["observedGeneration"]} == {3}
    )
    assert message(status, "Configured") == "2 routers know it"
    assert message(status, "Matched") == "1 container attached"
    counts = {key: status[key] for key in ("addresses", "activeDestinations", "attachedLinks", "refusals")}
    assert counts == {"addresses": "b2", "activeDestinations": 1, "attachedLinks": 7, "refusals": 0}
    assert "lastRefusal" not in status


def test_the_container_is_away() -> None:
    world = World()
    world.connectors["west-0"] = [{"name": "broker", "state": "failed", "message": "connection refused"}]
    world.sections = {pod: [section()] for pod in ("west-0", "east-0")}
    status = world.status()
    assert verdicts(status)["Configured"] == ("True", "Applied")
    assert verdicts(status)["Matched"] == verdicts(status)["Ready"] == ("False", "NoContainer")
    assert message(status) == (
        'Connector "broker": west-0: failed: connection refused (spec.to: mq.example:5672)'
    )


def test_a_connector_that_is_not_in_effect_says_why() -> None:
    world = World()
    world.manifests[3] = connector(
        "broker", "west", BROKER, "route-container", sasl={"credentialsSecretRef": {"name": "login"}}
    )
    world.sections = {pod: [section()] for pod in ("west-0", "east-0")}
    status = world.status()
    assert verdicts(status)["Ready"] == ("False", "NoContainer")
    assert message(status) == 'Connector "broker": Secret "login" does not exist'


def test_a_container_that_is_attached_elsewhere_in_the_network_is_one() -> None:
    world = World(connector=None, containerId="mq")
    elsewhere = [section(connection=None, containerId="mq", remote=1)]
    world.sections = {"west-0": elsewhere, "east-0": elsewhere}
    status = world.status()
    assert verdicts(status)["Matched"] == ("True", "ContainerElsewhere")
    assert status["activeDestinations"] == 0
    for item in elsewhere:
        item["remote"] = 0
    status = world.status()
    assert (verdicts(status)["Ready"], message(status)) == (
        ("False", "NoContainer"),
        'no container "mq" is connected to a router',
    )


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ([section(direction="in", remote=1)], "east-0: has not loaded the link route yet"),
        ([section(prefix="old")], "east-0: has not loaded the link route yet"),
        ([], "east-0: has not loaded the link route yet"),
        (None, "east-0 runs version 7, which routes no links"),
    ],
)
def test_a_router_that_does_not_have_it_yet_is_named(
    sections: list[dict[str, Any]] | None, text: str
) -> None:
    world = World()
    world.sections["east-0"] = sections
    status = world.status()
    assert verdicts(status)["Configured"] == verdicts(status)["Ready"] == ("False", "ConfigPending")
    assert message(status) == text
    assert status["activeDestinations"] == 1


def test_what_a_router_with_very_many_does_not_list_is_taken_for_granted() -> None:
    world = World()
    world.sections["east-0"] = []
    world.total = 2000
    assert verdicts(world.status())["Configured"] == ("True", "Applied")


def test_a_refused_configuration_is_told() -> None:
    world = World()
    world.sections["east-0"], world.errors["east-0"] = [], "line 3: no such attribute"
    assert message(world.status()) == "east-0: line 3: no such attribute"


def test_a_router_that_does_not_answer_is_the_matter_of_its_router() -> None:
    world = World()
    world.silent = {"east-0"}
    assert verdicts(world.status())["Ready"] == ("True", "Ready")
    world.silent = {"east-0", "west-0"}
    status = world.status()
    assert (verdicts(status)["Configured"], verdicts(status)["Ready"]) == (("False", "NoReplicaReady"),) * 2
    assert message(status) == "east-0 does not answer; west-0 does not answer"


def test_what_is_wrong_with_the_resource_comes_first_and_heals() -> None:
    world = World(connector="brokers")
    status = world.status()
    assert set(verdicts(status).values()) == {("False", "Pending")}
    assert message(status).startswith('Connector "brokers" (spec.connector) does not exist')
    world.manifests.append(connector("brokers", "west", BROKER, "route-container"))
    for sections in world.sections.values():
        for item in sections or ():
            item["connection"] = "brokers"
    assert verdicts(world.status())["Ready"] == ("True", "Ready")


def test_what_is_wrong_though_it_works_is_told() -> None:
    status = World(routers=["east", "gone"]).status()
    assert verdicts(status) == {
        "Configured": ("False", "Pending"),
        "Matched": ("True", "ContainerAttached"),
        "Ready": ("False", "Pending"),
    }


def test_the_latest_refusal_of_all_routers() -> None:
    world = World()
    for pod, seconds in (("west-0", 90), ("east-0", 5)):
        refusal = {"address": f"b2.{pod}", "description": "no container", "secondsAgo": seconds}
        (world.sections[pod] or [])[0].update(refusals=2, lastRefusal=refusal)
    status = world.status()
    assert status["refusals"] == 4
    expected = {
        "router": "east-0",
        "address": "b2.east-0",
        "description": "no container",
        "time": "2026-01-01T11:59:55Z",
    }
    assert status["lastRefusal"] == expected
    last, older = ((world.sections[pod] or [])[0]["lastRefusal"] for pod in ("east-0", "west-0"))
    world.heard, last["secondsAgo"], older["secondsAgo"] = LATER, 126, 210
    assert world.status()["lastRefusal"] == expected, "the same refusal has the same time"
    last["secondsAgo"] = 1
    assert world.status()["lastRefusal"]["time"] == "2026-01-01T12:01:59Z"
    world.sections["west-0"], world.sections["east-0"] = [section()], [section()]
    assert world.status()["lastRefusal"]["time"] == "2026-01-01T12:01:59Z", (
        "routers that started anew know of none"
    )


def test_a_container_that_has_never_been_there_is_no_news_and_one_that_was_lost_is() -> None:
    announcer, world = Announcer(), World()
    well = world.status()
    world.sections = {pod: [section()] for pod in ("west-0", "east-0")}
    lost = world.status()
    for status in ({}, lost):
        announcer.meet("new", status)
        assert announcer.news("new", lost, 0.0) is announcer.news("new", lost, 60.0) is None
    announcer.meet("old", well)
    assert announcer.news("old", lost, 0.0) is None, "it may come back at once"
    note = announcer.news("old", lost, 11.0)
    assert note is not None
    assert (note.type, note.reason) == ("Warning", "NoContainer")
