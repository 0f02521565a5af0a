"""The exposition is valid and every name has the router's prefix and a unit or `_total`."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from isthmus_router.groups.resolver import ResolverCounters
from isthmus_router.groups.streams.user import StreamsSnapshot
from isthmus_router.management.port import EdgeRow, EdgesRow
from isthmus_router.metrics import PREFIX, MetricsSnapshot, exposition
from isthmus_router.relay.settings import RelaySettings
from isthmus_router.relay.sites import SiteState
from isthmus_router.relay.snapshot import RelaySnapshot, SiteSnapshot
from isthmus_router.relay_site.metrics import RelayFigures
from isthmus_router.sites.face import FaceCounters
from isthmus_router.sites.receivers import ReceiverCounters
from isthmus_router.sites.snapshot import MemberSnapshot

SITE = SiteSnapshot("sfo", SiteState.UP, 3, None, "", "", 21, 22, 0.5, 23, 24, 25, 26, 27, 28, 29, 1.5, None)
MEMBER = MemberSnapshot(
    "trades",
    2,
    7,
    RelaySnapshot("nyc", True, True, False, None, 31, 32, 33, 34, (SITE,)),
    RelaySettings("trades", "nyc", "x/nyc", buffer_seconds=60.0),
    StreamsSnapshot(4, 41, 42, 43, 44, 45, 46),
    ResolverCounters(waited=51, overflowed=52, expired=53, asked=54, foreign=55),
    61,
    62,
    65,
    63,
    64,
)
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
    deliveries_stuck=4,
    neighbors={"B": 1},
    path_computations=6,
    connection_upgrades=3,
    routing_messages={"MAU": 5},
    routing_messages_refused=2,
    routing_messages_dropped=12,
    routing_addresses_refused=9,
    edge_link_routes_ignored={"invalid": 15, "no-room": 16},
    routers_without_place={"refused": 6, "displaced": 7},
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
    relay=RelayFigures(
        MEMBER,
        5,
        {"lost": 71},
        FaceCounters(published=81, lost=82),
        ReceiverCounters(delivered=83, detached=84),
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
        ("deliveries_stuck", ()): 4,
        ("neighbor_cost", (("neighbor", "B"),)): 1,
        ("path_computations_total", ()): 6,
        ("connection_upgrades_total", ()): 3,
        ("routing_messages_total", (("opcode", "MAU"),)): 5,
        ("routing_messages_refused_total", ()): 2,
        ("routing_messages_dropped_total", ()): 12,
        ("routing_addresses_refused_total", ()): 9,
        ("edge_link_routes_ignored_total", (("reason", "invalid"),)): 15,
        ("edge_link_routes_ignored_total", (("reason", "no-room"),)): 16,
        ("routers_without_place_total", (("outcome", "refused"),)): 6,
        ("routers_without_place_total", (("outcome", "displaced"),)): 7,
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


def test_values_of_a_member_of_a_site() -> None:
    found = samples()
    expected = {
        ("members",): 2,
        ("view_changes_total",): 7,
        ("is_relay",): 1,
        ("holder_ready",): 0,
        ("buffered_bytes",): 32,
        ("buffer_limit_messages",): 65_536,
        ("buffer_limit_seconds",): 60,
        ("retained_bytes",): 41,
        ("early_batches",): 43,
        ("repairs_total", ("side", "answered")): 46,
        ("connections",): 5,
        ("transport_events_total", ("event", "lost")): 71,
        ("transport_events_total", ("event", "misdirected")): 63,
        ("transport_events_total", ("event", "refused_frame")): 64,
        ("transport_events_total", ("event", "malformed_bridge")): 34,
        ("unresolved_frames_total", ("result", "expired")): 53,
        ("unicast_waiting_messages",): 61,
        ("unicast_dropped_messages_total",): 65,
        ("unicast_unroutable_frames_total",): 33,
        ("remote_site_state", ("remote_site", "sfo"), ("state", "up")): 1,
        ("remote_site_state", ("remote_site", "sfo"), ("state", "left")): 0,
        ("lag_messages", ("remote_site", "sfo")): 21,
        ("lag_seconds", ("remote_site", "sfo")): 0.5,
        ("replayed_messages_total", ("remote_site", "sfo")): 24,
        ("received_messages_total", ("remote_site", "sfo")): 25,
        ("duplicate_messages_total", ("remote_site", "sfo")): 26,
        ("gap_messages_sent_total", ("remote_site", "sfo")): 27,
        ("gap_messages_received_total", ("remote_site", "sfo")): 28,
        ("dropped_messages_total", ("remote_site", "sfo")): 29,
        ("held_back_seconds_total", ("remote_site", "sfo")): 1.5,
        ("published_messages_total",): 81,
        ("lost_messages_total",): 82,
        ("deliveries_total",): 83,
    }
    for (name, *labels), value in expected.items():
        key = tuple(sorted([("group", "trades"), ("site", "nyc"), *labels]))
        assert found[(f"{PREFIX}relay_{name}", key)] == value, name
    assert not [name for name, _ in found if "round_trip" in name], "it is not known"


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
