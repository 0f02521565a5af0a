"""FlowLogs and FlowAnalyses as their status tells."""

from __future__ import annotations

from dataclasses import dataclass

from .profiles import Manifest, condition


@dataclass(frozen=True)
class FlowLogRow:
    """One FlowLog."""

    name: str
    state: str
    """`ready`, or a reason why not."""
    routers: int
    """That are heard."""
    rows: int
    """Written by the present collector."""
    missed: int
    """Messages of routers that it has not had."""
    location: str
    where: str
    """The collector's process, for display; `-` on Kubernetes."""


@dataclass(frozen=True)
class FlowAnalysisRow:
    """One FlowAnalysis."""

    name: str
    flow_log: str
    schedule: str | None
    state: str
    percent: int | None
    """Tasks done, while it runs."""
    last_run_at: str | None
    headline: str | None
    """What it has found, or why it failed."""
    report: str | None


def flow_log_row(manifest: Manifest) -> FlowLogRow:
    """What a FlowLog and its status say."""
    status, ready = manifest.get("status") or {}, condition(manifest, "Ready")
    return FlowLogRow(
        name=manifest["metadata"]["name"],
        state="ready" if ready.get("status") == "True" else str(ready.get("reason", "unknown")),
        routers=status.get("routers", 0),
        rows=status.get("rowsWritten", 0),
        missed=status.get("messagesMissed", 0),
        location=status.get("location", "-"),
        where="-",
    )


def flow_analysis_row(manifest: Manifest) -> FlowAnalysisRow:
    """What a FlowAnalysis and its status say."""
    spec, status = manifest["spec"], manifest.get("status") or {}
    return FlowAnalysisRow(
        name=manifest["metadata"]["name"],
        flow_log=spec["flowLogRef"]["name"],
        schedule=spec.get("schedule"),
        state=status.get("state", "Pending"),
        percent=status.get("percent"),
        last_run_at=status.get("lastRunAt"),
        headline=status.get("headline"),
        report=status.get("report"),
    )
