"""Labels and annotations on which others act, and Services that are reached from outside."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.operator.restricted import SETTINGS, refusals, with_pods_of
from tests.unit.operator.support import gossip_router, model, relay_site, router

from isthmus_operator.render import render
from isthmus_operator.render.restrictions import SAFE, Restrictions

EXPOSED = Restrictions(allowed_exposures=("NodePort", "LoadBalancer"))

KEYS = [
    ("annotations", "sidecar.istio.io/proxyImage"),
    ("annotations", "sidecar.istio.io/userVolume"),
    ("annotations", "config.linkerd.io/proxy-image"),
    ("annotations", "dapr.io/sidecar-image"),
    ("annotations", "consul.hashicorp.com/connect-inject"),
    ("annotations", "container.apparmor.security.beta.kubernetes.io/router"),
    ("annotations", "seccomp.security.alpha.kubernetes.io/pod"),
    ("annotations", "iam.amazonaws.com/role"),
    ("annotations", "vault.hashicorp.com/agent-inject"),
    ("annotations", "k8s.v1.cni.cncf.io/networks"),
    ("annotations", "prometheus.io.evil.example/xy"),
    ("labels", "sidecar.istio.io/inject"),
    ("labels", "azure.workload.identity/use"),
    ("labels", "pod-security.kubernetes.io/enforce"),
    ("labels", "app"),
    ("labels", "k8s-app"),
]


@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_keys_that_others_act_on_are_refused_in_pods(kind: str, key: str) -> None:
    template = {"metadata": {kind: {key: "x"}}}
    for resource in with_pods_of(template):
        (message,) = refusals(resource)
        assert f'spec.podTemplate.metadata.{kind}: the key "{key}" is not allowed' in message
        assert "restrictions.allowedMetadata of the chart" in message
        assert refusals(resource, Restrictions("Any")) == []
        for entry in (key, f"{key.partition('/')[0]}/", "*"):
            if "/" in key or not entry.endswith("/"):
                assert refusals(resource, Restrictions(allowed_metadata=(entry,))) == []
        for entry in (key[:-1], key.partition("/")[0][1:] + "/", "other"):
            assert refusals(resource, Restrictions(allowed_metadata=(entry,)))


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize(
    "key", ["isthmus.dev/restart-hash", "isthmus.dev/flowlog", "isthmus.dev/config-sync"]
)
def test_keys_of_the_operator_are_refused_whatever_is_allowed(kind: str, key: str) -> None:
    (message,) = refusals(
        router("west", podTemplate={"metadata": {kind: {key: "x"}}}), Restrictions(allowed_metadata=("*",))
    )
    assert f'the key "{key}" is the operator\'s own' in message


SERVICE_KEYS = (
    "external-dns.alpha.kubernetes.io/hostname",
    "metallb.universe.tf/loadBalancerIPs",
    "service.beta.kubernetes.io/aws-load-balancer-ssl-cert",
    "getambassador.io/config",
)


@pytest.mark.parametrize("key", SERVICE_KEYS)
def test_keys_that_others_act_on_are_refused_in_services(key: str) -> None:
    exposed = {"serviceAnnotations": {key: "x"}}
    resources = {
        "spec.listeners[a].serviceAnnotations": router(
            "west", listeners=[{"name": "a", "port": 5672, "exposure": "LoadBalancer", **exposed}]
        ),
        "spec.serviceAnnotations": gossip_router("gossip", expose="LoadBalancer", **exposed),
    }
    for field, resource in resources.items():
        (message,) = refusals(resource, EXPOSED)
        assert f'{field}: the key "{key}" is not allowed' in message
        assert "restrictions.allowedMetadata of the chart" in message
        assert refusals(resource, replace(EXPOSED, pod_template="Any")) != [], "they are not of the pod"
        assert refusals(resource, replace(EXPOSED, allowed_metadata=(key,))) == []


@pytest.mark.parametrize("key", SERVICE_KEYS)
def test_the_service_of_a_site_has_only_allowed_annotations_and_the_site_runs(key: str) -> None:
    bridge = {"serviceAnnotations": {key: "x", "owner": "me"}}
    site = relay_site("nyc", "hub", bridge=bridge)
    for allowed, kept in ((SAFE, {"owner": "me"}), (Restrictions(allowed_metadata=(key,)), None)):
        found = render(model(router("hub"), site), replace(SETTINGS, restrictions=allowed))
        assert set(found.plan.relay_sites) == {"nyc"}
        (service,) = [
            item
            for item in found.routers["hub"].objects
            if (item["kind"], item["metadata"]["name"]) == ("Service", "nyc-bridge")
        ]
        assert service["metadata"]["annotations"] == (kept or bridge["serviceAnnotations"])
        messages = [
            item.message for item in found.findings_of("RelaySite", "nyc") if item.reason == "NotAllowed"
        ]
        assert len(messages) == (1 if kept else 0)
        for message in messages:
            assert f'spec.bridge.serviceAnnotations: the key "{key}" is not allowed' in message
            assert "restrictions.allowedMetadata of the chart" in message


@pytest.mark.parametrize("exposure", ["NodePort", "LoadBalancer"])
def test_services_are_reached_from_outside_where_the_installation_allows_it(exposure: str) -> None:
    other = "NodePort" if exposure == "LoadBalancer" else "LoadBalancer"
    listeners = [{"name": "a", "port": 5672}, {"name": "b", "port": 5673, "exposure": exposure}]
    for field, resource in (
        ("spec.listeners[b].exposure", router("west", listeners=listeners)),
        ("spec.expose", gossip_router("gossip", expose=exposure)),
    ):
        for refusing in (SAFE, Restrictions("Any"), Restrictions(allowed_exposures=(other,))):
            (message,) = refusals(resource, refusing)
            assert f"{field}: {exposure} is not allowed" in message
            assert "restrictions.allowedExposures of the chart" in message
        assert refusals(resource, Restrictions(allowed_exposures=(exposure,))) == []


@pytest.mark.parametrize("exposure", ["NodePort", "LoadBalancer"])
def test_a_site_that_must_not_be_reached_from_outside_runs_inside(exposure: str) -> None:
    site = relay_site("nyc", "hub", bridge={"expose": exposure, "nodePort": 30900})
    for allowed in (SAFE, Restrictions(allowed_exposures=(exposure,))):
        found = render(model(router("hub"), site), replace(SETTINGS, restrictions=allowed))
        (service,) = [
            item["spec"]
            for item in found.routers["hub"].objects
            if (item["kind"], item["metadata"]["name"]) == ("Service", "nyc-bridge")
        ]
        messages = [
            item.message for item in found.findings_of("RelaySite", "nyc") if item.reason == "NotAllowed"
        ]
        if allowed is SAFE:
            assert (service["type"], service["clusterIP"]) == ("ClusterIP", "None")
            assert "nodePort" not in service["ports"][0]
            (message,) = messages
            assert f"spec.bridge.expose: {exposure} is not allowed" in message
            assert "restrictions.allowedExposures of the chart" in message
        else:
            assert (service["type"], service["ports"][0]["nodePort"]) == (exposure, 30900)
            assert messages == []
