"""What the routers of a local network say, in the form in which the operator judges it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from isthmus_cli.view import RouterReport
from isthmus_operator.model import NamespaceModel
from isthmus_operator.render import Plan
from isthmus_operator.report import Observation, parse_report
from isthmus_operator.status import PodView, RouterFacts

from .ports import LOOPBACK


def router_facts(
    plan: Plan, model: NamespaceModel, reports: Iterable[RouterReport], now: datetime
) -> Mapping[str, RouterFacts]:
    """The facts about all Routers, from reports of `now`."""
    groups: dict[str, list[RouterReport]] = {}
    for report in reports:
        groups.setdefault(report.router, []).append(report)
    return {
        name: RouterFacts(
            router=router,
            rendered=None,
            instances=plan.instances[name],
            blocked=None,
            problems=(),
            workload=None,
            services=(),
            pods=tuple(_pod(item) for item in groups.get(name, ())),
            observations={item.id: _observation(item, now) for item in groups.get(name, ())},
        )
        for name, router in model.routers.items()
    }


def _pod(report: RouterReport) -> PodView:
    """Whether the process runs is part of what is observed."""
    answers = report.status is not None
    return PodView(
        name=report.id,
        uid=report.id,
        ip=LOOPBACK,
        router=report.router,
        running=True,
        ready=answers,
        deleting=False,
        trouble="",
        sync="",
    )


def _observation(report: RouterReport, now: datetime) -> Observation:
    if report.status is None:
        return Observation(None, report.trouble or "does not answer")
    try:
        return Observation(parse_report(report.status, now))
    except ValueError as error:
        return Observation(None, str(error))
