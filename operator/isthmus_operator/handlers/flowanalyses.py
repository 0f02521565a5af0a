"""FlowAnalyses."""

from __future__ import annotations

import kopf

from .watching import watch


def register(registry: kopf.OperatorRegistry) -> None:
    watch(registry, "FlowAnalysis", "flow_analyses")
