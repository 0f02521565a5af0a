"""An engine, alone or with a neighbour."""

import pytest
from tests.unit.routing.driver import LINK, Driver

from isthmus_router.routing.linkstate import LinkState
from isthmus_router.routing.messages import (
    Hello,
    LinkStateUpdate,
    RouterAdvertisement,
)


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def pair(driver):
    """ME with the settled neighbour PEER on LINK, which advertises nothing."""
    driver.take(driver.engine.on_link_up(LINK, 1, driver.now))
    driver.receive(Hello("PEER", 7, ("ME",)))
    driver.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 1, {"ME": 1})))
    driver.receive(RouterAdvertisement("PEER", 7, 1, 0))
    driver.after(0.1)
    return driver
