"""How many links of a direction a client has, without counting them."""

from __future__ import annotations

from isthmus_router.core.link_names import LinkNames
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Direction, Terminus


def attach(connection: Connection, number: int, direction: Direction, name: str) -> Link:
    return Link(number, connection, direction, name, source=Terminus(), target=Terminus())


def test_links_of_other_names_are_counted_by_connection_and_direction() -> None:
    names = LinkNames()
    client, other = (Connection(number, Role.NORMAL, incoming=True, name="c") for number in (1, 2))
    sender, again, receiver, late = (
        attach(client, 1, Direction.IN, "a"),
        attach(client, 2, Direction.IN, "a"),
        attach(client, 3, Direction.OUT, "a"),
        attach(client, 4, Direction.IN, "b"),
    )
    assert names.others(sender) == 0
    names.attached(sender)
    names.attached(receiver)
    assert names.others(again) == 0, "the link of its name gives way to it"
    assert names.others(late) == 1
    assert names.attached(again) is sender
    names.gone(sender)
    assert names.others(late) == 1
    assert names.others(attach(other, 5, Direction.IN, "c")) == 0
    names.gone(again)
    names.gone(receiver)
    assert names.others(late) == 0
    assert not names._numbers
