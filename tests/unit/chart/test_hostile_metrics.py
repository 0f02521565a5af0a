"""Metrics of a hostile pod neither silence nor break alerts about other namespaces, and raise few of their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from .alert_cases import CASES, Series
from .conftest import CHART, Render, run
from .exposed import expositions
from .test_alerts import Groups

pytestmark = pytest.mark.timeout(1200)  # whichever comes first may have Helm compiled

PODS = ("isthmus-router", "isthmus-gossip-router", "isthmus-flow-collector")
HOSTILE = 'namespace="hostile",pod="h-0",job="isthmus/isthmus-routers"'
VALUES = ("-1000000+0x60", "0+0x60", "1+0x60", "1000000+0x60", "0+1000000x60", "NaN NaN NaN NaN NaN NaN")
MOST_ALERTS = 20
"""Of one rule about one namespace."""


@pytest.fixture
def groups(render: Render) -> Groups:
    (rule,) = [item for item in render("prometheusRule.enabled=true") if item["kind"] == "PrometheusRule"]
    found: Groups = rule["spec"]["groups"]
    return found


def hostile(expression: str) -> Series:
    """Series of a pod for each metric and selector of a rule: with labels that alerts and the operator have, with
    values that would silence a rule, several with the same labels that rules group by, and each twice with labels that
    are the same in an alert."""
    found: Series = {}
    for name, selector in re.findall(r"\b(isthmus_\w+)(?:\{([^}]*)\})?", expression):
        pairs = dict(re.findall(r'(\w+)=~?"([^"|]*)', selector))
        pairs.pop("job", None)
        for number, value in enumerate(VALUES):
            for twin in ("a", "b"):
                labels = {
                    "group": "trades",
                    "site": "nyc",
                    "remote_site": "sfo",
                    "kind": "Router",
                    "ready": "False",
                    "result": "retry",
                    "role": "edge",
                    "state": "active",
                    "exported_job": "isthmus-operator",
                    "exported_namespace": "net",
                    **pairs,
                    "severity": twin,
                    "alertname": twin,
                    "x": str(number),
                }
                text = ",".join(f'{key}="{item}"' for key, item in labels.items())
                found[f"{name}{{{HOSTILE},{text}}}"] = value
    return found


def trial(promtool: str, folder: Path, groups: Groups, tests: list[dict[str, Any]]) -> None:
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(document))
    done = run(promtool, "test", "rules", str(folder / "tests.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def listed(series: Series) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


@pytest.mark.parametrize("alert", CASES)
def test_a_pod_of_another_namespace_neither_silences_nor_raises_an_alert(
    tmp_path: Path, promtool: str, groups: Groups, alert: str
) -> None:
    case = CASES[alert]
    (rule,) = [rule for group in groups for rule in group["rules"] if rule["alert"] == alert]
    attack = hostile(rule["expr"])

    def asked(series: Series, number: int) -> dict[str, Any]:
        query = f'count(ALERTS{{alertname="{alert}",alertstate="firing",namespace!="hostile"}}) or vector(0)'
        samples = [{"labels": "{}", "value": number}]
        return {
            "interval": "1m",
            "input_series": listed(attack | series),
            "promql_expr_test": [{"eval_time": f"{case.minutes}m", "expr": query, "exp_samples": samples}],
        }

    tests = [asked(series, 1) for series in case.firing] + [asked(series, 0) for series in case.quiet]
    trial(promtool, tmp_path, groups, tests)


@pytest.mark.parametrize("alert", [name for name in CASES if "remote_site" in CASES[name].labels])
def test_a_pod_with_many_series_raises_few_alerts(
    tmp_path: Path, promtool: str, groups: Groups, alert: str
) -> None:
    case = CASES[alert]
    series = {
        name.replace('site="nyc"', f'site="s{number}"').replace(
            'namespace="net"', 'namespace="hostile"'
        ): value
        for name, value in case.firing[0].items()
        for number in range(3 * MOST_ALERTS)
    }
    query = f'count by (namespace) (ALERTS{{alertname="{alert}",alertstate="firing"}})'
    samples = [
        {"labels": '{namespace="hostile"}', "value": MOST_ALERTS},
        {"labels": '{namespace="net"}', "value": 1},
    ]
    asked = {"eval_time": f"{case.minutes}m", "expr": query, "exp_samples": samples}
    tests = [{"interval": "1m", "input_series": listed(series | case.firing[0]), "promql_expr_test": [asked]}]
    trial(promtool, tmp_path, groups, tests)


def test_alerts_with_names_that_pods_choose_are_bounded_for_each_namespace(groups: Groups) -> None:
    for rule in (rule for group in groups for rule in group["rules"]):
        bounded = re.match(r"(top|bottom)k by \(namespace\) \(20, ", rule["expr"])
        grouped = set(", ".join(re.findall(r"by \(([^)]*)\)", rule["expr"])).split(", "))
        if not bounded:
            assert grouped <= {"namespace", "pod", "kind", "role", ""}, rule["alert"]


def test_rules_about_the_operator_select_its_job(render: Render, groups: Groups) -> None:
    (monitor,) = [item for item in render("serviceMonitor.enabled=true") if item["kind"] == "ServiceMonitor"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "isthmus-operator"}]
    for rule in (rule for group in groups for rule in group["rules"]):
        for selector in re.findall(r"isthmus_operator_\w+(.{0,24})", rule["expr"]):
            assert selector.startswith('{job="isthmus-operator"'), rule["alert"]


def test_pods_have_only_metrics_that_they_may_have(render: Render) -> None:
    (monitor,) = [item for item in render("podMonitor.enabled=true") if item["kind"] == "PodMonitor"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert not endpoint.get("honorLabels")
    (rule,) = endpoint["metricRelabelings"]
    assert (rule["sourceLabels"], rule["action"]) == (["__name__"], "keep")
    exposed = {
        pod: {line.split()[2] for line in text.decode().splitlines() if line.startswith("# TYPE ")}
        for pod, text in expositions().items()
    }
    for pod in PODS:
        for name in exposed[pod]:
            assert re.fullmatch(rule["regex"], name), name
    for name in {*exposed["isthmus-operator"], "up", "ALERTS", "kube_pod_info", "scrape_samples_scraped"}:
        if name.startswith(("process_", "python_")):
            continue
        assert not re.fullmatch(rule["regex"], name), name


def test_the_example_trusts_the_labels_of_the_operator_alone(render: Render) -> None:
    document = yaml.safe_load((CHART.parents[1] / "examples" / "monitoring" / "prometheus.yaml").read_text())
    operator, pods = document["scrape_configs"]
    assert operator["job_name"] == "isthmus-operator"
    assert operator["honor_labels"]
    (discovery,) = operator["kubernetes_sd_configs"]
    assert discovery["namespaces"] == {"names": ["isthmus"]}
    assert not pods.get("honor_labels")
    assert pods["sample_limit"] == 20000
    (monitor,) = [item for item in render("podMonitor.enabled=true") if item["kind"] == "PodMonitor"]
    (rule,) = monitor["spec"]["podMetricsEndpoints"][0]["metricRelabelings"]
    (same,) = pods["metric_relabel_configs"]
    assert same["regex"] == rule["regex"]
    # A port that is no number could name another host.
    for job in (operator, pods):
        (port,) = [item for item in job["relabel_configs"] if item.get("target_label") == "__address__"]
        assert re.fullmatch(port["regex"], "10.0.0.1;9090")
        assert not re.fullmatch(port["regex"], "10.0.0.1;9090@host:80")
