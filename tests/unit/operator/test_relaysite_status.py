"""Status of RelaySites and GossipRouters from what routers and Kubernetes report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.operator.support import gossip_router, model, relay_site, router

from isthmus_operator.facts import block, status_of_relay_site
from isthmus_operator.model import Problem
from isthmus_operator.render import RenderSettings, render
from isthmus_operator.report import Observation, parse_report
from isthmus_operator.status import PodView, RouterFacts, gossiprouter_status
from isthmus_router.relay_site.status import MemberStatus, RelayStatus, RemoteStatus, relay_document

NOW = "2026-01-01T00:00:00Z"
IDS = tuple(f"{number:032x}" for number in range(3))


def remote(site: str, state: str = "up", **values: Any) -> RemoteStatus:
    counts = dict.fromkeys(
        (
            *("lag_messages", "lag_bytes", "dropped_messages", "replayed_messages"),
            *("duplicate_messages", "gap_messages"),
        ),
        0,
    )
    given = {"members": (), "problem": "", "lag_seconds": 0.0, "round_trip_seconds": None, **counts, **values}
    return RemoteStatus(site=site, state=state, **given)


def relay(
    *remotes: RemoteStatus, number: int = 0, view: int = 7, members: int = 2, **values: Any
) -> RelayStatus:
    return RelayStatus(
        group=values.get("group", "trades"),
        site="nyc",
        id=IDS[number],
        view=view,
        members=tuple(
            MemberStatus(IDS[n], f"east-{n}", n == 0) for n in range(values.get("first", 0), members)
        ),
        remotes=remotes,
        buffered_messages=0,
        buffered_bytes=0,
        problems=values.get("problems", ()),
        accepts=values.get("accepts", True),
    )


def status(*relays: RelayStatus | None, site: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Of the site nyc, whose pods report these."""
    spec = {"remoteSites": [{"site": "sfo"}], **spec}
    built = model(router("east", replicas=2), site or relay_site("nyc", "east", **spec))
    found = render(built, RenderSettings(router_image="router:1"))
    observations, pods = {}, []
    for number, item in enumerate(relays):
        name = f"east-{number}"
        answer: dict[str, Any] = {
            "router": {"id": name, "configHash": found.routers["east"].expected_hash(name)},
            "relay": relay_document(item) if item is not None else None,
        }
        observations[name] = Observation(parse_report(answer, datetime.now(UTC)))
        pods.append(PodView(name, name, "10.0.0.1", "east", True, True, False, "", ""))
    facts = RouterFacts(
        router=built.routers["east"],
        rendered=found.routers["east"],
        instances=found.plan.instances["east"],
        blocked=None,
        problems=(),
        workload=None,
        services=(),
        pods=tuple(pods),
        observations=observations,
    )
    return status_of_relay_site(built.relay_sites["nyc"], found, {"east": facts}, None, NOW)


def verdicts(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {item["type"]: (item["status"], item["reason"]) for item in found["conditions"]}


def message(found: dict[str, Any], kind: str = "Ready") -> str:
    return next(str(item["message"]) for item in found["conditions"] if item["type"] == kind)


def test_a_site_that_is_well() -> None:
    seen = remote(
        "sfo", members=("west-0",), lag_messages=3, lag_bytes=300, lag_seconds=0.25, replayed_messages=4
    )
    found = status(relay(seen), relay(remote("sfo", "unknown"), number=1))
    assert verdicts(found) == {
        "Configured": ("True", "Applied"),
        "Formed": ("True", "Formed"),
        "Bridged": ("True", "AllSitesUp"),
        "Ready": ("True", "Ready"),
        "Insecure": ("False", "Secured"),
    }
    assert (found["coordinator"], found["formed"], found["view"]) == ("east-0", "2/2", "7 of east-0")
    assert [(item["name"], item["relay"]) for item in found["members"]] == [
        ("east-0", True),
        ("east-1", False),
    ]
    assert found["remotes"] == "sfo up"
    assert (found["lagMessages"], found["lagMilliseconds"]) == (3, 250)
    assert found["bridge"] == "nyc-bridge.net.svc:7900"
    (told,) = found["remoteSites"]
    assert (told["members"], told["bufferedBytes"], told["replayed"]) == (["west-0"], 300, 4)


def test_what_many_members_count_stays_in_the_range_of_numbers() -> None:
    """The API server refuses a status with a number that does not fit."""
    seen = [remote("sfo", replayed_messages=2**53, duplicate_messages=2**53, gap_messages=2**53)] * 2000
    (told,) = status(relay(*seen), relay(*seen, number=1))["remoteSites"]
    assert (told["replayed"], told["duplicates"], told["gaps"]) == (2**53,) * 3


def test_a_remote_site_that_cannot_be_reached_is_told_with_the_reason_and_what_waits() -> None:
    down = remote("sfo", "unreachable", problem="sfo.example:7900: connection refused", lag_messages=12)
    found = status(relay(down), relay(remote("sfo", "unreachable"), number=1))
    assert verdicts(found)["Bridged"] == ("False", "SiteUnreachable")
    assert message(found) == (
        "site sfo is unreachable: sfo.example:7900: connection refused, 12 messages wait for it"
    )
    left = status(relay(remote("sfo", "left")), relay(number=1))
    assert verdicts(left)["Ready"] == ("False", "SiteLeft")


def test_a_site_that_is_suspect_is_not_out_of_reach_yet() -> None:
    found = status(relay(remote("sfo", "suspect")), relay(remote("sfo", "suspect"), number=1))
    assert verdicts(found)["Bridged"] == ("True", "AllSitesUp")
    assert found["remotes"] == "sfo suspect"


def test_what_was_dropped_is_told_though_all_sites_are_up() -> None:
    found = status(
        relay(remote("sfo", dropped_messages=5)), relay(remote("sfo", dropped_messages=1), number=1)
    )
    assert message(found, "Bridged") == "1 remote site up; 5 messages for sfo were dropped from the buffer"
    assert verdicts(found)["Ready"] == ("True", "Ready")
    assert message(found) == "5 messages for sfo were dropped from the buffer", "kubectl get shows this one"


def test_what_was_dropped_is_told_of_a_site_out_of_reach() -> None:
    found = status(relay(remote("sfo", "unreachable", dropped_messages=5)), relay(number=1))
    assert message(found) == "site sfo is unreachable; 5 messages for sfo were dropped from the buffer"


@pytest.mark.parametrize(
    ("values", "buffer", "words"),
    [
        ({"lag_seconds": 31.0}, {}, "the oldest message has waited 31 of 60 s"),
        ({"lag_seconds": 30.0}, {}, None),
        ({"lag_seconds": 3000.0}, {"seconds": 0}, None),
        ({"lag_messages": 81}, {"messages": 100}, "81 of 100 messages wait"),
        ({"lag_messages": 80}, {"messages": 100}, None),
        ({"lag_bytes": 900}, {"bytes": 1024}, "900 of 1024 bytes wait"),
        (
            {"lag_messages": 99, "lag_seconds": 9.0, "dropped_messages": 4},
            {"messages": 100, "seconds": 10},
            "the oldest message has waited 9 of 10 s, 99 of 100 messages wait (spec.buffer); 4 messages for sfo",
        ),
    ],
)
def test_a_site_that_is_up_and_comes_near_the_bounds_of_the_buffer_is_not_well(
    values: dict[str, Any], buffer: dict[str, int], words: str | None
) -> None:
    found = status(relay(remote("sfo", **values)), relay(remote("sfo"), number=1), buffer=buffer)
    if words is None:
        assert verdicts(found)["Ready"] == ("True", "Ready")
    else:
        assert verdicts(found)["Bridged"] == ("False", "RelayLagging")
        assert verdicts(found)["Ready"] == ("False", "RelayLagging")
        assert message(found).startswith(f"site sfo is behind: {words}")


def test_a_stranger_that_is_refused_does_not_matter_to_a_complete_site() -> None:
    found = status(relay(problems=("member 10.0.0.9: no certificate",)), relay(number=1))
    assert verdicts(found)["Formed"] == ("True", "Formed")


@pytest.mark.parametrize(
    ("relays", "expected", "words"),
    [
        ([relay(remote("sfo"), members=1)], ("False", "MembersMissing"), "1 of 2 members"),
        ([relay(remote("sfo"))], ("Unknown", "MembersSilent"), "2 members"),
        (
            [relay(members=1), relay(number=1, view=9, first=1)],
            ("False", "Divided"),
            "east-0 is in view 7 of east-0 with 1 of 2 members; east-1 is in view 9 of east-1 with 1 of 2 members",
        ),
        (
            [relay(members=1), relay(number=1, view=9)],
            ("Unknown", "ViewChanging"),
            "east-0 is in view 7 of east-0 with 1 of 2 members; east-1 is in view 9 of east-0 with 2 of 2 members",
        ),
        (
            [relay(view=0, members=0), relay(number=1, members=1)],
            ("False", "MembersMissing"),
            "east-0 is not a",
        ),
        ([relay(view=0, members=0)], ("False", "NoMembers"), "east-0 is not a member yet"),
        ([None, None], ("False", "NoMembers"), "east-0 is not a member yet"),
        ([], ("False", "NoMembers"), "no router has started yet"),
        (
            [relay(members=1, problems=("10.0.0.9:7800: group news is not trades",))],
            ("False", "MembersRefused"),
            "east-0: 10.0.0.9:7800: group news is not trades",
        ),
        (
            [
                relay(members=1, problems=("host nohost: the name has no IP address",)),
                relay(number=1, members=1),
            ],
            ("False", "NameUnresolved"),
            "east-0: host nohost: the name has no IP address",
        ),
        (
            [relay(members=1, problems=("host nohost: the name has no IP address", "10.0.0.9:7800: no"))],
            ("False", "MembersRefused"),
            "10.0.0.9:7800: no",
        ),
        (
            [relay(members=1, accepts=False)],
            ("False", "MembersMissing"),
            "senders wait: 2 members (spec.copies)",
        ),
        ([relay(accepts=False), relay(number=1, accepts=False)], ("False", "SendersWait"), "set copies to 1"),
    ],
)
def test_a_site_that_has_not_formed(
    relays: list[RelayStatus | None], expected: tuple[str, str], words: str
) -> None:
    found = status(*relays)
    assert verdicts(found)["Formed"] == expected
    assert words in message(found, "Formed")


def test_a_site_out_of_reach_comes_before_senders_that_wait_for_it() -> None:
    down = remote("sfo", "unreachable", problem="certificate is for lon")
    found = status(relay(down, accepts=False), relay(down, number=1, accepts=False))
    assert verdicts(found)["Formed"] == ("False", "SendersWait")
    assert verdicts(found)["Ready"] == ("False", "SiteUnreachable")
    assert "certificate is for lon" in message(found)


def test_a_router_that_does_not_know_the_site_yet_is_pending() -> None:
    found = status(relay(remote("sfo")), relay(number=1, group="news"))
    assert verdicts(found)["Configured"] == ("False", "ConfigPending")
    assert message(found, "Configured") == "east-1 is not a member of the site yet"


def test_a_site_without_its_router_is_pending() -> None:
    found = status(relay(), relay(number=1), site=relay_site("nyc", "wset"))
    assert verdicts(found)["Ready"] == ("False", "Pending")
    told = verdicts(found)
    assert told.pop("Insecure") == ("False", "NotInEffect")
    assert set(told.values()) == {("False", "Pending")}
    assert "bridge" not in found


def test_a_site_alone_needs_no_other() -> None:
    found = status(relay(), relay(number=1), remoteSites=[])
    assert verdicts(found)["Bridged"] == ("True", "NoRemoteSites")


def test_status_of_a_gossip_router() -> None:
    (found,) = model(gossip_router("g")).gossip_routers.values()
    assert verdicts(gossiprouter_status(found, None, None, NOW))["Ready"] == ("False", "RolloutInProgress")
    live = {"replicas": 2, "readyReplicas": 1, "updatedReplicas": 2, "observedGeneration": 1}
    workload = {"metadata": {"generation": 1}, "status": live}
    partly = gossiprouter_status(found, workload, None, NOW)
    assert verdicts(partly) == {
        "Configured": ("True", "Applied"),
        "Available": ("False", "ReplicasMissing"),
        "Ready": ("False", "ReplicasMissing"),
        "Insecure": ("False", "Secured"),
    }
    assert (partly["readyReplicas"], partly["endpoint"]) == (1, "g-gossip.net.svc:12001")
    live["readyReplicas"] = 2
    assert verdicts(gossiprouter_status(found, workload, None, NOW))["Ready"] == ("True", "Ready")
    refused = gossiprouter_status(
        found, workload, None, NOW, problems=[Problem("ApplyFailed", "no", transient=False)]
    )
    assert verdicts(refused)["Ready"] == ("False", "ApplyFailed")
    workload["metadata"]["generation"] = 2
    assert verdicts(gossiprouter_status(found, workload, None, NOW))["Configured"][1] == "RolloutInProgress"


def test_a_gossip_router_tells_why_pods_cannot_be_created() -> None:
    (found,) = model(gossip_router("g")).gossip_routers.values()
    live = {"replicas": 0, "readyReplicas": 0, "updatedReplicas": 0, "observedGeneration": 1}
    workload = {"metadata": {"generation": 1}, "status": live}
    told = gossiprouter_status(found, workload, None, NOW, creation_failure="exceeded quota: pods")
    conditions = {item["type"]: item for item in told["conditions"]}
    for kind in ("Ready", "Available"):
        assert conditions[kind]["status"] == "False"
        assert "exceeded quota: pods" in conditions[kind]["message"]


def test_a_gossip_router_stays_insecure_until_its_pods_run_the_change() -> None:
    (clear,) = model(gossip_router("g", tls={"disabled": True})).gossip_routers.values()
    (secure,) = model(gossip_router("g")).gossip_routers.values()
    live = {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "observedGeneration": 1}
    workload = {"metadata": {"generation": 1}, "status": live}
    status = gossiprouter_status(clear, workload, None, NOW)
    assert verdicts(status)["Insecure"] == ("True", "ClearText")
    live["updatedReplicas"] = 1
    for _ in range(2):
        status = gossiprouter_status(secure, workload, status, NOW)
        assert verdicts(status)["Insecure"] == ("True", "EarlierConfiguration")
    live["updatedReplicas"] = 2
    assert verdicts(gossiprouter_status(secure, workload, status, NOW))["Insecure"] == ("False", "Secured")


def test_a_gossip_router_that_is_blocked_says_why() -> None:
    built = model(gossip_router("g", tls={"secretName": "net"}))
    found = render(built, RenderSettings(router_image="router:1"))
    (item,) = built.gossip_routers.values()
    blocked = gossiprouter_status(item, None, None, NOW, blocked=block(item, found))
    assert verdicts(blocked)["Ready"] == ("False", "SecretNotFound")
