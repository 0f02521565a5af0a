"""The exposition is valid and every name has the router's prefix and a unit or `_total`."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from isthmus_router.management.port import EdgeRow, EdgesRow
from isthmus_router.metrics import PREFIX, MetricsSnapshot, exposition

SNAPSHOT = MetricsSnapshot(
    router_id="A",
    mode="interior",
    version="1.2.3",
    uptime_seconds=17.5,
    ready=True,
    kernel="compiled",
    connections={("normal", "in"): 2, ("inter-router", "out"): 1},
    tls_connections={"4": 1},
    links={("endpoint", "in"): 5},
    links_blocked=1,
    link_refusals={"qd:forbidden": 3},
    deliveries={"in": 10, "out": 9},
    outcomes={"accepted": 8, "presettled": 1},
    neighbors={"B": 1},
    path_computations=6,
    connection_upgrades=3,
    routing_messages={"MAU": 5},
    routing_messages_refused=2,
    connectors={("inter-router", "open"): 1},
    ssl_profile_ordinals={"tls": 4},
    config_valid=False,
    log_records={"info": 12},
    edge=EdgeRow(
        active=None,
        standbys=[],
        uplink_changes=2,
        proxied_addresses=7,
        out_proxies=5,
        in_proxies=4,
        bound_addresses=3,
        tracking_messages=9,
        invalid_tracking_messages=1,
    ),
    edges=EdgesRow(
        attached=2, tracked_addresses=11, tracking_messages=13, invalid_announcements=1, duplicate_ids=0
    ),
)


def samples() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(exposition(SNAPSHOT).decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def test_values_and_labels() -> None:
    found = samples()
    expected = {
        (
            "build_info",
            (("kernel", "compiled"), ("mode", "interior"), ("router_id", "A"), ("version", "1.2.3")),
        ): 1,
        ("uptime_seconds", ()): 17.5,
        ("ready", ()): 1,
        ("connections", (("direction", "in"), ("role", "normal"))): 2,
        ("tls_connections", (("ordinal", "4"),)): 1,
        ("links", (("direction", "in"), ("type", "endpoint"))): 5,
        ("links_blocked", ()): 1,
        ("link_refusals_total", (("condition", "qd:forbidden"),)): 3,
        ("deliveries_total", (("direction", "in"),)): 10,
        ("delivery_outcomes_total", (("outcome", "accepted"),)): 8,
        ("neighbor_cost", (("neighbor", "B"),)): 1,
        ("path_computations_total", ()): 6,
        ("connection_upgrades_total", ()): 3,
        ("routing_messages_total", (("opcode", "MAU"),)): 5,
        ("routing_messages_refused_total", ()): 2,
        ("connectors", (("role", "inter-router"), ("state", "open"))): 1,
        ("tls_ordinal", (("profile", "tls"),)): 4,
        ("config_valid", ()): 0,
        ("log_records_total", (("level", "info"),)): 12,
        ("edge_uplinks", (("state", "active"),)): 0,
        ("edge_uplink_changes_total", ()): 2,
        ("edge_proxied_addresses", ()): 7,
        ("edge_bound_addresses", ()): 3,
        ("edge_proxies", (("direction", "out"),)): 5,
        ("edge_tracking_messages_total", (("result", "invalid"),)): 1,
        ("tracked_edges", ()): 2,
        ("tracked_addresses", ()): 11,
        ("tracking_messages_sent_total", ()): 13,
    }
    for (name, labels), value in expected.items():
        assert found[(PREFIX + name, labels)] == value, name


def test_the_process_itself_is_covered() -> None:
    names = {name for name, _ in samples()}
    assert {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"} <= names
    assert all(name.startswith((PREFIX, "process_")) for name in names)


def test_every_metric_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "status.md").read_text()
    text = exposition(SNAPSHOT).decode()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP isthmus_router_")}
    assert names
    assert {name for name in names if f"`{name}`" not in page} == set()
