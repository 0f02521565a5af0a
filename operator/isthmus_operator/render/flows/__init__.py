"""The objects of FlowLogs and FlowAnalyses: collectors, and Spark jobs over what they keep."""

from .analysis import RenderedAnalysis, render_analysis
from .collector import RenderedLog, collector_files, collector_settings, render_log

__all__ = [
    "RenderedAnalysis",
    "RenderedLog",
    "collector_files",
    "collector_settings",
    "render_analysis",
    "render_log",
]
