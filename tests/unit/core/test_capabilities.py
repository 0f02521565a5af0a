"""Of the capabilities of a peer, links retain those that the router acts on."""

from __future__ import annotations

import pytest

from isthmus_router.core.address import waypoint_phase
from isthmus_router.core.terms import NO_CAPABILITIES, known_capabilities

MANY = {str(number) for number in range(1000)}


@pytest.mark.parametrize(
    "name",
    [
        *("qd.router", "qd.router-data", "qd.router-inter-edge", "qd.router-edge-downlink"),
        *("qd.streaming-links", "qd.streaming-deliveries", "qd.resend-released", "qd.connection_trunking"),
        *("qd.fallback", "qd.waypoint", "qd.waypoint.9", "qd.waypoint_1"),
        *("isthmus.link-routes", "isthmus.relay-state", "isthmus.relay-gaps"),
    ],
)
def test_known_capabilities_are_retained(name: str) -> None:
    assert known_capabilities(MANY | {name}) == {name}


def test_other_capabilities_are_not_retained() -> None:
    assert known_capabilities(MANY) is NO_CAPABILITIES
    assert known_capabilities(()) is NO_CAPABILITIES


def test_one_capability_of_a_waypoint_is_retained() -> None:
    assert known_capabilities({f"qd.waypoint.{phase}" for phase in range(100)}) == {"qd.waypoint.1"}


def test_a_waypoint_without_a_valid_phase_is_retained_for_policies() -> None:
    known = known_capabilities({f"qd.waypoint.{phase}" for phase in range(10, 1000)})
    assert len(known) == 1
    assert all(name.startswith("qd.waypoint") for name in known)
    assert waypoint_phase(known, incoming=True) is None
