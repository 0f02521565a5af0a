"""What the routers of a local network say, in the form in which the operator judges it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from isthmus_cli.view import RouterReport
from isthmus_operator.model import NamespaceModel
from isthmus_operator.render import Plan
from isthmus_operator.report import Observation, Report, parse_report
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
            pods=tuple(
                process_view(item.id, name, ready=item.status is not None) for item in groups.get(name, ())
            ),
            observations={
                item.id: observation(item.status, parse_report, now, item.trouble)
                for item in groups.get(name, ())
            },
        )
        for name, router in model.routers.items()
    }


def process_view(process_id: str, router: str, *, ready: bool) -> PodView:
    """A process as if it were a pod. Whether it runs is part of what is observed."""
    return PodView(
        name=process_id,
        uid=process_id,
        ip=LOOPBACK,
        router=router,
        running=True,
        ready=ready,
        deleting=False,
        trouble="",
        sync="",
    )


def observation(
    status: Mapping[str, Any] | None,
    parse: Callable[[Mapping[str, Any], datetime], Report],
    now: datetime,
    trouble: str | None = None,
) -> Observation:
    """What `status` says, as `parse` reads it, or else `trouble`."""
    if status is None:
        return Observation(None, trouble or "does not answer")
    try:
        return Observation(parse(status, now))
    except ValueError as error:
        return Observation(None, str(error))
