"""Entities that management made, and a file that changes under them."""

from __future__ import annotations

from isthmus_router.config import Configuration, edit, parse
from isthmus_router.config.schema import SECTIONS
from isthmus_router.config.sources import SystemSources

FILE = """
router {
    mode: interior
    id: A
}
sslProfile {
    name: tls
}
listener {
    name: first
    port: 5700
}
address {
    prefix: a
    distribution: closest
}
"""


def read(text: str = FILE) -> Configuration:
    return parse(text, "A.conf")


def created(configuration: Configuration, section: str, **attributes: object) -> Configuration:
    return edit.create(configuration, SECTIONS[section], attributes, SystemSources())


def after(present: Configuration, new: Configuration, file: Configuration) -> tuple[Configuration, list[str]]:
    result, errors = edit.with_entities(new, edit.made_here(present, file))
    return result, [str(error) for error in errors]


def test_what_management_made_stays_and_what_it_changed_is_as_in_the_file() -> None:
    file = read()
    present = created(file, "listener", name="extra", port=5701, sslProfile="tls")
    present = created(present, "address", prefix="b", distribution="multicast")
    first = next(listener for listener in present.listeners if listener.name == "first")
    present = edit.delete(present, first, SystemSources())
    new = read(FILE.replace("5700", "5710"))
    result, errors = after(present, new, file)
    assert errors == []
    assert {(listener.name, listener.port) for listener in result.listeners} == {
        ("first", 5710),
        ("extra", 5701),
    }
    assert [address.prefix for address in result.addresses] == ["a", "b"]


def test_what_the_file_no_longer_has_goes() -> None:
    file = read()
    present = created(file, "address", prefix="b")
    result, _ = after(present, read(FILE.replace("prefix: a", "prefix: c")), file)
    assert [address.prefix for address in result.addresses] == ["c", "b"]


def test_the_file_wins_where_both_name_the_same() -> None:
    file = read()
    present = created(file, "address", prefix="b", distribution="multicast")
    result, errors = after(present, read(FILE + "address {\n prefix: b\n distribution: closest\n}\n"), file)
    assert errors == []
    assert [(a.prefix, str(a.distribution)) for a in result.addresses] == [("a", "closest"), ("b", "closest")]


def test_what_does_not_go_with_the_file_is_left_out_and_told() -> None:
    file = read()
    present = created(file, "listener", name="extra", port=5701, sslProfile="tls")
    present = created(present, "listener", name="more", port=5702)
    new = read(FILE.replace("sslProfile {\n    name: tls\n}\n", "").replace("5700", "5702"))
    result, errors = after(present, new, file)
    assert [listener.name for listener in result.listeners] == ["first"]
    assert "listener 'extra', attribute sslProfile: no sslProfile is named 'tls'" in errors[0]
    assert "listener 'more', attribute port: two listeners on :5702" in errors[1]
    assert result.config_hash == new.config_hash
