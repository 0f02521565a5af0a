"""The /status document has exactly the fields that the operator and the CLI rely on."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.unit.management.conftest import SmallRouter, connection
from tests.unit.steps import finished

from isthmus_router.management.port import AddressRow, EdgeRow, UplinkRow
from isthmus_router.relay_site.status import MemberStatus, RelayStatus, RemoteStatus
from isthmus_router.status import LISTED, ProcessFacts, status_document

FACTS = ProcessFacts(instance=5, ready=True, last_config_error=None)


def document(router: SmallRouter, facts: ProcessFacts = FACTS) -> dict[str, object]:
    text = json.dumps(finished(status_document(router, facts)), allow_nan=False)
    result: dict[str, object] = json.loads(text)
    return result


def test_sections(router: SmallRouter) -> None:
    assert list(document(router)) == [
        "router",
        "neighbors",
        "nodes",
        "edge",
        "connectors",
        "sslProfiles",
        "listeners",
        "autoLinks",
        "linkRoutes",
        "linkRoutesTotal",
        "connections",
        "connectionsTotal",
        "addresses",
        "addressesTotal",
        "counters",
        "policyDenials",
        "relay",
        "lastConfigError",
    ]


def test_a_member_of_a_site_tells_what_it_knows(router: SmallRouter) -> None:
    assert document(router)["relay"] is None
    remote = RemoteStatus("sfo", "up", ("sfo-0",), "", 3, 812, 0.02, 0, 1, 2, 4, None)
    relay = RelayStatus(
        "trades",
        "nyc",
        "5f",
        7,
        (MemberStatus("5f", "A", relay=True),),
        (remote,),
        3,
        812,
        (),
        True,
        accepts=True,
    )
    assert document(router, replace(FACTS, relay=relay))["relay"] == {
        **{"group": "trades", "site": "nyc", "id": "5f", "view": 7},
        "members": [{"id": "5f", "name": "A", "relay": True}],
        "remotes": [
            {
                **{"site": "sfo", "state": "up", "members": ["sfo-0"], "problem": ""},
                **{"lagMessages": 3, "lagBytes": 812, "lagSeconds": 0.02, "droppedMessages": 0},
                **{"replayedMessages": 1, "duplicateMessages": 2, "gapMessages": 4},
                "roundTripSeconds": None,
            }
        ],
        **{"bufferedMessages": 3, "bufferedBytes": 812, "problems": []},
        **{"holder": True, "holderReady": False, "plainText": [], "accepts": True},
    }


def test_router(router: SmallRouter) -> None:
    assert document(router)["router"] == {
        "id": "A",
        "mode": "interior",
        "version": "1.2.3",
        "instance": 5,
        "uptimeSeconds": 17,
        "ready": True,
        "configHash": router.configuration.config_hash,
    }
    assert len(router.configuration.config_hash) == 64


def test_network(router: SmallRouter) -> None:
    router.nodes_[1] = replace(router.nodes_[1], connection_id=2)
    router.nodes_.append(replace(router.nodes_[1], id="C", next_hop="B", cost=2, connection_id=None))
    found = document(router)
    assert found["neighbors"] == [{"id": "B", "cost": 1, "connectionId": 2}]
    assert found["nodes"] == [
        {"id": "B", "nextHop": "B", "cost": 1, "peers": ["A"]},
        {"id": "C", "nextHop": "B", "cost": 2, "peers": ["A"]},
    ]


def test_an_edge_tells_its_uplinks(router: SmallRouter) -> None:
    assert document(router)["edge"] is None
    active, standby = UplinkRow("up", 3, "west-0", 1, 4), UplinkRow("spare", 5, "east-0", 2, None)
    router.edge_ = EdgeRow(
        active,
        [standby],
        uplink_changes=2,
        proxied_addresses=7,
        out_proxies=5,
        in_proxies=4,
        bound_addresses=3,
        tracking_messages=9,
        invalid_tracking_messages=0,
    )
    assert document(router)["edge"] == {
        "active": {
            "connector": "up",
            "connectionId": 3,
            "container": "west-0",
            "cost": 1,
            "tlsOrdinal": 4,
        },
        "standbys": [
            {"connector": "spare", "connectionId": 5, "container": "east-0", "cost": 2, "tlsOrdinal": None}
        ],
        "proxiedAddresses": 7,
        "boundAddresses": 3,
    }


def test_entities(router: SmallRouter) -> None:
    found = document(router)
    assert found["connectors"] == [
        {
            "name": "b",
            "host": "b.example",
            "port": 55672,
            "role": "inter-router",
            "state": "connecting",
            "message": "",
            "container": None,
            "cost": None,
            "tlsOrdinal": None,
            "active": None,
        }
    ]
    assert isinstance(found["listeners"], list)
    assert found["listeners"][0] == {
        "name": "clients",
        "host": "",
        "port": 5672,
        "role": "normal",
        "state": "listening",
        "message": "",
    }
    assert isinstance(found["connections"], list)
    assert found["connections"][1] == {
        "id": 2,
        "container": "c2",
        "role": "inter-router",
        "dir": "in",
        "host": "10.0.0.2:40000",
        "user": None,
        "tls": False,
        "tlsOrdinal": 3,
        "active": True,
        "groupOrdinal": 3,
        "upgrade": "",
        "uptimeSeconds": 0,
        "message": "",
    }


def test_addresses_are_bounded(router: SmallRouter) -> None:
    router.addresses_ = [
        AddressRow(
            f"Ma{n}", "balanced", 1, 2, 3, deliveries_ingress=4, deliveries_transit=5, deliveries_egress=6
        )
        for n in range(LISTED + 3)
    ]
    found = document(router)
    assert isinstance(found["addresses"], list)
    assert len(found["addresses"]) == LISTED
    assert found["addressesTotal"] == LISTED + 3
    assert found["addresses"][0] == {
        "name": "a0",
        "phase": 0,
        "class": "M",
        "distribution": "balanced",
        "local": 2,
        "remote": 3,
        "inProcess": 1,
        "deliveriesIn": 9,
        "deliveriesOut": 6,
    }


def test_it_is_made_in_steps(router: SmallRouter) -> None:
    router.addresses_ = [AddressRow(f"Ma{n}", "balanced") for n in range(LISTED)]
    router.connections_ = [connection(n) for n in range(LISTED)]
    steps = status_document(router, FACTS)
    assert sum(1 for _ in steps) > 2 * LISTED


def test_lists_and_totals_are_of_one_moment(router: SmallRouter) -> None:
    before = document(router)
    steps = status_document(router, FACTS)
    next(steps)
    router.nodes_ = []
    router.connections_, router.addresses_ = [connection(9)], []
    assert json.loads(json.dumps(finished(steps))) == before


def test_a_refused_configuration_is_shown(router: SmallRouter) -> None:
    assert document(router)["lastConfigError"] is None
    facts = ProcessFacts(instance=5, ready=True, last_config_error="f.conf:2: wrong")
    assert document(router, facts)["lastConfigError"] == "f.conf:2: wrong"


def test_secrets_are_not_shown(router: SmallRouter) -> None:
    assert "hunter2" not in json.dumps(document(router))
