"""The dashboard of the rendered chart, and the names of metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import CHART, Render, run
from .exposed import expositions, labels, names

pytestmark = pytest.mark.timeout(1200)  # whichever comes first may have Helm compiled

DASHBOARD = CHART / "files" / "dashboard.json"
OF_OTHERS = {"ALERTS", "process_cpu_seconds_total", "process_resident_memory_bytes"}


def queries() -> Iterator[tuple[str, str]]:
    """Titles of panels, and what these ask, as Grafana sends it."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            asked = target["expr"].replace("$namespace", ".*").replace("$__rate_interval", "2m")
            yield panel["title"], asked


def test_the_config_map_is_one_that_grafana_finds(render: Render) -> None:
    (found,) = [item for item in render("dashboard.enabled=true") if item["kind"] == "ConfigMap"]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["isthmus.json"]) == json.loads(DASHBOARD.read_text())


def test_prometheus_understands_every_query(tmp_path: Path, promtool: str) -> None:
    rules = [
        {"record": "x:y", "expr": asked, "labels": {"n": str(n)}} for n, (_, asked) in enumerate(queries())
    ]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = run(promtool, "check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_queries_use_metrics_and_labels_that_exist() -> None:
    known = {**labels(), "ALERTS": {"alertname", "alertstate"}}
    for name in OF_OTHERS:
        known.setdefault(name, set())
    asked_for = set()
    for title, asked in queries():
        series = set(re.findall(r"\b(?:isthmus|process)_\w+|\bALERTS\b", asked))
        assert series, title
        assert series <= set(known), title
        asked_for |= series
        own = set[str]().union(*(known[name] for name in series)) | {"namespace", "pod", "job"}
        for selected in re.findall(r"\{([^}]*)\}", asked):
            assert set(re.findall(r"(\w+)(?==|!=)", selected)) <= own, title
        for grouped in re.findall(r"(?:by|on) \(([^)]*)\)", asked):
            assert set(grouped.split(", ")) <= own, title
    for part in ("router", "router_relay", "router_edge", "operator_ssl_profile", "operator", "collector"):
        assert [name for name in asked_for if name.startswith(f"isthmus_{part}_")], part


def test_legends_name_labels_that_the_queries_keep() -> None:
    known = labels()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            kept = re.findall(r"\b(?:sum|max|min|count) by \(([^)]*)\)", target["expr"])
            series = re.findall(r"\b(?:isthmus|process)_\w+", target["expr"])
            own = (
                set(kept[0].split(", "))
                if kept
                else set[str]().union(*(known[name] for name in series)) | {"namespace", "pod"}
            )
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert shown <= own, panel["title"]


def test_panels_do_not_overlap_and_no_query_is_twice() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place: dict[str, Any] = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    asked = [text for _, text in queries()]
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize(
    "pod", ["isthmus-router", "isthmus-gossip-router", "isthmus-flow-collector", "isthmus-operator"]
)
def test_names_of_metrics_are_as_prometheus_wants_them(tmp_path: Path, promtool: str, pod: str) -> None:
    """Base units, `_total` of counters only, a help text."""
    done = run(promtool, "check", "metrics", input=expositions()[pod].decode())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_metric_is_in_a_page() -> None:
    pages = ("status", "gossip-router", "flow-log", "operator")
    text = "\n".join((CHART.parents[1] / "docs" / f"{page}.md").read_text() for page in pages)
    found = set(names())
    assert len(found) > 100
    for name in found:
        short = re.sub(r"^isthmus_(collector|gossip_router)_", "", name)
        tail = name.removeprefix("isthmus_operator_ssl_profile")
        assert any(f"`{form}`" in text for form in (name, short, f"...{tail}")), name


def test_the_example_without_the_prometheus_operator_is_a_configuration(
    tmp_path: Path, promtool: str
) -> None:
    document = yaml.safe_load((CHART.parents[1] / "examples" / "monitoring" / "prometheus.yaml").read_text())
    operator, pods = document["scrape_configs"]
    # Debian's is built without.
    assert operator.pop("kubernetes_sd_configs") == [{"role": "pod", "namespaces": {"names": ["isthmus"]}}]
    assert pods.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    path = tmp_path / "prometheus.yaml"
    path.write_text(yaml.safe_dump({**document, "rule_files": []}))
    done = run(promtool, "check", "config", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
