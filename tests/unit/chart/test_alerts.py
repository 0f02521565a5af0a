"""The alerting rules of the rendered chart, run by promtool."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from .alert_cases import CASES, Series
from .conftest import CHART, Render, run
from .exposed import labels

pytestmark = pytest.mark.timeout(1200)  # whichever comes first may have Helm compiled

RUNBOOK = CHART.parents[1] / "docs" / "runbook.md"
Groups = list[dict[str, Any]]


@pytest.fixture
def groups(render: Render) -> Groups:
    (rule,) = [item for item in render("prometheusRule.enabled=true") if item["kind"] == "PrometheusRule"]
    found: Groups = rule["spec"]["groups"]
    return found


@pytest.fixture
def rules(groups: Groups) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_every_alert_has_a_case(rules: dict[str, Any]) -> None:
    assert set(rules) == set(CASES)
    assert all(case.firing and case.quiet for case in CASES.values())


@pytest.mark.parametrize("alert", CASES)
def test_it_fires_when_it_should_and_not_otherwise(
    tmp_path: Path, promtool: str, groups: Groups, rules: dict[str, Any], alert: str
) -> None:
    case, rule = CASES[alert], rules[alert]
    fires = {
        "exp_labels": {**case.labels, "severity": rule["labels"]["severity"]},
        "exp_annotations": {**rule["annotations"], "summary": case.summary},
    }

    def trial(series: Series, expected: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "alert_rule_test": [
                {"eval_time": f"{case.minutes}m", "alertname": alert, "exp_alerts": expected}
            ],
        }

    trials = [trial(series, [fires]) for series in case.firing]
    trials += [trial(series, []) for series in case.quiet]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": trials}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))
    done = run(promtool, "test", "rules", str(tmp_path / "tests.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_use_metrics_and_labels_that_exist(rules: dict[str, Any]) -> None:
    # What PodMonitor, ServiceMonitor and the annotations' scrape configuration add.
    target = {"namespace", "pod", "job"}
    known = {**labels(), "up": set[str]()}
    for alert, rule in rules.items():
        names = set(re.findall(r"\bisthmus_\w+|\bup\b", rule["expr"]))
        assert names, alert
        assert names <= set(known), alert
        own = set[str]().union(*(known[name] for name in names)) | target
        for selected in re.findall(r"\{([^}]*)\}", rule["expr"]):
            assert set(re.findall(r"(\w+)(?==|!=)", selected)) <= own, alert
        for grouped in re.findall(r"(?:by|on) \(([^)]*)\)", rule["expr"]):
            assert set(grouped.split(", ")) <= own, alert
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= own, alert


def test_each_says_how_bad_it_is_what_it_means_and_where_to_read_on(rules: dict[str, Any]) -> None:
    sections = re.findall(r"^### (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sections == list(rules), "docs/runbook.md has the sections in the order of the rules"
    for alert, rule in rules.items():
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}, alert
        notes = rule["annotations"]
        assert set(notes) == {"summary", "description", "runbook_url"}, alert
        assert notes["description"].endswith("."), alert
        assert "{{" not in notes["description"], alert
        assert notes["runbook_url"] == f"docs/runbook.md#{alert.lower()}"


def test_each_section_of_the_runbook_says_what_it_means_how_to_see_more_and_what_to_do() -> None:
    _, *sections = re.split(r"^### ", RUNBOOK.read_text(), flags=re.MULTILINE)
    for section in sections:
        name = section.split()[0]
        for part in ("**Means.**", "**See.**", "**Do.**"):
            text = section.partition(part)[2].partition("**")[0]
            assert len(text.split()) >= 4, f"{name}: {part}"


def test_the_runbook_can_be_elsewhere(render: Render) -> None:
    objects = render("prometheusRule.enabled=true", "prometheusRule.runbookUrl=https://x.example/r")
    text = yaml.safe_dump([item for item in objects if item["kind"] == "PrometheusRule"])
    assert "runbook_url: https://x.example/r#isthmusnoleader" in text


def test_the_alert_on_certificates_is_as_early_as_wanted(render: Render) -> None:
    objects = render("prometheusRule.enabled=true", "prometheusRule.certificateExpiryDays=30")
    (found,) = [item for item in objects if item["kind"] == "PrometheusRule"]
    early = {
        rule["alert"]
        for group in found["spec"]["groups"]
        for rule in group["rules"]
        if rule["expr"].endswith("< 30 * 86400 > 0)")
    }
    assert early == {"IsthmusCertificateExpires", "IsthmusSslProfileExpires"}
