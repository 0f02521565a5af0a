"""What another router announces: addresses that have consumers, not the ways to routers."""

from __future__ import annotations

import pytest
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.treatment import Treatment
from isthmus_router.interior.network import InteriorNetwork
from isthmus_router.routing import actions as act
from isthmus_router.routing.engine import RoutingEngine
from isthmus_router.routing.messages import MobileAddress


class Announcing(RoutingEngine):
    """Each tick reports what the router X has announced, and withdrawn."""

    def __init__(self, key: str) -> None:
        super().__init__("ME", instance=1, now=0.0)
        self.added: tuple[str, ...] = (key,)
        self.removed: frozenset[str] = frozenset()

    def on_tick(self, now: float) -> list[act.Action]:
        added = {key: MobileAddress(key, Treatment.CLOSEST) for key in self.added}
        return [act.RemoteAddressesChanged("X", added, self.removed)]


def network_of(router: RouterInMemory, engine: RoutingEngine) -> InteriorNetwork:
    return InteriorNetwork(
        router.core,
        engine,
        lambda: 0.0,
        lambda deadline: None,
        call_later=lambda delay, callback: None,
        regroup=lambda connection: None,
    )


@pytest.mark.parametrize(
    ("key", "taken"),
    [
        ("Morders", True),
        ("HE", True),
        ("Corders", True),
        ("RVICTIM", False),
        ("R", False),
        ("Ltemp.1", False),
        ("L$management", False),
        ("Tqdrouter", False),
        ("?", False),
    ],
)
def test_a_router_announces_consumers_only(key: str, taken: bool) -> None:
    router = RouterInMemory()
    network_of(router, Announcing(key)).tick()
    address = router.core.addresses.get(key)
    assert (address is not None and {node.id for node in address.remotes} == {"X"}) is taken


def test_no_router_withdraws_the_way_to_a_router() -> None:
    router = RouterInMemory()
    engine = Announcing("RX")
    network = network_of(router, engine)
    network.tick()
    engine.added, engine.removed = (), frozenset({"RX"})
    network.tick()
    assert {node.id for node in router.core.addresses["RX"].remotes} == {"X"}
