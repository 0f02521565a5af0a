"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from pathlib import Path

from ..host import SYSTEM_PATH, HarnessError
from .binaries import Binaries
from .network import CONTROL_PLANE_HOLDER
from .pki import Pki
from .process import Process, start
from .spec import Spec
from .state import State

APISERVER = "kube-apiserver"
_ETCD_PEER = "http://127.0.0.1:2380"
_ETCD = "http://127.0.0.1:2379"
# A dead node is seen after this time; its lease is renewed four times as often.
NODE_GRACE_S = 8
# Of the audit log, in files of so many megabytes: a file more than these is the most there is.
AUDIT_FILE_MB = 40
AUDIT_OLD_FILES = 4
# Who does what with the rights that tests of rights are about; see docs/test-cluster.md.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "verbs": ["create", "delete", "deletecollection"],
            "resources": [{"group": "rbac.authorization.k8s.io"}],
        },
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}


class ControlPlane:
    """Starts and stops the control plane's processes; all run in its network namespace."""

    def __init__(self, state: State, spec: Spec, binaries: Binaries) -> None:
        self._state = state
        self._spec = spec
        self._binaries = binaries
        self._pki = Pki(state.pki)

    def prepare(self) -> None:
        """Issues certificates and writes the kubeconfig files, the administrator's last."""
        spec, pki = self._spec, self._pki
        self._state.audit.mkdir(exist_ok=True)
        self._audit_policy.write_text(json.dumps(AUDIT_POLICY))
        hosts = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "127.0.0.1"]
        hosts += ["kubernetes.default.svc.cluster.local"]
        hosts += [str(spec.kubernetes_service), str(spec.control_plane_address)]
        pki.issue("apiserver", "kube-apiserver", hosts=hosts)
        pki.issue("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
        pki.issue("service-accounts", "service-accounts")
        for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
            pki.issue(name, f"system:{name}")
            pki.kubeconfig(self._state.folder / f"{name}.kubeconfig", spec.name, spec.api_url, name)
        pki.issue("admin", "isthmus-test-admin", "system:masters")
        pki.kubeconfig(self._state.kubeconfig, f"isthmus-{spec.name}", spec.api_url, "admin")

    def start(self) -> None:
        """Starts all of it and waits until the API answers."""
        self._start("etcd", self._etcd())
        self.start_apiserver()
        # Until it is ready its clients lack their roles, and the controller manager gives up.
        self.wait_ready(timeout=90)
        self._start("kube-controller-manager", self._controller_manager())
        self._start("kube-scheduler", self._scheduler())

    def start_apiserver(self) -> None:
        self._start(APISERVER, self._apiserver())

    def wait_ready(self, timeout: float) -> None:
        """Waits until the API server says it is ready; HarnessError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not self.ready():
            for name in ("etcd", APISERVER):
                if not self._state.process(name).running():
                    raise HarnessError(f"{name} ended; see {self._state.logs / name}.log")
            if time.monotonic() > deadline:
                raise HarnessError(f"the API server is not ready; see {self._state.logs}")
            time.sleep(0.1)

    def ready(self) -> bool:
        context = ssl.create_default_context(cafile=str(self._pki.certificate("ca")))
        context.load_cert_chain(self._pki.certificate("admin"), self._pki.key("admin"))
        connection = http.client.HTTPSConnection(
            str(self._spec.control_plane_address), 6443, timeout=5, context=context
        )
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _start(self, name: str, arguments: list[str]) -> Process:
        return start(
            [self._binaries[name], *arguments],
            record=self._state.process_file(name),
            log=self._state.logs / f"{name}.log",
            env={"PATH": SYSTEM_PATH},
            net=self._state.process(CONTROL_PLANE_HOLDER),
        )

    def _etcd(self) -> list[str]:
        return [
            f"--data-dir={self._state.etcd_data}",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={_ETCD_PEER}",
            f"--initial-advertise-peer-urls={_ETCD_PEER}",
            f"--initial-cluster=default={_ETCD_PEER}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    @property
    def _audit_policy(self) -> Path:
        return self._state.audit / "policy.json"

    def _apiserver(self) -> list[str]:
        pki, spec = self._pki, self._spec
        return [
            f"--advertise-address={spec.control_plane_address}",
            "--allow-privileged=true",
            f"--audit-log-maxbackup={AUDIT_OLD_FILES}",
            f"--audit-log-maxsize={AUDIT_FILE_MB}",
            f"--audit-log-path={self._state.audit / 'audit.log'}",
            f"--audit-policy-file={self._audit_policy}",
            "--authorization-mode=Node,RBAC",
            f"--client-ca-file={pki.certificate('ca')}",
            "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
            # Webhooks are called at their pods: no kube-proxy translates service addresses here.
            "--enable-aggregator-routing=true",
            f"--etcd-servers={_ETCD}",
            f"--kubelet-certificate-authority={pki.certificate('ca')}",
            f"--kubelet-client-certificate={pki.certificate('apiserver-kubelet-client')}",
            f"--kubelet-client-key={pki.key('apiserver-kubelet-client')}",
            # The names of nodes cannot be resolved.
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki.certificate('service-accounts')}",
            f"--service-account-signing-key-file={pki.key('service-accounts')}",
            f"--service-cluster-ip-range={spec.service_network}",
            f"--tls-cert-file={pki.certificate('apiserver')}",
            f"--tls-private-key-file={pki.key('apiserver')}",
        ]

    def _controller_manager(self) -> list[str]:
        pki = self._pki
        return [
            *self._client("kube-controller-manager"),
            f"--cluster-cidr={self._spec.pod_network}",
            f"--cluster-signing-cert-file={pki.certificate('ca')}",
            f"--cluster-signing-key-file={pki.key('ca')}",
            f"--node-monitor-grace-period={NODE_GRACE_S}s",
            "--node-monitor-period=2s",
            f"--root-ca-file={pki.certificate('ca')}",
            f"--service-account-private-key-file={pki.key('service-accounts')}",
            "--use-service-account-credentials=true",
        ]

    def _scheduler(self) -> list[str]:
        return self._client("kube-scheduler")

    def _client(self, name: str) -> list[str]:
        path = self._state.folder / f"{name}.kubeconfig"
        return [
            f"--kubeconfig={path}",
            f"--authentication-kubeconfig={path}",
            f"--authorization-kubeconfig={path}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--profiling=false",
        ]
