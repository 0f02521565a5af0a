"""For each alert: series that make it fire, and series that look alike and must not.

Values are in the notation of promtool, a sample each minute: `1x5 0x10` is 1 at six moments, then 0 at eleven.
"""

from __future__ import annotations

from dataclasses import dataclass

Series = dict[str, str]

_POD = 'namespace="net",pod="a-0"'
_TARGET = f'{_POD},job="pods",instance="10.0.0.1:9090"'
_SITE = 'namespace="net",group="trades",site="nyc"'
_MEMBER = f'{_SITE},pod="a-0"'
_REMOTE = f'{_SITE},remote_site="sfo"'
_STATE = "isthmus_router_relay_remote_site_state"
_RELAY = "isthmus_router_relay_"
_POD_LABELS = {"namespace": "net", "pod": "a-0"}
_SITE_LABELS = {"namespace": "net", "group": "trades", "site": "nyc"}
_REMOTE_LABELS = {**_SITE_LABELS, "remote_site": "sfo"}
_LIMITS = {
    f"{_RELAY}buffer_limit_messages{{{_MEMBER}}}": "100x40",
    f"{_RELAY}buffer_limit_bytes{{{_MEMBER}}}": "1000x40",
    f"{_RELAY}buffer_limit_seconds{{{_MEMBER}}}": "60x40",
}


@dataclass(frozen=True)
class Case:
    """Of one alert. Each member of `firing` makes it fire, once, with these labels and this summary."""

    minutes: int
    """When it is looked at."""
    labels: dict[str, str]
    """But for `severity`."""
    summary: str
    firing: tuple[Series, ...]
    quiet: tuple[Series, ...]


def _gone(kind: str) -> tuple[Series, ...]:
    """A target that has exposed `kind` until Prometheus could not reach it any more."""
    return ({f"up{{{_TARGET}}}": "1x5 0x20", f"{kind}{{{_TARGET}}}": "1x5 stale"},)


def _not_gone(kind: str) -> tuple[Series, ...]:
    """One that is there while another kind of target is down; one that was deleted; one that was away for a moment."""
    other = 'up{namespace="net",pod="web-0",job="pods",instance="10.0.0.2:80"}'
    return (
        {f"up{{{_TARGET}}}": "1x25", other: "0x25", f"{kind}{{{_TARGET}}}": "1x25"},
        {f"up{{{_TARGET}}}": "1x5 0 stale", f"{kind}{{{_TARGET}}}": "1x5 stale"},
        {f"up{{{_TARGET}}}": "1x5 0 1x20", f"{kind}{{{_TARGET}}}": "1x5 stale 1x20"},
    )


_OPERATOR = 'job="isthmus-operator",namespace="net"'
_EXPIRY = f'isthmus_operator_certificate_expiry_timestamp_seconds{{{_OPERATOR},router="hub",secret="tls"}}'
_PROFILE = f'isthmus_operator_ssl_profile_certificate_expiry_timestamp_seconds{{{_OPERATOR},profile="tls"}}'
_ROTATING = f'isthmus_operator_ssl_profile_rotating_since_timestamp_seconds{{{_OPERATOR},profile="tls"}}'
_REVOCATIONS = _PROFILE.replace("certificate_expiry", "revocation_list_expiry")
_UPLINKS = f"isthmus_router_edge_uplinks{{{_POD}"
_CONNECTORS = f"isthmus_router_connectors{{{_POD}"

CASES: dict[str, Case] = {
    "IsthmusNoLeader": Case(
        5,
        {},
        "No operator pod leads.",
        ({'isthmus_operator_leader{job="isthmus-operator",pod="op-0"}': "0x20"}, {"up": "1x20"}),
        (
            {
                'isthmus_operator_leader{job="isthmus-operator",pod="op-0"}': "0x20",
                'isthmus_operator_leader{job="isthmus-operator",pod="op-1"}': "1x20",
            },
            {'isthmus_operator_leader{job="isthmus-operator",pod="op-0"}': "1x3 0 1x20"},
        ),
    ),
    "IsthmusResourceNotReady": Case(
        12,
        {"kind": "FlowAnalysis"},
        "2 FlowAnalysis resources are not ready.",
        ({'isthmus_operator_objects{job="isthmus-operator",kind="FlowAnalysis",ready="False"}': "2x20"},),
        (
            {
                'isthmus_operator_objects{job="isthmus-operator",kind="Router",ready="True"}': "2x20",
                'isthmus_operator_objects{job="isthmus-operator",kind="Router",ready="False"}': "0x20",
                'isthmus_operator_objects{job="isthmus-operator",kind="Router",ready="Unknown"}': "0x20",
            },
        ),
    ),
    "IsthmusReconciliationFails": Case(
        25,
        {},
        "The operator keeps retrying.",
        ({'isthmus_operator_reconciliations_total{job="isthmus-operator",result="retry"}': "0+1x40"},),
        (
            {
                'isthmus_operator_reconciliations_total{job="isthmus-operator",result="retry"}': "3x40",
                'isthmus_operator_reconciliations_total{job="isthmus-operator",result="ok"}': "0+1x40",
            },
        ),
    ),
    "IsthmusNamespaceUnreadable": Case(
        15,
        {},
        "2 namespaces of the installation cannot be read by the operator.",
        ({'isthmus_operator_unreadable_namespaces{job="isthmus-operator"}': "2x20"},),
        ({'isthmus_operator_unreadable_namespaces{job="isthmus-operator"}': "0x20"},),
    ),
    "IsthmusSeriesOmitted": Case(
        15,
        {"namespace": "net"},
        "7 series about certificates of namespace net are beyond the maximum of a namespace.",
        ({'isthmus_operator_omitted_series{job="isthmus-operator",namespace="net"}': "7x20"},),
        ({'isthmus_operator_omitted_series{job="isthmus-operator",namespace="net"}': "7x5 stale"},),
    ),
    "IsthmusCertificateExpires": Case(
        15,
        {"namespace": "net", "router": "hub", "secret": "tls"},
        "The certificate that Router net/hub uses from Secret tls expires in 2d 23h 45m 0s.",
        ({_EXPIRY: "259200x20"},),
        ({_EXPIRY: "2592000x20"}, {_EXPIRY: "60x20"}),
    ),
    "IsthmusCertificateExpired": Case(
        5,
        {"namespace": "net", "router": "hub", "secret": "tls"},
        "The certificate that Router net/hub uses from Secret tls has expired.",
        ({_EXPIRY: "60x20"},),
        ({_EXPIRY: "259200x20"},),
    ),
    "IsthmusRevocationListExpires": Case(
        15,
        {"namespace": "net", "profile": "tls"},
        "A certificate revocation list of SslProfile net/tls expires in 11h 45m 0s.",
        ({_REVOCATIONS: "43200x20"},),
        ({_REVOCATIONS: "259200x20"}, {_REVOCATIONS: "60x20"}),
    ),
    "IsthmusRevocationListExpired": Case(
        5,
        {"namespace": "net", "profile": "tls"},
        "A certificate revocation list of SslProfile net/tls has expired.",
        ({_REVOCATIONS: "60x20"},),
        ({_REVOCATIONS: "43200x20"}, {_PROFILE: "60x20"}),
    ),
    "IsthmusLoginsFail": Case(
        15,
        _POD_LABELS,
        "50 logins at router net/a-0 failed in ten minutes.",
        (
            {f'isthmus_router_failed_logins_total{{{_POD},outcome="refused"}}': "0+5x20"},
            {
                f'isthmus_router_failed_logins_total{{{_POD},outcome="refused"}}': "0+2x20",
                f'isthmus_router_failed_logins_total{{{_POD},outcome="throttled"}}': "0+3x20",
            },
        ),
        (
            {f'isthmus_router_failed_logins_total{{{_POD},outcome="refused"}}': "0+1x20"},
            {f'isthmus_router_failed_logins_total{{{_POD},outcome="refused"}}': "900x20"},
        ),
    ),
    "IsthmusPeersRefused": Case(
        15,
        _POD_LABELS,
        "Router net/a-0 refused 10 connections in ten minutes because of the names in their certificates.",
        ({f"isthmus_router_peers_refused_total{{{_POD}}}": "0+1x20"},),
        ({f"isthmus_router_peers_refused_total{{{_POD}}}": "7x20"},),
    ),
    "IsthmusPolicyDenials": Case(
        15,
        _POD_LABELS,
        "The policy of router net/a-0 refused 50 times in ten minutes.",
        (
            {
                f'isthmus_router_policy_denials_total{{{_POD},kind="sender"}}': "0+2x20",
                f'isthmus_router_policy_denials_total{{{_POD},kind="message"}}': "0+3x20",
            },
        ),
        (
            {f'isthmus_router_policy_denials_total{{{_POD},kind="sender"}}': "0+1x20"},
            {f'isthmus_router_policy_denials_total{{{_POD},kind="sender"}}': "900x20"},
        ),
    ),
    "IsthmusExcessConnections": Case(
        15,
        _POD_LABELS,
        "Router net/a-0 closed 10 connections in ten minutes because a listener had its maximum.",
        ({f"isthmus_router_excess_connections_total{{{_POD}}}": "0+1x20"},),
        ({f"isthmus_router_excess_connections_total{{{_POD}}}": "7x20"},),
    ),
    "IsthmusRoutingMessagesRefused": Case(
        15,
        _POD_LABELS,
        "Router net/a-0 refused 10 routing messages in ten minutes.",
        ({f"isthmus_router_routing_messages_refused_total{{{_POD}}}": "0+1x20"},),
        ({f"isthmus_router_routing_messages_refused_total{{{_POD}}}": "7x20"},),
    ),
    "IsthmusSslProfileExpires": Case(
        15,
        {"namespace": "net", "profile": "tls"},
        "The certificate in service of SslProfile net/tls expires in 2d 23h 45m 0s.",
        ({_PROFILE: "259200x20"},),
        ({_PROFILE: "2592000x20"}, {_PROFILE: "60x20"}),
    ),
    "IsthmusSslProfileExpired": Case(
        5,
        {"namespace": "net", "profile": "tls"},
        "The certificate in service of SslProfile net/tls has expired.",
        ({_PROFILE: "60x20"},),
        ({_PROFILE: "259200x20"},),
    ),
    "IsthmusRotationStuck": Case(
        7,
        {"namespace": "net", "profile": "tls"},
        "The rotation of SslProfile net/tls has not come to its end for 7m 0s.",
        ({_ROTATING: "0x20"},),
        ({_ROTATING: "300x20"}, {_ROTATING: "0x3 stale"}),
    ),
    "IsthmusRouterDown": Case(
        8,
        _POD_LABELS,
        "Router net/a-0 does not answer.",
        _gone("isthmus_router_build_info"),
        _not_gone("isthmus_router_build_info"),
    ),
    "IsthmusGossipRouterDown": Case(
        12,
        _POD_LABELS,
        "Gossip router net/a-0 does not answer.",
        _gone("isthmus_gossip_router_members"),
        _not_gone("isthmus_gossip_router_members"),
    ),
    "IsthmusRouterNotReady": Case(
        6,
        _POD_LABELS,
        "Router net/a-0 is not ready.",
        ({f"isthmus_router_ready{{{_POD}}}": "0x20"},),
        ({f"isthmus_router_ready{{{_POD}}}": "0x3 1 0x20"},),
    ),
    "IsthmusRouterConfigurationRefused": Case(
        6,
        _POD_LABELS,
        "Router net/a-0 refuses its configuration and runs an older one.",
        ({f"isthmus_router_config_valid{{{_POD}}}": "0x20"},),
        ({f"isthmus_router_config_valid{{{_POD}}}": "1x20"},),
    ),
    "IsthmusUplinkLost": Case(
        3,
        _POD_LABELS,
        "Edge router net/a-0 has no uplink.",
        (
            {
                f'{_UPLINKS},state="active"}}': "0x20",
                f'{_UPLINKS},state="standby"}}': "0x20",
                f'{_CONNECTORS},role="edge",state="connecting"}}': "2x20",
            },
        ),
        (
            {
                f'{_UPLINKS},state="active"}}': "1x20",
                f'{_UPLINKS},state="standby"}}': "0x20",
                f'{_CONNECTORS},role="edge",state="open"}}': "1x20",
            },
            {  # an edge that is meant to be alone
                f'{_UPLINKS},state="active"}}': "0x20",
                f'{_CONNECTORS},role="normal",state="open"}}': "1x20",
            },
        ),
    ),
    "IsthmusLinkDown": Case(
        6,
        {**_POD_LABELS, "role": "inter-router"},
        "2 inter-router connectors of router net/a-0 are not open.",
        ({f'{_CONNECTORS},role="inter-router",state="connecting"}}': "2x20"},),
        (
            {
                f'{_CONNECTORS},role="inter-router",state="open"}}': "2x20",
                f'{_CONNECTORS},role="normal",state="connecting"}}': "1x20",
            },
        ),
    ),
    "IsthmusAutoLinkMissing": Case(
        6,
        _POD_LABELS,
        "3 auto-links of router net/a-0 are not attached.",
        (
            {
                f'isthmus_router_auto_links{{{_POD},state="failed"}}': "2x20",
                f'isthmus_router_auto_links{{{_POD},state="inactive"}}': "1x20",
            },
        ),
        ({f'isthmus_router_auto_links{{{_POD},state="active"}}': "2x20"},),
    ),
    "IsthmusDeliveriesStuck": Case(
        6,
        _POD_LABELS,
        "4 deliveries at router net/a-0 have been unsettled for more than ten seconds.",
        ({f"isthmus_router_deliveries_stuck{{{_POD}}}": "4x20"},),
        ({f"isthmus_router_deliveries_stuck{{{_POD}}}": "4 4 0 4 4 4 4"},),
    ),
    "IsthmusSiteUnreachable": Case(
        3,
        _REMOTE_LABELS,
        "Site nyc of group trades does not reach site sfo.",
        (
            {
                f'{_STATE}{{{_REMOTE},pod="a-{number}",state="{state}"}}': f"{int(state == 'unreachable')}x20"
                for number in (0, 1)
                for state in ("up", "left", "unreachable")
            },
        ),
        (
            {  # one of two members has not heard yet
                f'{_STATE}{{{_REMOTE},pod="a-0",state="up"}}': "0x20",
                f'{_STATE}{{{_REMOTE},pod="a-1",state="up"}}': "1x20",
            },
            {  # it said goodbye
                f'{_STATE}{{{_REMOTE},pod="a-0",state="up"}}': "0x20",
                f'{_STATE}{{{_REMOTE},pod="a-0",state="left"}}': "1x20",
            },
        ),
    ),
    "IsthmusSiteBufferNearlyFull": Case(
        2,
        _SITE_LABELS,
        "The buffer of site nyc of group trades is filled to 90% of one of its bounds.",
        (
            {**_LIMITS, f"{_RELAY}buffered_messages{{{_MEMBER}}}": "90x20"},
            {**_LIMITS, f"{_RELAY}buffered_bytes{{{_MEMBER}}}": "900x20"},
            {
                **_LIMITS,
                f'{_RELAY}lag_seconds{{{_MEMBER},remote_site="sfo"}}': "54x20",
                f'{_RELAY}lag_seconds{{{_MEMBER},remote_site="lon"}}': "1x20",
            },
        ),
        (
            {
                **_LIMITS,
                f"{_RELAY}buffered_messages{{{_MEMBER}}}": "70x20",
                f"{_RELAY}buffered_bytes{{{_MEMBER}}}": "700x20",
                f'{_RELAY}lag_seconds{{{_MEMBER},remote_site="sfo"}}': "40x20",
            },
            {  # no bound in time
                **_LIMITS,
                f"{_RELAY}buffer_limit_seconds{{{_MEMBER}}}": "+Inf +Inf +Inf +Inf",
                f'{_RELAY}lag_seconds{{{_MEMBER},remote_site="sfo"}}': "5400x20",
            },
        ),
    ),
    "IsthmusSiteBufferFull": Case(
        5,
        _REMOTE_LABELS,
        "50 messages of site nyc of group trades for site sfo were dropped from the buffer in five minutes.",
        ({f'{_RELAY}dropped_messages_total{{{_REMOTE},pod="a-0"}}': "0+10x20"},),
        ({f'{_RELAY}dropped_messages_total{{{_REMOTE},pod="a-0"}}': "10x20"},),
    ),
    "IsthmusSiteBehind": Case(
        3,
        _REMOTE_LABELS,
        "Site sfo is 30s behind site nyc of group trades.",
        ({f'{_RELAY}lag_seconds{{{_REMOTE},pod="a-0"}}': "30x20"},),
        (
            {f'{_RELAY}lag_seconds{{{_REMOTE},pod="a-0"}}': "5x20"},
            {f'{_RELAY}lag_seconds{{{_REMOTE},pod="a-0"}}': "30 30 1 30"},
        ),
    ),
    "IsthmusSendersHeldBack": Case(
        14,
        _REMOTE_LABELS,
        "Senders of site nyc of group trades wait for site sfo more than half of the time.",
        ({f'{_RELAY}held_back_seconds_total{{{_REMOTE},pod="a-0"}}': "0+45x20"},),
        ({f'{_RELAY}held_back_seconds_total{{{_REMOTE},pod="a-0"}}': "0+15x20"},),
    ),
    "IsthmusMessagesLost": Case(
        5,
        _SITE_LABELS,
        "50 messages of group trades never arrived at site nyc, in the last five minutes.",
        ({f"{_RELAY}lost_messages_total{{{_MEMBER}}}": "0+10x20"},),
        ({f"{_RELAY}lost_messages_total{{{_MEMBER}}}": "10x20"},),
    ),
    "IsthmusFlowCollectorDown": Case(
        12,
        _POD_LABELS,
        "Flow collector net/a-0 does not answer.",
        _gone("isthmus_collector_connected"),
        _not_gone("isthmus_collector_connected"),
    ),
    "IsthmusFlowCollectorDisconnected": Case(
        6,
        _POD_LABELS,
        "Flow collector net/a-0 has no connection to a router.",
        ({f"isthmus_collector_connected{{{_POD}}}": "0x20"},),
        ({f"isthmus_collector_connected{{{_POD}}}": "0 0 1 0 0 0 0"},),
    ),
    "IsthmusFlowCollectorHearsNothing": Case(
        6,
        _POD_LABELS,
        "Flow collector net/a-0 is connected, and no router tells it anything.",
        (
            {
                f"isthmus_collector_connected{{{_POD}}}": "1x20",
                f"isthmus_collector_sources{{{_POD}}}": "0x20",
            },
        ),
        (
            {
                f"isthmus_collector_connected{{{_POD}}}": "1x20",
                f"isthmus_collector_sources{{{_POD}}}": "3x20",
            },
            {  # another alert
                f"isthmus_collector_connected{{{_POD}}}": "0x20",
                f"isthmus_collector_sources{{{_POD}}}": "0x20",
            },
        ),
    ),
    "IsthmusFlowRecordsMissed": Case(
        15,
        _POD_LABELS,
        "15 messages with flow records have not reached collector net/a-0 in fifteen minutes.",
        ({f"isthmus_collector_missed_messages_total{{{_POD}}}": "0+1x20"},),
        ({f"isthmus_collector_missed_messages_total{{{_POD}}}": "4x20"},),
    ),
    "IsthmusFlowLogNotWritten": Case(
        12,
        _POD_LABELS,
        "Flow collector net/a-0 keeps failing to write, read or clean its log.",
        ({f"isthmus_collector_sink_errors_total{{{_POD}}}": "0+1x20"},),
        (
            {f"isthmus_collector_sink_errors_total{{{_POD}}}": "4x20"},
            {f"isthmus_collector_sink_errors_total{{{_POD}}}": "0 1x30"},  # once
        ),
    ),
    "IsthmusFlowLogBehind": Case(
        6,
        _POD_LABELS,
        "The oldest row of flow collector net/a-0 that is in no file is 15m 0s old.",
        (
            {
                f"isthmus_collector_oldest_unwritten_seconds{{{_POD}}}": "900x20",
                f"isthmus_collector_rotate_seconds{{{_POD}}}": "300x20",
            },
        ),
        (
            {
                f"isthmus_collector_oldest_unwritten_seconds{{{_POD}}}": "310x20",
                f"isthmus_collector_rotate_seconds{{{_POD}}}": "300x20",
            },
            {
                f"isthmus_collector_oldest_unwritten_seconds{{{_POD}}}": "900x20",
                f"isthmus_collector_rotate_seconds{{{_POD}}}": "900x20",
            },
        ),
    ),
}
