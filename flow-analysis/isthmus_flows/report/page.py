"""The page as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from isthmus_flows import formats
from isthmus_flows.report.data import ReportData
from isthmus_flows.report.sections import sections
from isthmus_flows.tables.inputs import FAILED

MOST_FINDINGS = 20


@cache
def _resource(name: str) -> str:
    return files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


def render(data: ReportData) -> str:
    """HTML. Whatever comes from a log is text in it, never markup."""
    summary = data.summary
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters["short"] = formats.short
    return environment.from_string(_resource("page.html.j2")).render(
        style=Markup(_resource("style.css")),
        window=_window(summary),
        log=summary["log"],
        findings=summary["findings"][:MOST_FINDINGS],
        totals=list(_totals(data)),
        sections=sections(data),
        made=formats.moment(summary["generatedAt"]),
        version=_version(),
        took=formats.seconds(summary["seconds"]),
    )


def _window(summary: Mapping[str, Any]) -> str:
    window = summary["window"]
    start, end = (datetime.fromisoformat(window[name]) for name in ("from", "to"))
    length = formats.seconds((end - start).total_seconds())
    return f"{formats.moment(start)} to {formats.moment(end)} {end.year} UTC, {length}"


def _totals(data: ReportData) -> Iterator[tuple[str, str]]:
    totals = data.summary["totals"]
    yield "messages sent", formats.number(totals["in"]["deliveries"])
    yield "messages received", formats.number(totals["out"]["deliveries"])
    yield "volume sent", formats.size(totals["in"]["octets"])
    failed = sum(totals["in"][name] for name in FAILED)
    count = totals["in"]["deliveries"]
    yield "of these failed", formats.share(failed / count) if count else formats.NOTHING
    for name, many in data.numbers.items():
        yield name, formats.number(many)


def _version() -> str:
    try:
        return version("isthmus")
    except PackageNotFoundError:
        return ""
