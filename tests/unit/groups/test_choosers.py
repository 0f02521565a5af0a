"""Which of several physical addresses is used."""

from __future__ import annotations

import pytest

from isthmus_router.groups.choosers import make_chooser
from isthmus_router.groups.identity import PhysicalAddress

A, B, NEAR, NEAR_V6, NAMED = (
    PhysicalAddress(host, 7_800)
    for host in ("192.0.2.1", "192.0.2.2", "10.1.2.3", "fd00::3", "shelf.example")
)


def test_first() -> None:
    chooser = make_chooser("first", ())
    assert [chooser.choose((A, B)) for _ in range(3)] == [A, A, A]


def test_rotate() -> None:
    chooser = make_chooser("rotate", ())
    assert [chooser.choose((A, B)) for _ in range(3)] == [A, B, A]
    assert chooser.choose((A,)) == A


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        ((A, NEAR, B), NEAR),
        ((NAMED, A, NEAR_V6), NEAR_V6),
        ((NAMED, A), NAMED),
        ((A, B), A),
    ],
)
def test_same_network(addresses: tuple[PhysicalAddress, ...], chosen: PhysicalAddress) -> None:
    assert make_chooser("same-network", ("10.1.0.5/16", "fd00::/64")).choose(addresses) == chosen


@pytest.mark.parametrize(("name", "networks"), [("best", ()), ("same-network", ("nowhere",))])
def test_what_there_is_not(name: str, networks: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"best|nowhere"):
        make_chooser(name, networks)
