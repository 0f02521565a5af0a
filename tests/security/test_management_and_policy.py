"""A client whose policy allows `$management` and little else, and management as a way to other addresses."""

from __future__ import annotations

from proton import Message
from tests.integration.support.client import Client, Clients
from tests.integration.support.management import Manager
from tests.integration.support.policies import ENABLED, group, vhost
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, connector, listener
from tests.security.support.canary import Canary

OPEN = group("*", allowAnonymousSender=True, allowDynamicSource=True)
RESTRICTED = group(
    "*", targets=["$management", "_topo/0/A/$management", "own"], sources="own", allowDynamicSource=True
)
POLICY = (ENABLED, vhost(groups={"$default": OPEN}), vhost("restricted", {"$default": RESTRICTED}))
DENIED = ("orders", "amqp:/orders", "/orders/", "amqp://host/orders", "own/orders", "_$phase.1/own")
QUERY = {"operation": "QUERY", "entityType": "router"}


def denied(router: Router) -> float:
    return router.metric("policy_denials_total", 'kind="message"')


def ask(client: Client, target: str, addresses: tuple[str, ...] = DENIED) -> int:
    """Requests whose responses are to go to these addresses, and one that fails with text of the client's."""
    requests = client.sender(target).await_credit()
    for address in addresses:
        for properties in (QUERY, {"operation": "forged"}):
            message = Message(reply_to=address, correlation_id="forged", properties=properties, body={})
            requests.await_credit().send(message, settled=True)
    return 2 * len(addresses)


def test_no_response_goes_where_the_policy_does_not_let_the_client_send(
    routers: Routers, clients: Clients
) -> None:
    port = free_port()
    router = routers.start("A", *POLICY, listener(port, name="restricted", policyVhost="restricted"))
    everything = clients.connect(router.port)
    received = [everything.receiver(name, credit=100, accept=True) for name in ("orders", "own/orders")]
    with Canary(router) as canary:
        client = clients.connect(port)
        sent = ask(client, "$management")
        # The response to a temporary address comes after those that are withheld.
        assert Manager(client).query("router", "id") == [{"id": "A"}]
        assert denied(router) == sent
        # It may have responses at an address to which it may send.
        own = client.receiver("own", credit=10, accept=True)
        ask(client, "$management", ("own",))
        own.expect(2)
        everything.sender("orders").await_credit().deliver("last")
    canary.report.check()
    assert received[0].bodies() == ["last"]
    assert received[1].bodies() == []


def test_a_router_with_a_policy_answers_requests_of_other_routers_at_temporary_addresses(
    routers: Routers, clients: Clients
) -> None:
    edges, port = free_port(), free_port()
    routers.add("A", *POLICY, listener(edges, "edge", name="edges"), mode="interior")
    edge = routers.add(
        "E",
        *POLICY,
        connector(edges, "edge", name="uplink"),
        listener(port, name="restricted", policyVhost="restricted", management="read"),
        mode="edge",
    )
    routers.start_all()
    edge.await_log("connection opened")
    everything = clients.connect(edge.port)
    orders = everything.receiver("orders", credit=100, accept=True)
    client = clients.connect(port)
    manager = Manager(client, "_topo/0/A/$management")
    ask(client, "_topo/0/A/$management")
    assert manager.query("router", "id") == [{"id": "A"}]
    everything.sender("orders").await_credit().deliver("last")
    assert orders.bodies() == ["last"]
