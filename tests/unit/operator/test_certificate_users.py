"""GossipRouters and FlowLogs use a certificate once each of their pods has said that it has loaded it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.operator.api_server import WholeApiServer, store_of
from tests.unit.operator.certificates import NOW
from tests.unit.operator.sslprofiles import NETWORK, ledger
from tests.unit.operator.support import flow_log, gossip_router, model, ssl_profile
from tests.unit.operator.test_own_writes import configured, rolled_out

from isthmus_flowlog.collector.credentials import Credentials
from isthmus_flowlog.collector.settings import Tls
from isthmus_operator.authority import gossip_profile
from isthmus_operator.certificate_reports import GossipReport, Loaded, parse_gossip_router
from isthmus_operator.flow_reports import CollectorReport
from isthmus_operator.names import ANNOTATION_SYNC, LABEL_ROUTER
from isthmus_operator.observe import Target
from isthmus_operator.reconcile import RENDERING_SECONDS, Operator, Reconciliation
from isthmus_operator.render import Rendered, RenderSettings, collector_files, gossip_files, render
from isthmus_operator.report import Observation
from isthmus_operator.rotation import Ledger
from isthmus_operator.status import CertificateUser, PodView, Usage, Users, usage
from isthmus_router.credentials import TlsFiles, WatchedFiles
from isthmus_router.gossip.health import status

SETTINGS = RenderSettings("router:1", collector_image="collector:1")
KINDS = ("GossipRouter", "FlowLog")
TLS = {"sslProfile": "net"}
RESOURCES = (
    *NETWORK,
    ssl_profile("net", "server"),
    gossip_router("meet", tls=TLS),
    flow_log("flows", "west", routerRef={"name": "west", "listener": "amqps"}, tls=TLS),
)
POD = {"phase": "Running", "podIP": "10.0.0.7"}


def pod(name: str = "pod-0", **status: Any) -> PodView:
    manifest = {"metadata": {"name": name, "uid": name}, "status": {**POD, **status}}
    return PodView.of(manifest, LABEL_ROUTER, ANNOTATION_SYNC)


def world(*certificates: int, **meta: Any) -> tuple[Any, Rendered]:
    """The model after these certificates, and what is rendered of it."""
    resources = [
        {**item, "metadata": {**item["metadata"], **meta}} if item["kind"] in KINDS else item
        for item in RESOURCES
    ]
    built = model(*resources).at(NOW, {})
    built = built.serving({**built.ledgers, "net": ledger(*certificates)})
    return built, render(built, SETTINGS)


def certificates_of(rendered: Rendered, kind: str) -> str:
    found: Mapping[str, Any] = rendered.gossip_routers if kind == "GossipRouter" else rendered.flow_logs
    (made,) = found.values()
    digest: str = made.certificates
    return digest


def said(kind: str, digest: str, problem: str = "") -> Observation:
    loaded = Loaded(digest, problem)
    if kind == "GossipRouter":
        return Observation(GossipReport(loaded))
    return Observation(CollectorReport(True, "", 1, 0, None, 0, loaded))


def user(kind: str, built: Any, delivered: str | None, pods: Mapping[PodView, Observation | None]) -> Any:
    resource = built.gossip_routers["meet"] if kind == "GossipRouter" else built.flow_logs["flows"]
    heard = {item.name: observation for item, observation in pods.items() if observation is not None}
    return CertificateUser(resource, delivered, list(pods), heard)


def used(built: Any, rendered: Rendered, *others: CertificateUser) -> Usage:
    users = Users(built, rendered.plan.instances, lambda *_: "host")
    return usage("net", 2, {}, users, others)


@pytest.mark.parametrize("kind", KINDS)
def test_an_ordinal_is_in_use_once_every_pod_has_loaded_it(kind: str) -> None:
    _, earlier = world(1)
    built, rendered = world(1, 2)
    old, new = certificates_of(earlier, kind), certificates_of(rendered, kind)
    assert old != new
    late = used(
        built, rendered, user(kind, built, new, {pod("a"): said(kind, new), pod("b"): said(kind, old)})
    )
    assert late.behind == ("b has not loaded the certificates yet",)
    assert late.seen(2) is not None
    assert not late.seen(2).used  # type: ignore[union-attr]
    done = used(
        built, rendered, user(kind, built, new, {pod("a"): said(kind, new), pod("b"): said(kind, new)})
    )
    assert done.behind == ()
    assert done.seen(2).used  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_that_does_not_answer_is_behind(kind: str) -> None:
    built, rendered = world(1, 2)
    new = certificates_of(rendered, kind)
    silent = Observation(None, "does not answer on its health port: no connection")
    found = used(built, rendered, user(kind, built, new, {pod(): silent, pod("b", phase="Pending"): None}))
    assert found.behind == (
        "pod-0 does not answer on its health port: no connection",
        "b is not running yet",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_decided_before_all_pods_have_been_asked(kind: str) -> None:
    built, rendered = world(1, 2)
    found = used(built, rendered, user(kind, built, certificates_of(rendered, kind), {pod(): None}))
    assert found.unheard
    assert found.seen(2) is None


@pytest.mark.parametrize("kind", KINDS)
def test_why_a_pod_does_not_load_certificates_is_told(kind: str) -> None:
    built, rendered = world(1, 2)
    item = user(kind, built, certificates_of(rendered, kind), {pod(): said(kind, "old", "no key")})
    assert used(built, rendered, item).behind == ("pod-0: no key",)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_paused_or_not_rendered_is_behind(kind: str) -> None:
    built, rendered = world(1, 2, annotations={"isthmus.dev/paused": "true"})
    new = certificates_of(rendered, kind)
    name = "meet" if kind == "GossipRouter" else "flows"
    paused = used(built, rendered, user(kind, built, new, {pod(): said(kind, new)}))
    assert paused.behind == (f"reconciliation of {kind} {name} is paused",)
    built, rendered = world(1, 2)
    kept = used(built, rendered, user(kind, built, None, {pod(): said(kind, new)}))
    assert kept.behind == ("pod-0 keeps the earlier certificates",)


@pytest.mark.parametrize("kind", KINDS)
def test_pods_on_their_way_out_and_other_profiles_do_not_count(kind: str) -> None:
    built, rendered = world(1, 2)
    new = certificates_of(rendered, kind)
    leaving = replace(pod(), deleting=True)
    assert used(built, rendered, user(kind, built, new, {leaving: said(kind, "old")})).behind == ()
    users = Users(built, rendered.plan.instances, lambda *_: "host")
    item = user(kind, built, new, {pod(): said(kind, "old")})
    assert usage("other", 2, {}, users, [item]).behind == ()


def test_a_certificate_of_the_own_authority_is_used_by_its_gossip_router() -> None:
    built = model(gossip_router("meet"))
    rendered = render(built, SETTINGS)
    users = Users(built, rendered.plan.instances, lambda *_: "host")
    item = user(
        "GossipRouter", built, certificates_of(rendered, "GossipRouter"), {pod(): said(KINDS[0], "old")}
    )
    assert usage(gossip_profile("meet"), 1, {}, users, [item]).behind == (
        "pod-0 has not loaded the certificates yet",
    )


def test_processes_report_the_digest_that_the_operator_expects(tmp_path: Path) -> None:
    built, rendered = world(1, 2)
    for folder, files in (
        ("gossip", gossip_files(built.gossip_routers["meet"], built)),
        ("collector", collector_files(built.flow_logs["flows"], built)),
    ):
        (tmp_path / folder).mkdir()
        for name, content in files.items():
            (tmp_path / folder / name).write_bytes(content)
    paths = [str(tmp_path / "gossip" / name) for name in ("tls.crt", "tls.key", "ca.crt")]
    watched = WatchedFiles(TlsFiles(*paths))
    assert watched.load() is not None
    assert watched.digest == certificates_of(rendered, "GossipRouter")
    ca, cert, key = (str(tmp_path / "collector" / name) for name in ("ca.crt", "tls.crt", "tls.key"))
    assert Credentials.of(Tls(ca=ca, cert=cert, key=key)).digest == certificates_of(rendered, "FlowLog")
    server: Any = type("Server", (), {"certificates": watched.digest, "tls_problem": "no key"})
    answer: Any = json.loads(status(server))
    assert parse_gossip_router(answer, NOW) == GossipReport(Loaded(watched.digest, "no key"))


def test_without_tls_there_is_nothing_to_take_over() -> None:
    built = model(gossip_router("meet", tls={"disabled": True}))
    delivered = certificates_of(render(built, SETTINGS), "GossipRouter")
    item = user("GossipRouter", built, delivered, {pod(): None})
    assert (delivered, item.outdated, item.unheard) == ("", (), False)


class Cluster(WholeApiServer):
    """With one pod of the gossip router `meet`."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []

    async def merge(self, kind: str, namespace: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        if kind == "Pod":
            self.touched.append(patch["metadata"]["annotations"][ANNOTATION_SYNC])
            return patch
        return await super().merge(kind, namespace, name, patch)


class Heard:
    """In place of an Observer: what a test says."""

    def __init__(self) -> None:
        self.said: dict[str, Observation] = {}
        self.targets: Mapping[str, Target] = {}

    def observations(self, namespace: str) -> Mapping[str, Observation]:
        return dict(self.said)

    def watch(self, namespace: str, targets: Mapping[str, Target], *, hurry: bool = False) -> None:
        self.targets = targets


class Operation:
    """An operator with the GossipRouter `meet`, and perhaps an SslProfile and its Secret."""

    def __init__(
        self, profile: dict[str, Any] | None = None, secret: dict[str, Any] | None = None, **spec: Any
    ) -> None:
        self.profiles = [profile] if profile is not None else []
        self.secrets = [secret] if secret is not None else []
        for item in self.profiles:
            item["metadata"]["resourceVersion"] = "7"
        self.now = 0.0
        self.api, self.observer = Cluster(), Heard()
        stub: Any = self.api
        heard: Any = self.observer
        self.resource = gossip_router("meet", replicas=1, healthPort=9191, **spec)
        self.resource["metadata"]["resourceVersion"] = "7"
        operator = Operator(stub, SETTINGS, heard, "1", "operator", lambda: self.now)
        self.reconciliation = Reconciliation("net", operator)

    async def look(self) -> float | None:
        watched = rolled_out(self.api)
        store = store_of(self.resource, live=watched)
        sets = [item for (kind, _), item in watched.items() if kind == "StatefulSet"]
        store.pods = {"net": [member(item["metadata"]["uid"]) for item in sets]}
        store.profiles = {"net": self.profiles}
        store.secrets = {"net": [*store.secrets["net"], *self.secrets]}
        return await self.reconciliation.look(store)

    @property
    def ledger(self) -> Ledger:
        found = self.reconciliation.profiles[gossip_profile("meet")].ledger
        assert found is not None
        return found

    @property
    def delivered(self) -> str:
        assert self.reconciliation._rendering is not None
        return certificates_of(self.reconciliation._rendering.rendered, "GossipRouter")

    def configured(self) -> tuple[str, str]:
        return configured(self.api, self.resource)[:2]


def member(workload: str) -> dict[str, Any]:
    owner = {"uid": workload, "kind": "StatefulSet", "name": "meet-gossip", "controller": True}
    return {
        "metadata": {"name": "meet-gossip-0", "uid": "pod", "ownerReferences": [owner]},
        "status": {**POD, "conditions": [{"type": "Ready", "status": "True"}]},
    }


async def test_a_renewed_certificate_is_in_use_once_the_pod_has_loaded_it() -> None:
    one = Operation()
    for _ in range(2):
        await one.look()
    assert {name: (item.ip, item.port, item.path) for name, item in one.observer.targets.items()} == {
        "meet-gossip-0": ("10.0.0.7", 9191, "/status")
    }
    one.observer.said["meet-gossip-0"] = said("GossipRouter", one.delivered)
    for _ in range(2):
        await one.look()
    assert one.configured() == ("True", "Applied")
    assert (one.ledger.ordinal, one.ledger.current.settled is None) == (1, False)

    del one.api.objects["Secret", "isthmus-authority"]
    one.now += RENDERING_SECONDS
    for _ in range(3):
        await one.look()
    assert one.configured() == ("False", "ConfigPending")
    message = one.api.statuses["GossipRouter", "meet"]["conditions"][0]["message"]
    assert message == "meet-gossip-0 has not loaded the certificates yet"
    assert (one.ledger.ordinal, one.ledger.current.settled) == (2, None)
    assert one.api.touched == [f"{one.delivered}-0"], "the kubelet is to deliver them at once"

    one.observer.said["meet-gossip-0"] = said("GossipRouter", one.delivered)
    for _ in range(2):
        await one.look()
    assert one.configured() == ("True", "Applied")
    assert one.ledger.current.settled is not None
