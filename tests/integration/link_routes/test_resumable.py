"""`allowResumableLinkRoute: false` keeps termini that outlive their links away from the containers."""

from __future__ import annotations

import pytest
from proton import Terminus
from tests.integration.support.client import Clients
from tests.integration.support.container import Container
from tests.integration.support.link_routes import CONTAINER, await_containers, link_route
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, listener


@pytest.fixture
def router(routers: Routers) -> Router:
    router = routers.add("A", link_route())
    router.sections[0][1]["allowResumableLinkRoute"] = False
    return router


def test_termini_that_outlive_their_links_are_refused(clients: Clients, router: Router) -> None:
    port = free_port()
    router.sections.append(listener(port, "route-container"))
    router.start()
    assert "without effect" not in router.log
    container = Container(clients, port, CONTAINER)
    await_containers(router, 1, 0)
    client = clients.connect(router.port)
    for attribute, value in (("timeout", 60), ("expiry_policy", Terminus.EXPIRE_NEVER)):
        link = client.session.receiver(attribute)
        link.source.address = "b2.x"
        setattr(link.source, attribute, value)
        link.open()
        assert client.refusal(link).name == "qd:link-expiration"
    client.receiver("b2.x", name="plain")
    assert [link.name.partition("@")[0] for link in container.attached_links] == ["plain"]
