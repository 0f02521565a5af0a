"""What the chart installs, and which values it refuses."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus_operator.cluster import ENDPOINTS
from isthmus_operator.names import (
    CHILD_KINDS,
    LABEL_NAME,
    flow_analysis_labels,
    flow_log_selector,
    gossip_selector,
    scraped,
    selector,
)
from isthmus_operator.render.restrictions import SAFE, Restrictions
from isthmus_operator.settings import Settings

from .conftest import CHART, Render, run

Refusal = Callable[..., str]

pytestmark = pytest.mark.timeout(1200)  # whichever comes first may have Helm compiled


def only(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    found = [item for item in objects if item["kind"] == kind and name in item["metadata"]["name"]]
    assert len(found) == 1, [item["metadata"]["name"] for item in found]
    return found[0]


def operator_environment(objects: list[dict[str, Any]]) -> dict[str, str]:
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    limits = {"MEMORY_LIMIT": str(512 * 1024 * 1024)}  # what Kubernetes makes of the limit of the container
    values = {item["name"]: item.get("value", "from the pod") for item in container["env"]}
    return {**values, **{name: value for name, value in limits.items() if name in values}}


def test_the_definitions_come_with_the_chart(helm: str) -> None:
    """`crds/` is a link; Helm must follow it."""
    done = run(helm, "template", "release", str(CHART), "--include-crds")
    names = {
        item["metadata"]["name"]
        for item in yaml.safe_load_all(done.stdout)
        if item and item["kind"] == "CustomResourceDefinition"
    }
    plain = {path.stem for path in (CHART.parents[1] / "crds").glob("*.yaml")}
    assert plain == names
    assert names


def test_lint(helm: str) -> None:
    done = run(helm, "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_operator_understands_its_environment(render: Render) -> None:
    objects = render(
        "watchNamespaces={a,b}",
        "router.image.registry=reg.example:5000/team",
        "router.image.tag=1.2",
        "imagePullSecrets={s}",
    )
    settings = Settings.from_environment(operator_environment(objects))
    assert settings.watch_namespaces == ("a", "b")
    assert settings.render.router_image == "reg.example:5000/team/isthmus-router:1.2"
    assert settings.render.image_pull_secrets == ("s",)
    assert settings.render.collector_image.startswith("isthmus-flow-collector:")
    assert settings.render.analysis_image.startswith("isthmus-flow-analysis:")
    assert settings.lease_name == "release-isthmus-operator"
    assert settings.secrets_require_label, "by default"
    relaxed = operator_environment(render("secrets.requireLabel=false"))
    assert not Settings.from_environment(relaxed).secrets_require_label
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["ports"][0]["containerPort"] == settings.health_port


def test_a_digest_wins_over_a_tag(render: Render) -> None:
    digest = "sha256:" + "0" * 64
    objects = render(f"image.digest={digest}", "image.tag=1.2", f"router.image.digest={digest}")
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"isthmus-operator@{digest}"
    assert operator_environment(objects)["ROUTER_IMAGE"] == f"isthmus-router@{digest}"


def test_rights_on_the_cluster_only_for_all_namespaces(render: Render) -> None:
    everywhere = render("rbac.aggregate=false", "watchNamespaces={*}")
    assert operator_environment(everywhere)["WATCH_NAMESPACES"] == ""
    assert only(everywhere, "ClusterRoleBinding")["roleRef"]["name"] == "release-isthmus-operator"
    listed = render("rbac.aggregate=false", "watchNamespaces={a,b}")
    assert not [item for item in listed if item["kind"].startswith("ClusterRole")]
    roles = [item["metadata"] for item in listed if item["kind"] == "Role"]
    assert {item["namespace"] for item in roles if not item["name"].endswith("-lease")} == {"a", "b"}
    bound = {item["metadata"]["namespace"] for item in listed if item["kind"] == "RoleBinding"}
    assert bound == {"a", "b", "isthmus"}
    default = render("rbac.aggregate=false")
    assert not [item for item in default if item["kind"].startswith("ClusterRole")]
    assert {item["metadata"]["namespace"] for item in default if item["kind"] == "Role"} == {"isthmus"}
    assert operator_environment(default)["WATCH_NAMESPACES"] == "isthmus"


def granted(rules: list[dict[str, Any]]) -> dict[tuple[str, str], set[str]]:
    table: dict[tuple[str, str], set[str]] = {}
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                table.setdefault((group, resource), set()).update(rule["verbs"])
    return table


def rules_of(objects: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    (found,) = [
        item for item in objects if item["kind"] == "ClusterRole" and item["metadata"]["name"].endswith(role)
    ]
    rules: list[dict[str, Any]] = found["rules"]
    return rules


REMOVED = {"Secret", "Service", "PodDisruptionBudget", "NetworkPolicy", "Job", "CronJob"}
"""What a changed resource may no longer want. Everything else that the operator makes goes with its owner."""


def test_rights_are_those_the_operator_uses(render: Render) -> None:
    rights = granted(rules_of(render("rbac.aggregate=false", "watchNamespaces={*}"), "-operator"))
    assert not [key for key, verbs in rights.items() if "*" in key or "*" in verbs]
    for kind in CHILD_KINDS:
        endpoint = ENDPOINTS[kind]
        group = "" if endpoint.api_version == "v1" else endpoint.api_version.rpartition("/")[0]
        removal = {"delete"} if kind in REMOVED else set()
        wanted = {"get", "list", "watch", "create", "patch", *removal}
        assert rights.pop((group, endpoint.plural)) == wanted
    assert rights == {
        ("isthmus.dev", "routers"): {"list", "watch"},
        ("isthmus.dev", "connectors"): {"list", "watch"},
        ("isthmus.dev", "linkroutes"): {"list", "watch"},
        ("isthmus.dev", "relaysites"): {"list", "watch"},
        ("isthmus.dev", "gossiprouters"): {"list", "watch"},
        ("isthmus.dev", "sslprofiles"): {"list", "watch"},
        ("isthmus.dev", "flowlogs"): {"list", "watch"},
        ("isthmus.dev", "flowanalyses"): {"list", "watch"},
        ("isthmus.dev", "routers/status"): {"patch"},
        ("isthmus.dev", "connectors/status"): {"patch"},
        ("isthmus.dev", "linkroutes/status"): {"patch"},
        ("isthmus.dev", "relaysites/status"): {"patch"},
        ("isthmus.dev", "gossiprouters/status"): {"patch"},
        ("isthmus.dev", "sslprofiles/status"): {"patch"},
        ("isthmus.dev", "flowlogs/status"): {"patch"},
        ("isthmus.dev", "flowanalyses/status"): {"patch"},
        ("isthmus.dev", "routers/finalizers"): {"update"},
        ("isthmus.dev", "gossiprouters/finalizers"): {"update"},
        ("isthmus.dev", "sslprofiles/finalizers"): {"update"},
        ("isthmus.dev", "flowlogs/finalizers"): {"update"},
        ("isthmus.dev", "flowanalyses/finalizers"): {"update"},
        ("rbac.authorization.k8s.io", "clusterroles"): {"bind"},
        ("apps", "replicasets"): {"list", "watch"},
        ("", "pods"): {"list", "watch", "patch"},
        ("events.k8s.io", "events"): {"create", "list"},
    }


def test_the_only_role_that_the_operator_may_give_is_that_of_drivers(render: Render) -> None:
    everywhere = render("rbac.aggregate=false", "watchNamespaces={*}")
    (rule,) = [rule for rule in rules_of(everywhere, "-operator") if "bind" in rule["verbs"]]
    role = "release-isthmus-flow-driver"
    assert (rule["resources"], rule["resourceNames"]) == (["clusterroles"], [role])
    assert operator_environment(everywhere)["DRIVER_ROLE"] == f"ClusterRole/{role}"
    objects = {("", kind) for kind in ("pods", "configmaps", "services", "persistentvolumeclaims")}
    mark = ("isthmus.dev", "flowanalyses")
    rights = granted(rules_of(everywhere, "-flow-driver"))
    assert rights.keys() == {*objects, mark}
    assert rights[mark] == {"drive"}, "by which admission policies recognize drivers"
    without = render("rbac.aggregate=false", "watchNamespaces={*}", "admissionPolicy.enabled=false")
    assert granted(rules_of(without, "-flow-driver")).keys() == objects
    listed = render("rbac.aggregate=false", "watchNamespaces={a,b}")
    roles = {
        item["metadata"]["namespace"]: item["rules"]
        for item in listed
        if item["kind"] == "Role" and item["metadata"]["name"] == role
    }
    assert roles == dict.fromkeys(("a", "b"), rules_of(everywhere, "-flow-driver"))
    assert operator_environment(listed)["DRIVER_ROLE"] == f"Role/{role}"
    bindable = [
        rule["resources"]
        for item in listed
        if item["kind"] == "Role" and item["metadata"]["name"].endswith("-operator")
        for rule in item["rules"]
        if "bind" in rule["verbs"]
    ]
    assert bindable == [["roles"], ["roles"]]


def policies(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {item["metadata"]["name"]: item for item in objects if item["kind"] == "ValidatingAdmissionPolicy"}


def test_admission_policies_are_in_force_where_the_operator_watches(render: Render) -> None:
    for values, namespaces in (((), ["isthmus"]), (("watchNamespaces={a,b}",), ["a", "b"])):
        objects = render(*values)
        bindings = [item for item in objects if item["kind"] == "ValidatingAdmissionPolicyBinding"]
        assert {item["spec"]["policyName"] for item in bindings} == set(policies(objects))
        for item in bindings:
            assert item["spec"]["validationActions"] == ["Deny"]
            (term,) = item["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
            assert term["values"] == namespaces
    everywhere = render("watchNamespaces={*}")
    bindings = [item for item in everywhere if item["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert [item for item in bindings if "matchResources" in item["spec"]] == []
    assert policies(render("admissionPolicy.enabled=false")) == {}


def test_no_two_objects_have_the_same_name(render: Render) -> None:
    names = [(item["kind"], item["metadata"]["name"]) for item in render("watchNamespaces={a,b}")]
    spaces = [item["metadata"].get("namespace") for item in render("watchNamespaces={a,b}")]
    found = list(zip(names, spaces, strict=True))
    assert len(found) == len(set(found))


def test_admission_policies_know_the_operator_and_what_is_allowed(render: Render) -> None:
    found = policies(render())
    for name in ("secrets", "objects", "rolebindings", "pods"):
        (condition,) = found[f"isthmus-release-isthmus-{name}"]["spec"]["matchConditions"]
        account = "system:serviceaccount:isthmus:release-isthmus-operator"
        assert condition["expression"] == f"request.userInfo.username == '{account}'"
        assert found[f"isthmus-release-isthmus-{name}"]["spec"]["failurePolicy"] == "Fail"

    account = found["isthmus-release-isthmus-account"]["spec"]
    (condition,) = account["matchConditions"]
    assert "serviceAccountName == 'release-isthmus-operator'" in condition["expression"]
    assert "request.namespace == 'isthmus'" in condition["expression"]
    (validation,) = account["validations"]
    own = "'system:serviceaccount:isthmus:'"
    assert validation["expression"] == f"!request.userInfo.username.startsWith({own})"

    def expressions(*values: str) -> str:
        spec = policies(render(*values))["isthmus-release-isthmus-resources"]["spec"]
        return " ".join(item["expression"] for item in spec["validations"])

    assert "podTemplate" not in expressions("restrictions.podTemplate=Any")
    assert "spec.image" not in expressions("restrictions.allowedImages={*}")
    assert "['reg.example/team/'].exists" in expressions("restrictions.allowedImages={reg.example/team/}")
    assert "'prometheus.io/'" in expressions()
    assert "'example.com/'" in expressions("restrictions.allowedMetadata={example.com/,team}")
    assert "'prometheus.io/'" not in expressions("restrictions.allowedMetadata={*}")
    assert "priorityClassName in []" in expressions()
    assert "priorityClassName in ['high']" in expressions("restrictions.allowedPriorityClasses={high}")
    assert "claimName in []" in expressions()
    assert "claimName in ['flows']" in expressions("restrictions.allowedClaims={flows}")
    assert "claimName in" not in expressions("restrictions.allowedClaims={*}")
    assert "object.spec.s3.secretName" in expressions()
    assert "object.spec.s3" not in expressions("restrictions.cloudIdentity=Any")
    assert "exposure in ['ClusterIP', 'None'])" in expressions()
    nodes = expressions("restrictions.allowedExposures={NodePort}")
    assert "exposure in ['ClusterIP', 'None', 'NodePort'])" in nodes
    assert "expose in ['ClusterIP', 'None', 'NodePort'])" in nodes
    assert "priorityClassName in" not in expressions("restrictions.allowedPriorityClasses={*}")


def test_refusals_name_the_field_and_what_to_do(render: Render) -> None:
    """A person who may not change the chart has to know what the administrator can do."""
    validations = policies(render())["isthmus-release-isthmus-resources"]["spec"]["validations"]
    told = [item for item in validations if item["expression"] != "true"]
    for validation in told:
        for text in (validation["message"], validation.get("messageExpression", validation["message"])):
            assert "restrictions." in text
            assert "spec." in text or "serviceAnnotations" in text
            assert "\n" not in text, "the API server would not use it"
    (image,) = [item for item in told if "!has(object.spec.image)" in item["expression"]]
    assert "add a prefix of it to restrictions.allowedImages" in image["message"]
    (exposure,) = [item for item in told if "item.exposure" in item["expression"]]
    assert "spec.listeners[' + string(item.name) + '].exposure: '" in exposure["messageExpression"]
    (containers,) = [item for item in told if "'resources'" in item["expression"]]
    assert "restrictions.podTemplate of the chart to Any" in containers["message"]


def test_drivers_make_executors_only_unless_the_chart_allows_any_pod(render: Render) -> None:
    def expressions(name: str, *values: str) -> str:
        spec = policies(render(*values))[f"isthmus-release-isthmus-{name}"]["spec"]
        return " ".join(item["expression"] for item in spec["validations"])

    assert r"matches(r'^isthmus-flow-analysis([:@][^/]*)?$')" in expressions("executors")
    images = (
        "flowAnalysis.image.registry=reg.example:5000",
        "restrictions.allowedImages={reg.example/team/}",
    )
    assert r"r'^reg\.example:5000/isthmus-flow-analysis([:@]" in expressions("executors", *images)
    assert "['reg.example/team/'].exists" in expressions("executors", *images)
    assert "variables.image" not in expressions("executors", "restrictions.allowedImages={*}")
    assert "claimName in ['flows']" in expressions("executors", "restrictions.allowedClaims={flows}")
    assert "item.name == entry" not in expressions("driver-pod")
    pulls = "restrictions.allowedPullSecrets={a,default-dockercfg-}"
    assert "['a', 'default-dockercfg-'].exists" in expressions("driver-pod", pulls)
    for value in ("restrictions.executors=Any", "restrictions.podTemplate=Any"):
        found = policies(render(value))
        for name in ("executors", "driver-pod"):
            assert f"isthmus-release-isthmus-{name}" not in found
        for kept in ("drivers", "changes", "tokens", "account"):
            assert f"isthmus-release-isthmus-{kept}" in found


def test_annotations_and_owners_of_configmaps_of_drivers_are_bounded(render: Render) -> None:
    """Other controllers act on annotations: they copy a ConfigMap into each namespace."""

    def expressions(*values: str) -> str:
        spec = policies(render(*values))["isthmus-release-isthmus-drivers"]["spec"]
        return " ".join(item["expression"] for item in spec["validations"])

    assert "object.metadata.annotations.all(key, !key.startsWith('isthmus.dev/') && (" in expressions()
    assert "'example.com/'" in expressions("restrictions.allowedMetadata={example.com/}")
    assert "owner.kind == 'Pod' && owner.uid == variables.driver" in expressions()


def test_executors_are_compared_with_pods_that_the_operator_makes_for_drivers(render: Render) -> None:
    objects = render()
    name = "isthmus-release-isthmus-driver-pod"
    assert policies(objects)[name]["spec"]["paramKind"] == {"apiVersion": "v1", "kind": "Pod"}
    references = {
        item["metadata"]["name"]: item["spec"]["paramRef"]
        for item in objects
        if item["kind"] == "ValidatingAdmissionPolicyBinding" and "paramRef" in item["spec"]
    }
    assert list(references) == [name]
    assert references[name]["parameterNotFoundAction"] == "Allow", "Deny refuses every pod"
    selected = references[name]["selector"]["matchLabels"].items()
    assert selected <= flow_analysis_labels("daily", "flow-driver").items()
    assert not selected <= flow_analysis_labels("daily", "flow-executor").items()


def test_the_operator_knows_what_is_allowed(render: Render) -> None:
    objects = render(
        "restrictions.allowedImages={reg.example/team/}",
        "restrictions.allowedMetadata={example.com/,team}",
        "restrictions.allowedPriorityClasses={high,low}",
        "restrictions.allowedClaims={flows}",
        "restrictions.allowedExposures={LoadBalancer}",
        "restrictions.cloudIdentity=Any",
    )
    settings = Settings.from_environment(operator_environment(objects))
    assert settings.render.restrictions == Restrictions(
        allowed_images=("reg.example/team/",),
        allowed_metadata=("example.com/", "team"),
        allowed_priority_classes=("high", "low"),
        allowed_claims=("flows",),
        allowed_exposures=("LoadBalancer",),
        cloud_identity="Any",
    )
    assert Settings.from_environment(operator_environment(render())).render.restrictions == SAFE


def test_the_lease_is_the_releases_own(render: Render) -> None:
    """The operator cannot make it, so it cannot come back when the release is removed."""
    objects = render()
    lease = only(objects, "Lease")["metadata"]["name"]
    assert lease == operator_environment(objects)["LEASE_NAME"]
    (rule,) = only(objects, "Role", "-lease")["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == ([lease], ["get", "update"])


def test_every_pod_meets_the_restricted_standard(render: Render) -> None:
    objects = render()
    pods = [only(objects, "Deployment")["spec"]["template"]["spec"], only(objects, "Pod")["spec"]]
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}


def test_the_helm_test_cleans_up_after_itself(render: Render) -> None:
    objects = render()
    for kind in ("Router", "Pod"):
        annotations = only(objects, kind)["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "test"
        policy = annotations["helm.sh/hook-delete-policy"].split(",")
        assert set(policy) == {"before-hook-creation", "hook-succeeded", "hook-failed"}
    assert not [item for item in render("test.enabled=false") if item["kind"] in {"Router", "Pod"}]


def test_the_helm_test_runs_where_the_operator_watches(render: Render) -> None:
    assert only(render("watchNamespaces={a,b}"), "Router")["metadata"]["namespace"] == "a"
    assert only(render("watchNamespaces={a,isthmus}"), "Router")["metadata"]["namespace"] == "isthmus"


def test_a_policy_admits_the_health_port_only(render: Render) -> None:
    assert "NetworkPolicy" not in {item["kind"] for item in render()}
    policy = only(render("networkPolicy.enabled=true"), "NetworkPolicy")["spec"]
    assert policy["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}]}]


def test_named_namespaces_alone_reach_the_port_of_the_operator(render: Render) -> None:
    found = render("networkPolicy.enabled=true", "router.monitoringNamespaces={prometheus,ops}")
    (rule,) = only(found, "NetworkPolicy")["spec"]["ingress"]
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["prometheus", "ops"]}
    assert rule == {
        "ports": [{"port": "http", "protocol": "TCP"}],
        "from": [{"podSelector": {}}, {"namespaceSelector": {"matchExpressions": [named]}}],
    }


def test_names_of_a_long_release_fit(render: Render) -> None:
    for item in render("serviceMonitor.enabled=true", name="r" * 53):
        assert len(item["metadata"]["name"]) <= 63, item["metadata"]["name"]


KINDS = {
    "serviceMonitor": "ServiceMonitor",
    "podMonitor": "PodMonitor",
    "prometheusRule": "PrometheusRule",
    "dashboard": "ConfigMap",
}


@pytest.mark.parametrize(("value", "kind"), KINDS.items())
def test_monitoring_is_there_with_its_api_and_otherwise_when_wanted(
    helm: str, render: Render, value: str, kind: str
) -> None:
    assert kind not in {item["kind"] for item in render()}
    wanted = only(render(f"{value}.enabled=true", f"{value}.labels.release=x"), kind)
    assert wanted["metadata"]["labels"]["release"] == "x"
    with_api = (helm, "template", "release", str(CHART), "--api-versions=monitoring.coreos.com/v1")
    assert f"\nkind: {kind}\n" in run(*with_api).stdout
    assert f"\nkind: {kind}\n" not in run(*with_api, f"--set={value}.enabled=false").stdout


def test_pods_are_annotated_for_a_prometheus_without_its_operator(render: Render) -> None:
    annotations = only(render("podAnnotations.a=b"), "Deployment")["spec"]["template"]["metadata"][
        "annotations"
    ]
    assert annotations == {**scraped(8080), "a": "b"}
    off = render("podAnnotations.prometheus\\.io/scrape=no")
    annotations = only(off, "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/scrape"] == "no"


def test_a_scrape_has_a_limited_number_of_samples(render: Render) -> None:
    assert only(render("podMonitor.enabled=true"), "PodMonitor")["spec"]["sampleLimit"] == 20000
    wanted = render("podMonitor.enabled=true", "podMonitor.sampleLimit=0")
    assert only(wanted, "PodMonitor")["spec"]["sampleLimit"] == 0


def test_all_that_has_metrics_is_scraped(render: Render) -> None:
    (wanted,) = only(render("podMonitor.enabled=true"), "PodMonitor")["spec"]["selector"]["matchExpressions"]
    assert (wanted["key"], wanted["operator"]) == (LABEL_NAME, "In")
    assert set(wanted["values"]) == {
        labels("x")[LABEL_NAME] for labels in (selector, gossip_selector, flow_log_selector)
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("replicas=0", "/replicas"),
        ("imag.tag=1", "additional properties 'imag' not allowed"),
        ("image.tagg=1", "additional properties 'tagg' not allowed"),
        ("image.registry=reg.example/", "/image/registry"),
        ("image.tag=latest", "tag latest names something else tomorrow"),
        ("router.image.tag=latest", "tag latest names something else tomorrow"),
        ("router.image.digest=abc", "/router/image/digest"),
        ("watchNamespaces={A_b}", "/watchNamespaces/0"),
        ("logLevel=loud", "/logLevel"),
        ("serviceMonitor.interval=often", "/serviceMonitor/interval"),
        ("podMonitor.enabled=maybe", "/podMonitor/enabled"),
        ("podMonitor.sampleLimit=-1", "/podMonitor/sampleLimit"),
        ("prometheusRule.certificateExpiryDays=0", "/prometheusRule/certificateExpiryDays"),
    ],
)
def test_values_that_are_refused(refusal: Refusal, value: str, message: str) -> None:
    assert message in refusal(value)


def test_every_value_is_in_the_schema_and_described() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    walk(Path("values"), schema, values)


def walk(path: Path, schema: dict[str, Any], values: Any) -> None:
    if "properties" not in schema:
        return
    assert schema["additionalProperties"] is False, path
    for name, value in values.items():
        assert name in schema["properties"], path / name
        assert schema["properties"][name]["description"], path / name
        walk(path / name, schema["properties"][name], value)


def test_docs_operator_lists_the_rights_that_the_chart_grants(render: Render) -> None:
    (role,) = (
        item
        for item in render("watchNamespaces={one}")
        if item["kind"] == "Role" and item["metadata"]["name"].endswith("-operator")
    )
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    text = (CHART.parents[1] / "docs/operator.md").read_text().partition("\n### Rights\n")[2]
    table = itertools.takewhile(
        lambda line: line.startswith("|"), text.partition("|---|")[2].splitlines()[1:]
    )
    listed: set[tuple[str, str, str]] = set()
    for line in table:
        resources, verbs = line.split("|")[1:3]
        named, _, rest = resources.strip().rpartition(": ")
        listed |= {
            (named.strip("`"), resource, verb.strip())
            for resource in rest.split(", ")
            for verb in verbs.split(", ")
        }
    assert listed == granted
