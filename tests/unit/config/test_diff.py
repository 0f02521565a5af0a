"""Two configurations are compared in the terms in which the router applies the change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isthmus_router.config import Configuration, Direction, Distribution, parse
from isthmus_router.config.diff import Changes, diff

BASE = """
router {
    mode: interior
    id: a
}
sslProfile {
    name: tls
    ordinal: 3
    oldestValidOrdinal: 1
}
listener {
    name: clients
}
connector {
    name: b
    host: b.example
    role: inter-router
    sslProfile: tls
}
address {
    prefix: jobs
    distribution: balanced
}
linkRoute {
    prefix: queue
    direction: in
    connection: broker
}
linkRoute {
    prefix: queue
    direction: out
    connection: broker
}
log {
    module: DEFAULT
    enable: info+
}
"""


def read(*replacements: tuple[str, str], also: str = "") -> Configuration:
    text = BASE
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return parse(text + also, "f")


def changes(*replacements: tuple[str, str], also: str = "") -> Changes:
    return diff(read(), read(*replacements, also=also))


def test_nothing_changed() -> None:
    assert not changes()
    assert not changes(("name: clients", "# comment\n  name:    clients"))


def test_entities_added_and_removed() -> None:
    found = changes(also="connector {\n name: c\n host: c.example\n}\n")
    assert [c.name for c in found.connectors.added] == ["c"]
    assert not found.connectors.removed
    back = diff(read(also="connector {\n name: c\n host: c.example\n}\n"), read())
    assert [c.name for c in back.connectors.removed] == ["c"]


def test_changed_entity_is_a_pair() -> None:
    found = changes(("host: b.example", "host: b2.example"))
    ((old, new),) = found.connectors.changed
    assert (old.host, new.host) == ("b.example", "b2.example")
    assert not found.listeners
    assert not found.needs_restart


def test_address_treatment() -> None:
    ((_, new),) = changes(("distribution: balanced", "distribution: multicast")).addresses.changed
    assert new.distribution is Distribution.MULTICAST


def test_link_routes_of_both_directions_are_told_apart() -> None:
    found = changes(("direction: in", "direction: in\n    addExternalPrefix: x."))
    ((old, new),) = found.link_routes.changed
    assert (old.direction, new.direction) == (Direction.IN, Direction.IN)
    assert (old.add_external_prefix, new.add_external_prefix) == (None, "x.")


def test_ordinal_raised() -> None:
    (change,) = changes(("ordinal: 3", "ordinal: 4")).ssl_profiles_changed
    assert change.new == replace(change.old, ordinal=4)
    assert not change.oldest_valid_raised


def test_oldest_valid_ordinal_raised() -> None:
    (change,) = changes(("oldestValidOrdinal: 1", "oldestValidOrdinal: 3")).ssl_profiles_changed
    assert change.new == replace(change.old, oldest_valid_ordinal=3)
    assert change.oldest_valid_raised


@pytest.mark.parametrize(
    ("old", "new", "attribute"),
    [("ordinal: 3", "ordinal: 2", "ordinal"), ("oldestValidOrdinal: 1", "", "oldestValidOrdinal")],
)
def test_lowered_ordinals_are_refused(old: str, new: str, attribute: str) -> None:
    (message,) = changes((old, new)).refused
    assert message.startswith(f"sslProfile 'tls'.{attribute}:")


def test_changed_certificate_files_are_noticed() -> None:
    files = {"ca.pem": b"one"}

    class Files:
        def read(self, path: str) -> bytes:
            return files[path]

        def variable(self, name: str) -> str | None:
            return None

    text = BASE.replace("name: tls", "name: tls\n    caCertFile: ca.pem")
    old = parse(text, "f", sources=Files())
    files["ca.pem"] = b"two"
    (change,) = diff(old, parse(text, "f", sources=Files())).ssl_profiles_changed
    assert change.new == replace(change.old, files_digest=change.new.files_digest)
    assert change.new.files_digest != change.old.files_digest


def test_what_needs_a_restart_is_named() -> None:
    found = changes(("mode: interior", "mode: interior\n    helloMaxAgeSeconds: 5"), ("id: a", "id: b"))
    assert found.needs_restart == ("router.id: a -> b", "router.helloMaxAgeSeconds: 3 -> 5")


def test_inert_attributes_need_no_restart() -> None:
    assert not changes(("id: a", "id: a\n    debugDumpFile: x"))


def test_network_is_live() -> None:
    found = changes(also="network {\n networkId: n\n}\n")
    assert found.network is not None
    assert found.network.network_id == "n"
    assert not found.needs_restart


def test_a_summary_names_what_changed() -> None:
    assert changes().summary() == {}
    found = changes(
        ("name: clients", "name: apps"),
        ("    ordinal: 3", "    ordinal: 4"),
        ("distribution: balanced", "distribution: multicast"),
        ("module: DEFAULT", "module: SERVER"),
        also="autoLink {\n address: work\n direction: in\n connection: broker\n}\n",
    )
    assert found.summary() == {
        "added": ["listener/:5672:apps", "autoLink/work", "log/SERVER"],
        "removed": ["listener/:5672:clients", "log/DEFAULT"],
        "changed": ["address/jobs", "sslProfile/tls"],
    }
