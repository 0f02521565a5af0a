"""The tables of an analysis, in the order in which they are computed and described.

Each is a function of `Inputs` with its columns declared beside it; ``docs/flow-analysis.md`` lists them.
"""

from __future__ import annotations

from isthmus_flows.tables.anomalies import ANOMALIES
from isthmus_flows.tables.completeness import COMPLETENESS
from isthmus_flows.tables.inputs import Inputs
from isthmus_flows.tables.links import LINKS
from isthmus_flows.tables.quality import QUALITY, QUARANTINE
from isthmus_flows.tables.relay import RELAY_EVENTS, RELAY_RATES, RELAY_TOTALS
from isthmus_flows.tables.rotation import FLOWS, OUTLIVED, ROTATIONS
from isthmus_flows.tables.sessions import SESSIONS
from isthmus_flows.tables.spec import Column, Kind, OutputTable, Row
from isthmus_flows.tables.starvation import STARVATION, STUCK
from isthmus_flows.tables.talkers import TOP_TALKERS
from isthmus_flows.tables.topology import TOPOLOGY_CHURN, TOPOLOGY_EDGES, TOPOLOGY_EVENTS
from isthmus_flows.tables.traffic import MATRIX, RATES
from isthmus_flows.tables.utilisation import UTILISATION, UTILISATION_RATES

TABLES: tuple[OutputTable, ...] = (
    MATRIX,
    RATES,
    LINKS,
    TOP_TALKERS,
    UTILISATION_RATES,
    UTILISATION,
    STARVATION,
    STUCK,
    FLOWS,
    ROTATIONS,
    OUTLIVED,
    TOPOLOGY_EDGES,
    TOPOLOGY_EVENTS,
    TOPOLOGY_CHURN,
    RELAY_RATES,
    RELAY_TOTALS,
    RELAY_EVENTS,
    ANOMALIES,
    SESSIONS,
    COMPLETENESS,
    QUARANTINE,
    QUALITY,
)

__all__ = ["TABLES", "Column", "Inputs", "Kind", "OutputTable", "Row", "table"]


def table(name: str) -> OutputTable:
    """The table of that name."""
    return next(item for item in TABLES if item.name == name)
