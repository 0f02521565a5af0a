"""The objects of FlowLogs and FlowAnalyses: collectors, and Spark jobs over what they keep."""

from .analysis import RenderedAnalysis, render_analysis
from .collector import (
    RefusedError,
    RenderedLog,
    collector_files,
    collector_settings,
    fitting_listener,
    render_log,
)

__all__ = [
    "RefusedError",
    "RenderedAnalysis",
    "RenderedLog",
    "collector_files",
    "collector_settings",
    "fitting_listener",
    "render_analysis",
    "render_log",
]
