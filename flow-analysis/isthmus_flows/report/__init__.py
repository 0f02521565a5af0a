"""The report of an analysis: one HTML file that needs nothing else."""

from isthmus_flows.report.data import ReportData, Rows, collect
from isthmus_flows.report.page import render

__all__ = ["ReportData", "Rows", "collect", "render"]
