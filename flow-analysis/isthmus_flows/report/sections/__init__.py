"""The page, section by section, in the order in which people ask."""

from __future__ import annotations

from isthmus_flows.report.blocks import Section
from isthmus_flows.report.data import ReportData
from isthmus_flows.report.sections import network, rest, traffic

_ALL = (
    traffic.traffic,
    traffic.over_time,
    traffic.latency,
    traffic.talkers,
    network.utilisation,
    network.waiting,
    network.rotation,
    network.topology,
    network.relay,
    rest.anomalies,
    rest.sessions_of,
    rest.quality,
)


def sections(data: ReportData) -> list[Section]:
    """All of them."""
    return [make(data) for make in _ALL]
