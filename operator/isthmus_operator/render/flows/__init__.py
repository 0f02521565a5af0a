"""The objects of FlowLogs and FlowAnalyses: collectors, and Spark jobs over what they keep."""

from .analysis import RenderedAnalysis, render_analysis
from .collector import (
    Destination,
    RefusedError,
    RenderedLog,
    collector_files,
    collector_settings,
    collector_tls,
    destination,
    render_log,
)

__all__ = [
    "Destination",
    "RefusedError",
    "RenderedAnalysis",
    "RenderedLog",
    "collector_files",
    "collector_settings",
    "collector_tls",
    "destination",
    "render_analysis",
    "render_log",
]
