"""Address keys: one text, one key, wherever it is written."""

import pytest

from isthmus_router.core.address import address_key, normalise


@pytest.mark.parametrize("text", ["a/b", "/a/b", "amqp:/a/b", "amqp://host:5672/a/b", "a/b/", "a/b."])
def test_all_forms_of_an_address_are_one(text: str) -> None:
    assert normalise(text) == "a/b"


@pytest.mark.parametrize(
    ("address", "interior", "edge"),
    [
        ("orders", "Morders", "Morders"),
        ("amqp:/orders", "Morders", "Morders"),
        ("_local/$management", "L$management", "L$management"),
        ("amqp:/_topo/0/ME/temp.x", "Ltemp.x", "Ltemp.x"),
        ("amqp:/_topo/0/all/qdrouter", "Tqdrouter", "R"),
        ("amqp:/_topo/0/OTHER/temp.x", "ROTHER", "R"),
        ("amqp:/_edge/ME/temp.x", "Ltemp.x", "Ltemp.x"),
        ("amqp:/_edge/E1/temp.x", "HE1", "R"),
        ("_$temp.x", "M_$temp.x", "M_$temp.x"),
    ],
)
def test_keys(address: str, interior: str, edge: str) -> None:
    assert address_key(address, "ME", edge=False) == interior
    assert address_key(address, "ME", edge=True) == edge
