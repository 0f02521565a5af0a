"""What an analysis of a made-up network could have found: realistic, nothing at all, or far too much."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime, timedelta
from typing import Any

from isthmus_flows.report import ReportData, Rows
from isthmus_flows.tables import TABLES, Kind

START = datetime(2026, 11, 22, 8, tzinfo=UTC)
HOURS = 24
STEP = timedelta(minutes=6)
POINTS = HOURS * 10
END = START + timedelta(hours=HOURS)
COUNTS = (
    "deliveries",
    "octets",
    "accepted",
    "rejected",
    "released",
    "modified",
    "presettled",
    "dropped",
    "links",
)


def summary(**more: Any) -> dict[str, Any]:
    totals = {
        way: {**dict.fromkeys(COUNTS, 0), "deliveries": 1_234_567, "octets": 345_000_000}
        for way in ("in", "out")
    }
    totals["in"]["released"] = 12_345
    return {
        "log": "s3a://flows/prod",
        "window": {"from": START.isoformat(), "to": END.isoformat(), "bucketSeconds": 60},
        "generatedAt": END.isoformat(),
        "totals": totals,
        "findings": [],
        "seconds": 24.7,
        "durations": {"read": 21.5, "report": 3.2},
        **more,
    }


def row(of: str, /, **values: Any) -> dict[str, Any]:
    """A row of a table: what is not given is plausible."""
    (found,) = (item for item in TABLES if item.name == of)
    plain: dict[Kind, Any] = {
        Kind.STRING: None,
        Kind.LONG: 0,
        Kind.DOUBLE: 0.0,
        Kind.TIME: START,
        Kind.FLAG: False,
    }
    unknown = set(values) - {column.name for column in found.columns}
    assert not unknown, unknown
    return {column.name: values.get(column.name, plain[column.kind]) for column in found.columns}


def rows(*items: dict[str, Any], count: int | None = None) -> Rows:
    return Rows(items, len(items) if count is None else count)


def nothing() -> ReportData:
    """Of a log without rows."""
    empty = {**summary()["totals"]}
    for way in empty:
        empty[way] = dict.fromkeys(COUNTS, 0)
    return ReportData(summary(totals=empty), {}, {}, STEP)


def moments() -> list[datetime]:
    return [START + STEP * number for number in range(POINTS)]


def network(sites: int = 4, addresses: int = 6, routers: int = 3, name: str = "orders") -> ReportData:
    """Of a network with so many."""
    named = [f"{name}.{number}" if number else name for number in range(addresses)]
    places = [f"site-{number}" for number in range(sites)]
    matrix = [
        row(
            "traffic_matrix",
            **{"site": site, "address": address, "direction": way, "deliveries": 10_000 * (i + 1) // (j + 1)},
            **{"octets": 2_000_000 * (i + 1) // (j + 1), "accepted": 9_900, "released": 100, "links": 3},
            **{"latency_p50_us": 850.0, "latency_p90_us": 2_100.0, "latency_p99_us": 45_000.0 * (j + 1)},
        )
        for i, site in enumerate(places)
        for j, address in enumerate(named)
        for way in ("in", "out")
    ]
    matrix.sort(key=lambda item: -item["octets"])
    ids = [f"{site}-{number}" for site in places for number in range(routers)]
    edges = [
        row(
            "topology_edges",
            **{"router": one, "peer": other, "role": "edge" if number % 5 == 4 else "inter-router"},
            **{"cost": 1, "status": "down" if number == 2 else "up", "down_count": number % 3},
            **{"octets_out": 4_000_000 // (number + 1), "octets_in": 1_000_000 // (number + 1)},
        )
        for number, (one, other) in enumerate(itertools.pairwise(ids))
    ]
    when = moments()
    wave = [1 + math.sin(number / 12) for number in range(POINTS)]
    tables = {
        "traffic_matrix": rows(*matrix[:960], count=len(matrix)),
        "links": rows(
            *(
                row(
                    "links",
                    **{
                        "router": ids[0],
                        "address": named[0],
                        "direction": "in",
                        "container": f"billing-{number}",
                    },
                    **{
                        "host": "10.1.2.3",
                        "deliveries": 1000,
                        "latency_p50_us": 900.0,
                        "latency_p90_us": 2e3,
                    },
                    **{"latency_p99_us": 1e4 * (number + 1), "delayed_1_second": number},
                )
                for number in range(8)
            ),
            count=4000,
        ),
        "top_talkers": rows(
            *(
                row(
                    "top_talkers",
                    **{"rank_octets": number + 1, "rank_deliveries": number + 1, "site": places[0]},
                    **{
                        "container": f"billing-{number}",
                        "host": "10.1.2.3",
                        "user": "anonymous",
                        "direction": way,
                    },
                    **{"deliveries": 500_000 // (number + 1), "octets": 80_000_000 // (number + 1)},
                    **{"share_octets": 0.4 / (number + 1), "addresses": 2},
                )
                for way in ("in", "out")
                for number in range(12)
            )
        ),
        "utilisation": rows(
            *(
                row(
                    "utilisation",
                    kind=kind,
                    router=ids[0],
                    peer=ids[-1],
                    role="edge",
                    direction=way,
                    mean_deliveries_per_second=12.5,
                    p95_deliveries_per_second=80.0,
                    peak_deliveries_per_second=410.0,
                    mean_octets_per_second=3e4,
                    peak_octets_per_second=2e6,
                )
                for kind in ("router", "connection")
                for way in ("in", "out")
            )
        ),
        "starvation": rows(
            row(
                "starvation",
                router=ids[0],
                address=named[0],
                direction="out",
                container="slow",
                host="10.1.2.4",
                seconds=3600.0,
                no_credit_seconds=1250.0,
                share=0.35,
                longest_seconds=600.0,
            )
        ),
        "stuck": rows(
            row(
                "stuck",
                router=ids[0],
                address=named[0],
                direction="out",
                container="hangs",
                host="10.1.2.5",
                most_unsettled=7,
                oldest_seconds=4321.0,
                last=END,
            )
        ),
        "rotations": rows(
            row(
                "rotations",
                router=ids[0],
                profile="net",
                ordinal_before=3,
                ordinal=4,
                connections_upgraded=5,
                raised_at=START + timedelta(hours=6),
                old_connections=2,
                duration_seconds=930.0,
                complete=True,
            )
        ),
        "rotation_outlived": rows(
            row(
                "rotation_outlived",
                router=ids[0],
                role="normal",
                container="long-stream",
                host="10.1.2.6",
                tls_ordinal=3,
                newest_ordinal=4,
                deliveries_after=17,
                open=True,
            )
        ),
        "topology_edges": rows(*edges),
        "topology_churn": rows(
            row(
                "topology_churn",
                start=START + timedelta(hours=10),
                end=START + timedelta(hours=10, minutes=20),
                events=31,
                routers=4,
                neighbours_lost=6,
                path_computations=22,
                released=412,
                delayed=30,
                cost_deliveries=398.0,
            )
        ),
        "relay_totals": rows(
            row(
                "relay_totals",
                relay_group="trades",
                relay_site="nyc",
                remote_site="sfo",
                state="up",
                sent=90_000,
                received=88_000,
                dropped=120,
                gaps=0,
                max_lag_seconds=31.0,
                not_up_seconds=44.0,
            )
        ),
        "relay_events": rows(
            row(
                "relay_events",
                time=START + timedelta(hours=3),
                relay_site="nyc",
                router=ids[0],
                remote_site="sfo",
                event="messages-dropped",
                count=120,
            )
        ),
        "anomalies": rows(
            row(
                "anomalies",
                bucket_hour=START + timedelta(hours=5),
                site=places[0],
                address=named[0],
                direction="in",
                metric="latency_p99_us",
                value=450_000.0,
                expected=12_000.0,
                score=17.0,
                severity=17.0,
            )
        ),
        "sessions": rows(
            *(
                row(
                    "sessions",
                    kind=kind,
                    router=ids[0],
                    site=places[0],
                    name=f"{kind} 1",
                    container="billing-1",
                    address=named[0],
                    direction="in",
                    start_known=known,
                    end=END,
                    end_known=end,
                    duration_seconds=7_000.0,
                    deliveries=4_000,
                    octets=900_000,
                )
                for kind, known, end in (
                    ("router", True, "lost"),
                    ("connection", False, "open"),
                    ("link", True, "ended"),
                )
            )
        ),
        "completeness": rows(
            row("completeness", router=ids[0], links=40, told=99_000, counted=99_010, missing_intervals=1)
        ),
        "quarantine": rows(
            row("quarantine", table="deliveries", file="s3a://flows/prod/x.parquet", reason="empty")
        ),
        "quality": rows(row("quality", table="deliveries", files=288, rows=1_400_000, duplicates=900)),
    }
    series: dict[str, list[dict[str, Any]]] = {
        "matrix": [
            {name: item[name] for name in ("site", "address", "direction", "deliveries", "octets")}
            for item in matrix
            if int(item["site"].split("-")[-1]) >= sites - 20 and item["address"] in named[:24]
        ],
        "rates": [
            {
                "moment": at,
                "address": address,
                "direction": way,
                "deliveries_per_second": 40 * level / (j + 1),
                "octets_per_second": 0.0,
            }
            for at, level in zip(when, wave, strict=True)
            for j, address in enumerate([*named[:7], "others"])
            for way in ("in", "out")
        ],
        "latency": [
            {"moment": at, "p50": 800 + 300 * level, "p90": 3_000.0 * level + 1, "p99": 40_000.0 * level + 1}
            for at, level in zip(when[:90] + when[110:], wave[:90] + wave[110:], strict=True)
        ],
        "slowest": [
            {"moment": at, "address": address, "p50": 1.0, "p90": 1.0, "p99": 20_000.0 * (j + 1) * level + 1}
            for at, level in zip(when, wave, strict=True)
            for j, address in enumerate(named[:5])
        ],
        "ordinals": [
            {"moment": at, "tls_ordinal": ordinal, "connections": count}
            for number, at in enumerate(when)
            for ordinal, count in ((3, 20 if number < 60 else 2), (4, 0 if number < 60 else 18))
            if count
        ],
        "events": [
            {"moment": when[number], "event": event, "count": number % 7 + 1}
            for number in range(95, 110, 3)
            for event in ("neighbour-lost", "paths-computed")
        ],
        "relay": [
            {
                "moment": at,
                "relay_group": "trades",
                "relay_site": "nyc",
                "remote_site": "sfo",
                "lag_seconds": 31.0 if 50 < number < 60 else 0.02,
                "sent_per_second": 120.0,
            }
            for number, at in enumerate(when)
        ],
    }
    findings = [
        {
            "severity": "critical",
            "kind": "relay-dropped",
            "text": "120 messages from nyc will never arrive at sfo.",
        },
        {
            "severity": "warning",
            "kind": "starvation",
            "text": f"slow gave no credit for {named[0]} for 20 min 50 s.",
        },
        {"severity": "info", "kind": "busiest", "text": f"{named[0]} is the busiest address."},
    ]
    where: dict[str, str | None] = {name: name.rpartition("-")[0] for name in ids}
    many = {"addresses": addresses, "sites": sites, "routers": len(ids)}
    return ReportData(summary(findings=findings), tables | views(tables), series, STEP, where, many)


def views(tables: dict[str, Rows]) -> dict[str, Rows]:
    """What `VIEWS` would be of these tables."""

    def of(name: str, order: str = "", **values: str) -> Rows:
        found = [item for item in tables[name].rows if all(item[key] == values[key] for key in values)]
        if order:
            found.sort(key=lambda item: -item[order])
        return Rows(found[:20], len(found))

    return {
        "slowest_addresses": of("traffic_matrix", "latency_p99_us"),
        "slowest_links": of("links", "latency_p99_us"),
        "senders": of("top_talkers", direction="in"),
        "receivers": of("top_talkers", direction="out"),
        "busy_routers": of("utilisation", kind="router"),
        "busy_connections": of("utilisation", kind="connection"),
        "router_sessions": of("sessions", kind="router"),
        "connection_sessions": of("sessions", kind="connection"),
        "link_sessions": of("sessions", kind="link"),
    }
