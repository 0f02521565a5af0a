"""A tenant that may write all Isthmus resources of a namespace, and nothing else."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from .. import installation
from ..harness.cluster import Cluster
from ..harness.host import CommandError

RBAC = "rbac.authorization.k8s.io/v1"
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"}
SIDE = {"name": "side", "image": "evil:1"}
CONTEXT = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
CONFINED: dict[str, Any] = {
    "containers": [{**SIDE, "securityContext": CONTEXT}],
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
}
OURS = {"app.kubernetes.io/managed-by": "isthmus-operator"}


def resource(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "isthmus.dev/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def analysis(**spec: Any) -> dict[str, Any]:
    return resource("FlowAnalysis", flowLogRef={"name": "flows"}, **spec)


def plain(
    kind: str, version: str = "v1", labels: dict[str, str] | None = None, **fields: Any
) -> dict[str, Any]:
    metadata = {"name": "x", "labels": labels or {}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def token() -> dict[str, Any]:
    """A Secret with a token of the ServiceAccount `default`."""
    made = plain("Secret", labels=OURS, type="kubernetes.io/service-account-token")
    made["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "default"}
    return made


def away(**term: Any) -> dict[str, Any]:
    """Affinity away from other pods."""
    item = {"topologyKey": "kubernetes.io/os", "labelSelector": {}, **term}
    rules = {
        "requiredDuringSchedulingIgnoredDuringExecution": [item],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": item}],
    }
    return {"podAntiAffinity": rules}


class Place:
    """A namespace with an operator and a tenant."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}
        rules = [{"apiGroups": ["isthmus.dev"], "resources": ["*"], "verbs": ["*"]}]
        cluster.apply(
            plain("Role", RBAC, rules=rules),
            plain("RoleBinding", RBAC, roleRef=ROLE, subjects=[subject]),
            namespace=namespace,
        )

    def allow_pods(self, account: str, verb: str) -> None:
        """Give a service account a right on pods."""
        self.allow(account, "pods", verb)

    def allow(self, account: str, resource: str, verb: str) -> None:
        """Give a service account a right on a resource of the core group."""
        subject = {"kind": "ServiceAccount", "name": account, "namespace": self.namespace}
        rules = [{"apiGroups": [""], "resources": [resource], "verbs": [verb]}]
        metadata = {"name": f"{account}-{verb}"}  # not that of a role of the chart
        role = {**plain("Role", RBAC, rules=rules), "metadata": metadata}
        reference = {**ROLE, **metadata}
        binding = {**plain("RoleBinding", RBAC, roleRef=reference, subjects=[subject]), "metadata": metadata}
        self.cluster.apply(role, binding, namespace=self.namespace)

    def create(self, account: str, manifest: dict[str, Any], pod: str | None = None) -> None:
        """As this service account, by a token of the pod with the uid `pod`; nothing is stored."""
        self.kubectl(
            *("create", "--dry-run=server", "--filename=-"),
            input=json.dumps(manifest),
            as_account=account,
            pod=pod,
        )

    def kubectl(
        self, *words: str, input: str | None = None, as_account: str | None = None, pod: str | None = None
    ) -> str:
        """As the administrator, or as a service account, by a token of the pod with the uid `pod`."""
        place = [f"--namespace={self.namespace}"]
        if as_account is not None:
            place.append(f"--as=system:serviceaccount:{self.namespace}:{as_account}")
        if pod is not None:
            place.append(f"--as-user-extra=authentication.kubernetes.io/pod-uid={pod}")
        return self.cluster.kubectl(*words, *place, input=input)

    def refused(self, account: str, word: str, manifest: dict[str, Any], pod: str | None = None) -> None:
        """It must not create this, and the answer has `word`, a regular expression, in it."""
        with pytest.raises(CommandError) as error:
            self.create(account, manifest, pod)
        assert re.search(word, error.value.output), (error.value.output, manifest)

    def may(self, account: str, verb: str, *what: str) -> bool:
        """Whether a service account has a right, in words of `kubectl auth can-i`."""
        try:
            self.kubectl("auth", "can-i", verb, *what, as_account=account)
        except CommandError as error:
            if error.returncode != 1:
                raise
            return False
        return True

    @contextlib.contextmanager
    def without(self, account: str, role: str, verb: str, *what: str) -> Iterator[list[str]]:
        """Without the rule of a Role with this verb alone, which gives the account the right to `what`. Yields all
        resources of the rule."""

        def become(rules: list[dict[str, Any]], *, has: bool) -> None:
            self.kubectl("patch", "role", role, "--type=merge", f"--patch={json.dumps({'rules': rules})}")
            self.cluster.eventually(
                "the API server knows", lambda: self.may(account, verb, *what) == has, timeout=30
            )

        rules = json.loads(self.kubectl("get", "role", role, "--output=json"))["rules"]
        (taken,) = [rule for rule in rules if rule["verbs"] == [verb]]
        become([rule for rule in rules if rule != taken], has=False)
        try:
            yield taken["resources"]
        finally:
            become(rules, has=True)

    @contextlib.contextmanager
    def lax(self) -> Iterator[None]:
        """Without Pod Security, which refuses some pods before admission policies do."""
        label = "pod-security.kubernetes.io/enforce"
        words = ("label", "namespace", self.namespace, "--overwrite")
        self.cluster.kubectl(*words, f"{label}=privileged")
        yield
        self.cluster.kubectl(*words, f"{label}=restricted")


@contextlib.contextmanager
def place_of_a_tenant(cluster: Cluster) -> Iterator[Place]:
    """One of its own, which is deleted at the end."""
    with (
        installation.schemas(cluster),
        cluster.namespace("tenant") as name,
        installation.operator(cluster, name),
    ):
        yield Place(cluster, name)
