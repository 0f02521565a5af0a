"""A peer sends a request to management and, in the same bytes, ends the link of the request."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.support.by_hand import transfer_frame
from tests.integration.support.policies import ENABLED, group, vhost
from tests.integration.support.ports import free_port
from tests.integration.support.raw import CLOSE, END, FLOW, TRANSFER, RawConnection, frame
from tests.integration.support.routers import Router, Routers, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import attach, begin, detach, flow, opening

from isthmus_router.message.control import Message, Properties, encode_message

TYPE = "router.connection.linkRoute"
TRIES = 5
ENDS = {
    "detached": detach(1),
    "session ended": frame(END, []),
    "connection closed": frame(CLOSE, []),
}
_numbers = itertools.count()


@pytest.fixture(scope="module", params=["route-container", "normal with a policy"])
def attacked(request: pytest.FixtureRequest, either_kernel: Callable[[], Routers]) -> Router:
    """Peers may create link routes for themselves, at the listener `peers`."""
    role, *governed = request.param.split(" ", 1)
    anybody = group("*", allowDynamicSource=True, allowDynamicLinkRoutes=True)
    policy = [ENABLED, vhost(groups={"$default": anybody}, allowUnknownUser=True)] if governed else []
    sections = [*policy, listener(free_port(), role, name="peers", management="write")]
    return either_kernel().add("A", *sections, mode="interior").start()


def request(operation: str, name: str, body: dict[str, Any]) -> bytes:
    asked = {"operation": operation, "type": TYPE, "name": name}
    properties = Properties(to="$management", reply_to="replies", correlation_id=1)
    return encode_message(Message(properties=properties, application_properties=asked, body=body))


@pytest.mark.parametrize("created", [False, True], ids=["create", "delete"])
@pytest.mark.parametrize("ending", ENDS)
def test_the_link_of_a_request_for_a_link_route_ends_at_once(
    attacked: Router, ending: str, created: bool
) -> None:
    """The router deals with the end of the link after the request, though the request has it attach links."""
    (port,) = (section["port"] for kind, section in attacked.sections if section.get("name") == "peers")
    with Canary(attacked) as canary:
        for _ in range(TRIES):
            name = f"n{next(_numbers)}"
            create = request("CREATE", name, {"pattern": f"{name}.#", "direction": "in"})
            delete = request("DELETE", name, {})
            with RawConnection(port) as peer:
                peer.send(opening(), begin(), attach(0, "replies", "replies", receiver=True), flow(0, 100))
                peer.send(attach(1, "requests", "$management"))
                peer.expect(FLOW)
                if created:
                    peer.send(transfer_frame(0, create, handle=1))
                    peer.expect(TRANSFER)
                asked = transfer_frame(int(created), delete if created else create, handle=1)
                peer.send(attach(2, "other", "other"), asked, ENDS[ending])
                if ending != "connection closed":
                    peer.send(frame(CLOSE, []))
                peer.expect(CLOSE)
    canary.report.check(at_least=1)
    assert "internal error" not in attacked.log
