"""Status from facts: each condition names what is missing and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.operator.support import connector, flow_log, model, router, tls_secret

from isthmus_operator.apply import Outcome
from isthmus_operator.facts import block, router_facts
from isthmus_operator.model import NamespaceModel, Problem
from isthmus_operator.render import Rendered, RenderSettings, render
from isthmus_operator.report import (
    AutoLinkReport,
    ConnectorReport,
    EdgeReport,
    Observation,
    RouterReport,
    UplinkReport,
    parse_report,
)
from isthmus_operator.resources import Router
from isthmus_operator.resources.base import PAUSED_ANNOTATION
from isthmus_operator.resources.router_status import MAX_INSTANCE_STATUSES
from isthmus_operator.status import (
    PodView,
    RouterFacts,
    Verdict,
    connector_status,
    invalid_status,
    normal,
    router_status,
)

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:05:00Z"


AUTO_LINKS = [
    {"address": "orders", "direction": "out"},
    {"address": "orders", "direction": "in", "externalAddress": "queue"},
]


def auto_links(state: str = "active", message: str = "") -> tuple[AutoLinkReport, ...]:
    """What a router says of them: of one of another connector as well."""
    return (
        AutoLinkReport("mq", "orders", "out", None, 0, state, message),
        AutoLinkReport("mq", "orders", "in", "queue", 1, "active", ""),
        AutoLinkReport("other", "orders", "out", None, 0, "failed", "not this one"),
    )


class World:
    """Two interior routers and an edge, all well; tests break one thing."""

    def __init__(self) -> None:
        self.manifests = [
            router("west", replicas=2),
            router("shop", mode="edge"),
            connector("up", "shop", "west", "edge"),
            connector("out", "west", ("peer.example", 5000), "inter-router", tls={"disabled": True}),
            connector("mq", "shop", ("mq.example", 5672), "route-container", autoLinks=AUTO_LINKS),
        ]
        self.model = model(*self.manifests)
        self.rendered: Rendered = render(self.model, RenderSettings("router:1"))
        self.pods = {name: self.pod(name) for name in ("west-0", "west-1", "shop-x")}
        self.observations = {
            "west-0": Observation(self.report("west-0", {"west-1", "peer"}, {"out": "open"})),
            "west-1": Observation(
                self.report("west-1", {"west-0", "peer"}, {"out": "open", "mesh/west-0": "open"})
            ),
            "shop-x": Observation(
                self.report("shop-x", set(), {"up": "open", "mq": "open"}, auto_links=auto_links())
            ),
        }
        self.outcome = Outcome()
        self.updated = {"west": 2, "shop": 1}

    def specify(self, *manifests: dict[str, Any]) -> None:
        """Other specifications, which no pod runs yet."""
        self.model = model(*manifests, secrets=[tls_secret("server")])
        self.rendered = render(self.model, RenderSettings("router:1"))

    def pod(self, name: str, **changes: Any) -> PodView:
        view: dict[str, Any] = {
            "name": name,
            "uid": f"uid-{name}",
            "ip": "10.0.0.1",
            "router": name.split("-", maxsplit=1)[0],
            "running": True,
            "ready": True,
            "deleting": False,
            "trouble": "",
            "sync": "",
        }
        return PodView(**{**view, **changes})

    def report(self, pod: str, seen: set[str], connectors: Mapping[str, str], **changes: Any) -> RouterReport:
        owner = self.rendered.routers[pod.split("-", maxsplit=1)[0]]
        values: dict[str, Any] = {
            "id": pod,
            "version": "1",
            "ready": True,
            "config_hash": owner.expected_hash(pod),
            "neighbors": tuple(sorted(seen)),
            "nodes": frozenset(seen),
            "connectors": {name: ConnectorReport(state, "") for name, state in connectors.items()},
            "failed_listeners": {},
            "config_error": None,
        }
        return RouterReport(**{**values, **changes})

    def change(self, pod: str, **changes: Any) -> None:
        report = self.observations[pod].report
        assert isinstance(report, RouterReport)
        self.observations[pod] = Observation(replace(report, **changes))

    def facts(self, name: str) -> RouterFacts:
        workload = {
            "kind": "StatefulSet",
            "metadata": {"name": name, "generation": 1},
            "status": {"observedGeneration": 1, "updatedReplicas": self.updated[name]},
        }
        return router_facts(
            self.model.routers[name],
            self.rendered,
            outcome=self.outcome,
            children=[workload],
            pods=[pod for pod in self.pods.values() if pod.router == name],
            observations=self.observations,
        )

    def router(self, name: str, previous: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return router_status(self.facts(name), previous, "1", NOW)

    def connector(self, name: str, previous: Mapping[str, Any] | None = None) -> dict[str, Any]:
        found = self.model.connectors[name]
        source = found.spec.from_.router_ref.name
        return connector_status(found, block(found, self.rendered), self.facts(source), previous, NOW)


def verdicts(status: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    return {item["type"]: (item["status"], item["reason"]) for item in status["conditions"]}


def message(status: Mapping[str, Any], kind: str) -> str:
    return next(str(item["message"]) for item in status["conditions"] if item["type"] == kind)


def test_more_pods_than_a_status_lists() -> None:
    """The API server would refuse the whole status, which would stay as it was."""
    world = World()
    world.pods |= {f"shop-{number}": world.pod(f"shop-{number}") for number in range(MAX_INSTANCE_STATUSES)}
    status = world.router("shop")
    assert len(status["instances"]) == MAX_INSTANCE_STATUSES
    assert status["replicas"] == MAX_INSTANCE_STATUSES + 1


def test_all_is_well() -> None:
    world = World()
    assert verdicts(world.router("west")) == {
        "Configured": ("True", "Applied"),
        "Available": ("True", "AllReplicasReady"),
        "Meshed": ("True", "AllPeersSeen"),
        "Ready": ("True", "Ready"),
        "Insecure": ("True", "ClearText"),
    }
    assert world.router("west")["neighbors"] == 1, "its own replicas are no neighbours"
    assert verdicts(world.router("shop"))["Meshed"] == ("True", "UplinksOpen")
    assert verdicts(world.connector("out")) == {
        "Configured": ("True", "Applied"),
        "Operational": ("True", "ConnectionsOpen"),
        "Ready": ("True", "Ready"),
        "Insecure": ("True", "ClearText"),
    }


def test_a_replica_that_does_not_see_another_is_named_with_the_reason() -> None:
    world = World()
    failed = {
        "out": ConnectorReport("open", ""),
        "mesh/west-0": ConnectorReport("failed", "certificate expired"),
    }
    world.change("west-1", nodes=frozenset(), neighbors=(), connectors=failed)
    status = world.router("west")
    assert verdicts(status)["Meshed"] == ("False", "PeersMissing")
    assert message(status, "Ready") == "west-1 does not see west-0 (certificate expired)"


def test_an_edge_without_uplink() -> None:
    world = World()
    world.change("shop-x", connectors={"up": ConnectorReport("connecting", "refused")})
    status = world.router("shop")
    assert verdicts(status)["Ready"] == ("False", "UplinkMissing")
    assert "shop-x" in message(status, "Meshed")
    assert "refused" in message(status, "Meshed")
    assert verdicts(world.connector("up"))["Operational"] == ("False", "NoConnection")


def test_one_closed_connection_of_two() -> None:
    world = World()
    world.change("west-1", connectors={"out": ConnectorReport("failed", "wrong CA")})
    status = world.connector("out")
    assert (status["openConnections"], status["connections"]) == (1, 2)
    assert verdicts(status)["Operational"] == ("False", "ConnectionsMissing")
    assert "west-1: failed: wrong CA (spec.to: peer.example:5000)" in message(status, "Ready")


def test_a_configuration_on_its_way_and_one_that_is_refused() -> None:
    world = World()
    world.change("west-0", config_hash="old")
    assert verdicts(world.router("west"))["Configured"] == ("False", "ConfigPending")
    assert verdicts(world.connector("out"))["Configured"] == ("False", "ConfigPending")
    world.change("west-0", config_error="line 3: nonsense")
    status = world.router("west")
    assert verdicts(status)["Configured"] == ("False", "ConfigRejected")
    assert "west-0: line 3: nonsense" in message(status, "Configured")


def test_what_a_router_cannot_load_is_told_though_the_configuration_is_the_right_one() -> None:
    world = World()
    world.change("west-1", config_error="sslProfile server: cannot load tls.key: key values mismatch")
    status = world.router("west")
    for kind in ("Configured", "Ready"):
        assert verdicts(status)[kind] == ("False", "ConfigRejected")
        assert message(status, kind).startswith("west-1: sslProfile server: cannot load tls.key")
    assert status["instances"][1]["message"].startswith("sslProfile server")
    world.change("west-1", config_hash="old")
    assert "cannot load tls.key" in message(world.connector("out"), "Configured")


def test_auto_links_are_told_one_by_one() -> None:
    world = World()
    status = world.connector("mq")
    assert verdicts(status)["Ready"] == ("True", "Ready")
    out, back = AUTO_LINKS
    assert status["autoLinks"] == [{**out, "phase": 0, "attached": 1}, {**back, "phase": 1, "attached": 1}]
    assert "autoLinks" not in world.connector("up")
    world.change("shop-x", auto_links=auto_links("failed", "amqp:not-found: no such queue"))
    status = world.connector("mq")
    assert verdicts(status)["Operational"] == ("False", "AutoLinksMissing")
    words = "shop-x: auto-link out of orders is failed: amqp:not-found: no such queue"
    assert message(status, "Ready") == words
    assert [(item["attached"], item.get("message")) for item in status["autoLinks"]] == [
        (0, "amqp:not-found: no such queue"),
        (1, None),
    ]
    world.change("shop-x", connectors={"mq": ConnectorReport("failed", "refused")})
    assert verdicts(world.connector("mq"))["Operational"] == ("False", "NoConnection")


def test_a_connector_from_a_router_without_replicas_says_so() -> None:
    world = World()
    world.model = model(router("west", replicas=0), world.manifests[3])
    world.rendered = render(world.model, RenderSettings("router:1"))
    world.pods, world.updated = {}, {"west": 0}
    status = world.connector("out")
    found = verdicts(status)
    assert found.pop("Insecure") == ("False", "NotInEffect")
    assert set(found.values()) == {("False", "ScaledToZero")}
    for kind in found:
        assert message(status, kind) == 'Router "west" (spec.from.routerRef) is scaled to zero'
    assert verdicts(world.router("west"))["Ready"] == ("True", "Ready")


def test_a_connector_with_a_broken_secret_that_goes_on_with_the_earlier_one() -> None:
    world = World()
    found = world.model.connectors["out"]
    complaint = Verdict("False", "SecretInvalid", "broken")
    status = connector_status(found, None, world.facts("west"), None, NOW, complaint=complaint)
    assert verdicts(status) == {
        "Configured": ("False", "SecretInvalid"),
        "Operational": ("True", "ConnectionsOpen"),
        "Ready": ("False", "SecretInvalid"),
        "Insecure": ("True", "ClearText"),
    }


def test_a_listener_that_cannot_listen() -> None:
    world = World()
    world.change("west-0", failed_listeners={"amqp": "address in use"})
    assert "address in use" in message(world.router("west"), "Ready")


@pytest.mark.parametrize(
    ("changes", "reason", "text"),
    [
        (
            {"ready": False, "running": False, "trouble": "ErrImagePull: gone"},
            "ReplicasMissing",
            "ErrImagePull",
        ),
        ({"ready": False}, "ReplicasMissing", "west-1: not ready"),
        ({"deleting": True}, "ReplicasMissing", "1 of 2"),
    ],
)
def test_missing_replicas(changes: dict[str, Any], reason: str, text: str) -> None:
    world = World()
    world.pods["west-1"] = world.pod("west-1", **changes)
    status = world.router("west")
    assert verdicts(status)["Available"] == ("False", reason)
    assert text in message(status, "Available")
    assert verdicts(status)["Ready"][0] == "False"


def test_a_rollout_and_an_object_that_could_not_be_applied() -> None:
    world = World()
    world.updated["west"] = 1
    assert verdicts(world.router("west"))["Configured"] == ("False", "RolloutInProgress")
    assert "no quota" in message(
        router_status(replace(world.facts("west"), creation_failure="no quota"), None, "1", NOW), "Ready"
    )
    world.outcome.problems.append(Problem("ApplyFailed", 'Service "west": refused', transient=False))
    assert verdicts(world.router("west"))["Ready"] == ("False", "ApplyFailed")


def test_a_router_never_asked_is_not_reported_as_lost() -> None:
    world = World()
    assert not world.facts("west").unheard
    del world.observations["west-1"]
    assert world.facts("west").unheard
    world.observations["west-1"] = Observation(None, "does not answer: connection refused")
    assert not world.facts("west").unheard
    assert message(world.router("west"), "Meshed") == "west-1 does not answer: connection refused"


def test_the_time_of_transition_is_kept_until_the_status_flips() -> None:
    world = World()
    first = world.router("west")
    same = router_status(world.facts("west"), first, "1", LATER)
    assert normal(same) == normal(first), "nothing to write"
    world.change("west-0", config_hash="old")
    flipped = router_status(world.facts("west"), first, "1", LATER)
    times = {item["type"]: item["lastTransitionTime"] for item in flipped["conditions"]}
    assert times.pop("Insecure") == NOW
    assert times == {"Configured": LATER, "Available": NOW, "Meshed": NOW, "Ready": LATER}


def test_an_edge_replica_shows_its_uplinks() -> None:
    world = World()
    active, standby = UplinkReport("up", "west-0", 4), UplinkReport("spare", "east-1", None)
    world.change("shop-x", edge=EdgeReport(active, (standby,), proxied_addresses=7))
    status = world.router("shop")
    (instance,) = status["instances"]
    assert instance["uplink"] == {"connector": "up", "router": "west-0", "ordinal": 4}
    assert instance["standbys"] == [{"connector": "spare", "router": "east-1"}]
    assert instance["proxiedAddresses"] == 7
    Router.model_validate({"metadata": {"name": "shop"}, "spec": {"mode": "edge"}, "status": status})


def test_refusals_of_a_policy_are_shown_where_there_is_one() -> None:
    world = World()
    world.change("shop-x", policy_denials=7)
    (instance,) = world.router("shop")["instances"]
    assert "policyDenials" not in instance
    world.manifests[1]["spec"]["policy"] = {"defaultGroup": {"sources": ["#"]}}
    world.model = model(*world.manifests)
    (instance,) = world.router("shop")["instances"]
    assert instance["policyDenials"] == 7


def test_a_report_is_read_and_anything_else_is_refused() -> None:
    report = parse_report(
        {
            "router": {"id": "a", "version": "1", "ready": True, "configHash": "h"},
            "neighbors": [{"id": "c", "cost": 1}, {"id": "b", "cost": 1}],
            "nodes": [{"id": "b", "nextHop": "b", "cost": 1}],
            "connectors": [
                {"name": "k", "role": "edge", "state": "failed", "message": None},
                {"name": "up", "role": "edge", "state": "open", "container": "d", "message": ""},
                {"name": "broker", "role": "route-container", "state": "open", "container": "e"},
            ],
            "listeners": [
                {"name": "l", "state": "failed", "message": "in use"},
                {"name": "m", "state": "listening"},
            ],
            "autoLinks": [
                {
                    "name": None,
                    "address": "orders",
                    "direction": "in",
                    "phase": 1,
                    "externalAddress": "queue",
                    "connection": "broker",
                    "containerId": None,
                    "state": "failed",
                    "message": "no",
                }
            ],
            "edge": {
                "active": {"connector": "up", "container": "d", "tlsOrdinal": 4},
                "standbys": [{"connector": "spare", "container": "x", "tlsOrdinal": None}],
                "proxiedAddresses": 7,
            },
            "policyDenials": {"connection": 2, "sender": 1},
            "lastConfigError": None,
        },
        datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert report.policy_denials == 3
    assert report.edge == EdgeReport(
        UplinkReport("up", "d", 4), (UplinkReport("spare", "x", None),), proxied_addresses=7
    )
    assert report.auto_links == (AutoLinkReport("broker", "orders", "in", "queue", 1, "failed", "no"),)
    assert report.neighbors == ("b", "c", "d")
    assert report.connectors["k"] == ConnectorReport("failed", "")
    assert report.connectors["up"].state == "open"
    assert report.failed_listeners == {"l": "in use"}
    for wrong in ({}, {"router": {}}, {"router": {"id": "a"}, "connectors": [{}]}, {"router": []}):
        with pytest.raises(ValueError, match="not a router's status"):
            parse_report(wrong, datetime(2026, 1, 1, tzinfo=UTC))


def test_a_resource_that_cannot_be_read_says_so_and_its_objects_are_left_alone() -> None:
    broken = router("west", mode="standalone")
    built = NamespaceModel.from_manifests("net", [broken, router("east")])
    assert set(render(built, RenderSettings("router:1")).routers) == {"east"}
    (invalid,) = built.invalid
    status = invalid_status(broken, invalid.message, {"replicas": 2}, NOW)
    assert verdicts(status)["Ready"] == ("False", "InvalidSpec")
    assert "spec.mode" in message(status, "Ready")
    assert status["replicas"] == 2, "what was observed last is kept"


def test_a_flow_log_that_uses_a_listener_for_anybody_shows_flow_records_there() -> None:
    world = World()
    own, shared = flow_log("flows", "west"), flow_log("flows", "west", tls={"disabled": True})
    for manifests, shown in (([], False), ([own], False), ([shared], True)):
        world.model = model(*world.manifests, *manifests)
        world.rendered = render(world.model, RenderSettings("router:1"))
        for name, expected in (("west", shown), ("shop", False)):
            conditions = {item["type"]: item for item in world.router(name)["conditions"]}
            assert ("flow records" in conditions["Insecure"]["message"]) == expected


MUTUAL = {"secretName": "server", "requireClientCertificate": True}
MESH = {"name": "mesh", "port": 55671, "role": "inter-router"}
SECURE = {"listeners": [{"name": "amqp", "port": 5672, "tls": MUTUAL}, MESH]}
TOWARDS = ("out", "west", ("peer.example", 5000), "inter-router")


def test_a_router_stays_insecure_until_no_pod_runs_the_earlier_configuration() -> None:
    world = World()
    status = world.router("west")
    assert verdicts(status)["Insecure"] == ("True", "ClearText")
    world.specify(router("west", replicas=2, **SECURE))
    for _ in range(2):  # the second is about the status that the first has written
        status = world.router("west", status)
        assert verdicts(status)["Insecure"] == ("True", "EarlierConfiguration")
    world.change("west-0", config_hash=world.rendered.routers["west"].expected_hash("west-0"))
    status = world.router("west", status)
    assert verdicts(status)["Insecure"] == ("True", "EarlierConfiguration")
    world.change("west-1", config_hash=world.rendered.routers["west"].expected_hash("west-1"))
    status = world.router("west", status)
    assert verdicts(status)["Insecure"] == ("False", "Secured")
    world.change("west-1", config_hash="another")
    assert verdicts(world.router("west", status))["Insecure"] == ("False", "Secured"), "both are secure"


def test_what_keeps_the_earlier_configuration_in_effect_keeps_it_insecure() -> None:
    """Reconciliation is paused, the rollout waits, or an object is refused."""
    world = World()
    before = world.router("west")
    secure = router("west", replicas=2, **SECURE)

    def current(*manifests: dict[str, Any]) -> tuple[str, str]:
        world.specify(*manifests)
        for pod in ("west-0", "west-1"):
            world.change(pod, config_hash=world.rendered.routers["west"].expected_hash(pod))
        return verdicts(world.router("west", before))["Insecure"]

    assert current(secure) == ("False", "Secured")
    kept = ("True", "EarlierConfiguration")
    paused = {"annotations": {PAUSED_ANNOTATION: "true"}}
    assert current(router("west", replicas=2, meta=paused, **SECURE)) == kept
    world.updated["west"] = 1
    assert current(secure) == kept
    world.updated["west"] = 2
    world.outcome = Outcome(problems=[Problem("ApplyFailed", "no", transient=False)])
    assert current(secure) == kept
    world.outcome = Outcome()
    world.pods.clear()
    assert current(secure) == ("False", "Secured"), "no pod is left"


def test_a_connector_stays_insecure_until_the_routers_have_the_change() -> None:
    world = World()
    before = world.connector("out")
    assert verdicts(before)["Insecure"] == ("True", "ClearText")
    world.specify(router("west", replicas=2), connector(*TOWARDS, tls={"secretName": "server"}))
    status = world.connector("out", before)
    assert verdicts(status)["Insecure"] == ("True", "EarlierConfiguration")
    for pod in ("west-0", "west-1"):
        world.change(pod, config_hash=world.rendered.routers["west"].expected_hash(pod))
    assert verdicts(world.connector("out", status))["Insecure"][0] == "False"


def test_a_specification_that_cannot_be_read_leaves_what_is_insecure_insecure() -> None:
    broken = router("west", mode="standalone")
    insecure = verdicts(invalid_status(broken, "no", World().router("west"), NOW))
    assert insecure["Insecure"] == ("True", "ClearText")
    assert insecure["Ready"] == ("False", "InvalidSpec")
