"""CoreDNS: one pod on each node, asked by that node's pods, so that names survive a node's death."""

from __future__ import annotations

from typing import Any

from .spec import Spec

IMAGE = "docker.io/isthmus-test/coredns:1"
# Nothing outside the cluster is ever asked: other names do not exist.
_COREFILE = """\
cluster.local:5353 in-addr.arpa:5353 ip6.arpa:5353 {
    errors
    health :8080
    ready :8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 1
    }
    cache 1
    loadbalance
}
.:5353 {
    template ANY ANY {
        rcode NXDOMAIN
    }
}
"""


def manifests(spec: Spec) -> list[dict[str, Any]]:
    """The objects to apply, in order."""
    labels = {"k8s-app": "kube-dns"}
    meta = {"name": "coredns", "namespace": "kube-system", "labels": labels}
    container = {
        "name": "coredns",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 5353, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 5353, "protocol": "TCP"},
        ],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "10m", "memory": "30Mi"}, "limits": {"memory": "170Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "serviceAccountName": "coredns",
            "priorityClassName": "system-node-critical",
            "dnsPolicy": "Default",
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
        },
    }
    rules = [
        {"apiGroups": [""], "resources": ["pods", "services", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    ports = [
        {"name": name, "port": 53, "targetPort": 5353, "protocol": protocol}
        for name, protocol in (("dns", "UDP"), ("dns-tcp", "TCP"))
    ]
    subject = {"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}
    rbac = "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:coredns"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": rules,
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": role,
            "subjects": [subject],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"Corefile": _COREFILE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta | {"name": "kube-dns"},
            "spec": {
                "clusterIP": str(spec.dns_service),
                "internalTrafficPolicy": "Local",
                "selector": labels,
                "ports": ports,
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": meta,
            "spec": {"selector": {"matchLabels": labels}, "template": pod},
        },
    ]
